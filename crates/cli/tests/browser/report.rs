//! Reports of the lab, opened from the disk: what is drawn and listed is what the journal says.

use std::fs;
use std::io::{self, Write as _};

use loadline_capacity::stats::Interval;
use loadline_lab::analysis::{Metric, Run};
use loadline_lab::plan::{Chart, ChartKind, Plan};
use loadline_lab::report::page::page;
use loadline_lab::report::{Claim, REPORT, Report, Verdict};
use serde_json::Value;

use crate::chromium::{Browser, Visit};
use crate::fixture;

struct Shown {
    _folder: tempfile::TempDir,
    trials: usize,
    report: Report,
    url: String,
}

fn made() -> Shown {
    made_with(|_| ())
}

/// With charts that are not those of the plan.
fn made_with(change: impl FnOnce(&mut [Chart])) -> Shown {
    made_of(1, change)
}

/// With so many times as many trials.
fn made_of(times: u32, change: impl FnOnce(&mut [Chart])) -> Shown {
    let folder = tempfile::tempdir().expect("a folder");
    let trials = fixture::write_long_run(folder.path(), times).len();
    let run = Run::read(folder.path()).expect("a run");
    let mut plan = Plan::parse(fixture::PLAN, "made-up.toml", folder.path()).expect("a plan");
    change(&mut plan.charts);
    let report = Report::new(&run, &plan.charts, claims());
    let path = folder.path().join(REPORT);
    fs::write(&path, page(&report).expect("a page")).expect("a file");
    Shown {
        url: format!("file://{}", path.display()),
        report,
        trials,
        _folder: folder,
    }
}

fn claims() -> Vec<Claim> {
    let verdicts = [
        (
            Verdict::Reproduced,
            "Throughput falls with the service time, most steeply at its begin.",
            "Every step falls; the steepest is the first.",
        ),
        (
            Verdict::NotReproduced,
            "More event loops help up to an optimum.",
            "Two CPUs: from the second loop on, the intervals overlap.",
        ),
        (
            Verdict::NotTestable,
            "The advantage lasts with 20,000 clients.",
            "This machine has 1024 descriptors for a process.",
        ),
    ];
    let claim = |(verdict, text, why): (Verdict, &str, &str)| Claim {
        paper: "P1".to_owned(),
        text: text.to_owned(),
        source: "Fig. 20".to_owned(),
        published: "3".to_owned(),
        verdict,
        why: why.to_owned(),
        interval: (verdict != Verdict::NotTestable).then_some(Interval {
            low: 0.95,
            high: 1.21,
            level: 0.95,
        }),
        measures: Vec::new(),
        undecided: None,
    };
    verdicts.into_iter().map(claim).collect()
}

/// Everything went well, and nothing but the file was asked for.
fn assert_alone(visit: &Visit, url: &str) {
    assert!(visit.problems.is_empty(), "{:#?}", visit.problems);
    let others: Vec<_> = visit
        .answers
        .iter()
        .filter(|(it, _)| it != url && !it.starts_with("data:"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// Scrolls to a chart and waits until it is drawn.
fn draw(browser: &mut Browser, id: &str) {
    let state = browser.evaluate(&format!(
        "(async () => {{
            const chart = document.getElementById('{id}');
            chart.scrollIntoView({{ behavior: 'instant' }});
            while (!chart.dataset.drawn && !chart.dataset.failed && !document.documentElement.dataset.failed)
                await new Promise((go) => setTimeout(go, 20));
            await new Promise(requestAnimationFrame);
            return chart.dataset.failed ?? document.documentElement.dataset.failed ?? chart.dataset.drawn;
        }})()"
    ));
    assert_eq!(state, "yes", "{id}");
}

#[test]
fn marks_are_the_rows_of_the_journal() {
    let shown = made();
    let mut browser = Browser::start();
    let mut visit = browser.visit(&shown.url);
    for figure in &shown.report.figures {
        draw(&mut browser, &figure.id);
        let is_measured = |is_reference: bool| {
            figure.points().filter(move |(_, curve, point)| {
                curve.is_reference == is_reference && point.estimate.is_some()
            })
        };
        let counted = is_measured(false).count();
        let discarded = figure.points().flat_map(|(_, _, point)| &point.discarded);
        let discarded = discarded.filter(|mark| mark.value.is_some()).count();
        let (selector, expected) = match figure.kind {
            ChartKind::Bars => (
                ".barlayer .point path, .scatterlayer path.point",
                counted + discarded,
            ),
            ChartKind::HeatMap => (".heatmap-label", counted),
            _ => (".scatterlayer path.point", counted + discarded),
        };
        let marks = match figure.kind {
            ChartKind::Surface => browser.evaluate(&format!(
                "[...document.querySelectorAll('#{} .plot')].flatMap((plot) => [...plot._fullData[0].z.map((row) => [...row].filter(Number.isFinite).length), plot._fullData[1]?.x?.length ?? 0])
                    .reduce((sum, it) => sum + it, 0)",
                figure.id
            )),
            _ => browser.evaluate(&format!(
                "document.querySelectorAll('#{} .plot :is({selector})').length",
                figure.id
            )),
        };
        assert_eq!(marks, expected, "{}", figure.id);
    }
    while let Some(event) = browser.noted() {
        visit.note(&event);
    }
    assert_alone(&visit, &shown.url);
}

#[test]
fn a_published_value_that_stands_alone_is_a_mark() {
    let shown = made_with(|charts| charts[0].reference[0].points.truncate(1));
    let mut browser = Browser::start();
    browser.visit(&shown.url);
    let figure = &shown.report.figures[0];
    draw(&mut browser, &figure.id);
    let measured = figure.points().map(|(_, _, point)| {
        let discarded = point.discarded.iter().filter(|it| it.value.is_some());
        usize::from(point.estimate.is_some()) + discarded.count()
    });
    let marks = browser.evaluate(&format!(
        "document.querySelectorAll('#{} .plot .scatterlayer path.point').length",
        figure.id
    ));
    assert_eq!(marks, measured.sum::<usize>());
}

#[test]
fn points_say_their_values_where_they_lie() {
    let shown = made();
    let mut browser = Browser::start();
    browser.visit(&shown.url);
    let figure = &shown.report.figures[0];
    draw(&mut browser, &figure.id);
    for (curve, at) in [(0, 1), (1, 2), (3, 4)] {
        let curve = &figure.panels[0].curves[curve];
        let point = &curve.points[at];
        let center = point.estimate.expect("measured").center;
        let place = browser.evaluate(&format!(
            "(() => {{
                const plot = document.querySelector('#{} .plot'), box = plot.getBoundingClientRect();
                const {{ xaxis, yaxis }} = plot._fullLayout;
                plot.hovered = new Promise((found) => plot.once('plotly_hover', ({{ points }}) => found(
                    points.map((point) => [point.data.meta.legend, point.x, point.y, point.customdata]))));
                return [box.x + xaxis._offset + xaxis.d2p({}), box.y + yaxis._offset + yaxis.d2p({center})];
            }})()",
            figure.id, point.x
        ));
        browser.point_at(place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
        let points = browser.evaluate(&format!(
            "document.querySelector('#{} .plot').hovered",
            figure.id
        ));
        let points = points.as_array().expect("points");
        let own = points
            .iter()
            .find(|it| it[0] == curve.legend)
            .expect("the curve is under the pointer");
        assert_eq!(own[1].as_f64(), Some(point.x));
        assert_eq!(own[2].as_f64(), Some(center));
        let text = own[3].as_str().expect("text");
        let label = browser.evaluate("document.querySelector('.hoverlayer').textContent");
        assert!(
            label.as_str().expect("text").contains(text),
            "{label} has {text}"
        );
        browser.evaluate(&format!(
            "Plotly.Fx.unhover(document.querySelector('#{} .plot'))",
            figure.id
        ));
        browser.point_at(1.0, 1.0);
    }
}

/// Cells of a chart's table: numbers where they have one, else text.
fn table(browser: &mut Browser, id: &str) -> Vec<Value> {
    let rows = browser.evaluate(&format!(
        "[...document.querySelectorAll('#{id} tbody tr')].map((row) => [row.className,
            ...[...row.cells].map((cell) => {{
                const value = cell.dataset.value ?? cell.querySelector('[data-value]')?.dataset.value;
                return value === undefined ? cell.textContent : Number(value);
            }})])"
    ));
    rows.as_array().expect("rows").clone()
}

#[test]
fn tables_are_what_the_journal_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let trials = fixture::write_run(folder.path());
    let shown = made();
    let mut browser = Browser::start();
    browser.visit(&shown.url);
    let rows = table(&mut browser, &shown.report.figures[0].id);
    let of_journal = |architecture: &str, service_us: &str| {
        let wanted = trials.iter().filter(|trial| {
            let has = |name: &str, level: &str| {
                trial
                    .levels
                    .get(name)
                    .is_some_and(|it| it.to_string() == level)
            };
            trial.series == "models"
                && !trial.is_a_a
                && has("architecture", architecture)
                && has("service_us", service_us)
        });
        wanted.cloned().collect::<Vec<_>>()
    };
    let rate = |trial: &loadline_lab::journal::Trial| {
        trial
            .load
            .as_ref()
            .map(|load| load.groups[0].total.rates.completed_per_s)
    };
    let (mut cells, mut struck_out) = (0, 0);
    for row in &rows {
        let text = |at: usize| row[at].as_str().expect("text").replace(',', "");
        if text(1).starts_with("Published") {
            continue;
        }
        let trials = of_journal(&text(1), &text(2));
        if text(0) == "discarded" {
            let discarded: Vec<_> = trials
                .iter()
                .filter(|trial| !trial.discarded.is_empty())
                .collect();
            assert!(
                discarded.iter().any(|trial| rate(trial) == row[4].as_f64()),
                "{row}"
            );
            struck_out += 1;
            continue;
        }
        let mut rates: Vec<f64> = trials
            .iter()
            .filter(|trial| trial.discarded.is_empty())
            .filter_map(rate)
            .collect();
        rates.sort_by(f64::total_cmp);
        let logs: f64 = rates.iter().map(|rate| rate.ln()).sum();
        let center = (logs / rates.len() as f64).exp();
        assert_eq!(row[3].as_u64(), Some(rates.len() as u64), "{row}");
        let shown = row[4].as_f64().expect("a number");
        assert!((shown / center - 1.0).abs() < 1e-9, "{row}");
        assert_eq!(row[9].as_f64(), rates.first().copied(), "{row}");
        assert_eq!(row[10].as_f64(), rates.last().copied(), "{row}");
        cells += 1;
    }
    assert_eq!((cells, struck_out), (24, 2));
    // The data to download are the same once more.
    let link = browser.evaluate(&format!(
        "document.querySelector('#{} a[download]').href",
        shown.report.figures[0].id
    ));
    let csv = browser.evaluate(&format!("atob({link}.split(',')[1])"));
    assert_eq!(csv.as_str().expect("text").lines().count(), rows.len() + 1);
    assert!(
        csv.as_str()
            .expect("text")
            .contains(Metric::CompletedPerS.name())
    );
}

#[test]
fn where_the_client_was_the_limit_marks_are_hollow() {
    let shown = made();
    let mut browser = Browser::start();
    browser.visit(&shown.url);
    let figure = &shown.report.figures[0];
    draw(&mut browser, &figure.id);
    let is_limited = |point: &loadline_lab::report::Point| point.room.is_some();
    let rooms: Vec<f64> = (figure.points())
        .filter(|(_, _, point)| is_limited(point))
        .filter_map(|(_, _, point)| point.room)
        .collect();
    assert_eq!(rooms.len(), 1);
    let shown = browser.evaluate(&format!(
        "[...document.querySelectorAll('#{0} [data-room]')].map((it) => [Number(it.dataset.room), it.textContent.slice(0, 2), it.title.slice(0, 18)])",
        figure.id
    ));
    assert_eq!(
        shown,
        serde_json::json!([[rooms[0], "≥ ", "by CPU time up to "]])
    );
    let symbols = browser.evaluate(&format!(
        "document.querySelector('#{} .plot')._fullData.flatMap((it) => [it.marker?.symbol].flat()).filter((it) => it?.endsWith('-open')).length",
        figure.id
    ));
    assert_eq!(symbols, 1);
    let explained = browser.evaluate(&format!(
        "[...document.querySelectorAll('#{} .note')].some((it) => it.textContent.startsWith('Hollow marks'))",
        figure.id
    ));
    assert_eq!(explained, true);
}

#[test]
fn it_is_read_in_every_form() {
    let shown = made();
    let mut browser = Browser::start();
    for (look, width, scheme) in [
        ("light", 1280, "light"),
        ("dark", 1280, "dark"),
        ("narrow", 390, "light"),
        ("narrow-dark", 390, "dark"),
    ] {
        browser.show_as(width, 900, scheme);
        let visit = browser.visit(&shown.url);
        assert_alone(&visit, &shown.url);
        for figure in &shown.report.figures {
            draw(&mut browser, &figure.id);
            browser.screenshot(&format!("report-{}-{look}", figure.id));
        }
        let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(
            overflow.as_i64() <= Some(0),
            "{look}: {overflow} pixels too wide"
        );
        browser.evaluate("scrollTo({ top: 0, behavior: 'instant' })");
        browser.screenshot(&format!("report-top-{look}"));
        browser.screenshot_of_all(&format!("report-all-{look}"));
    }
    browser.show_as(794, 1123, "light");
    browser.show_as_print();
    let seen = browser.evaluate(
        "['.still', '.live', '.tools'].map((name) => [...document.querySelectorAll(name)]
            .filter((it) => it.getClientRects().length > 0).length)",
    );
    assert_eq!(seen[0], shown.report.figures.len());
    assert_eq!((&seen[1], &seen[2]), (&Value::from(0), &Value::from(0)));
    browser.screenshot_of_all("report-all-print");
}

#[test]
fn without_script_everything_is_there() {
    let shown = made();
    let mut browser = Browser::start();
    browser.disable_scripts();
    let visit = browser.visit(&shown.url);
    assert_alone(&visit, &shown.url);
    let seen = browser.evaluate(
        "['.still svg', '.live', '[data-needs-script]', 'a[download]'].map((name) => [...document.querySelectorAll(name)]
            .filter((it) => it.getClientRects().length > 0).length)",
    );
    let figures = shown.report.figures.len();
    assert_eq!(
        (&seen[0], &seen[3]),
        (&Value::from(figures), &Value::from(figures))
    );
    assert_eq!((&seen[1], &seen[2]), (&Value::from(0), &Value::from(0)));
    browser.screenshot("report-without-script");
}

#[test]
fn it_is_used_by_keyboard_and_by_ear() {
    let shown = made();
    let mut browser = Browser::start();
    browser.visit(&shown.url);
    let named = browser.evaluate(
        "[...document.querySelectorAll('.plot, .still svg')].every((it) =>
            (it.getAttribute('aria-label') ?? it.querySelector('desc').textContent).length > 20)",
    );
    assert_eq!(named, true, "every chart has its text");
    let first = &shown.report.figures[0];
    draw(&mut browser, &first.id);
    browser.evaluate(&format!(
        "document.querySelector('#{} .plot').focus()",
        first.id
    ));
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    browser.press("ArrowDown");
    let reading = browser.evaluate(&format!(
        "document.querySelector('#{} .reading').textContent",
        first.id
    ));
    let reading = reading.as_str().expect("text");
    assert!(
        reading.contains("trial") && reading.contains("100"),
        "{reading}"
    );
    // A curve that is not wanted.
    let curves = format!(
        "document.querySelectorAll('#{} .scatterlayer .trace').length",
        first.id
    );
    let before = browser.evaluate(&curves).as_u64();
    browser.evaluate(&format!(
        "(async () => {{
            const chart = document.getElementById('{}');
            delete chart.dataset.drawn;
            chart.querySelector('.legend button').click();
            while (!chart.dataset.drawn) await new Promise((go) => setTimeout(go, 10));
        }})()",
        first.id
    ));
    assert!(browser.evaluate(&curves).as_u64() < before);
    let surface = shown
        .report
        .figures
        .iter()
        .find(|it| it.kind == ChartKind::Surface)
        .expect("one");
    draw(&mut browser, &surface.id);
    let eye = format!(
        "document.querySelector('#{} .plot')._fullLayout.scene.camera.eye.x",
        surface.id
    );
    let before = browser.evaluate(&eye);
    browser.evaluate(&format!(
        "document.querySelector('#{} .plot').focus()",
        surface.id
    ));
    browser.press("ArrowRight");
    assert_ne!(browser.evaluate(&eye), before, "it was turned");
}

/// How soon a page is open, in milliseconds from the begin of a visit: its first text is painted, it
/// is loaded, and what `ready` waits for is there. Medians, lowest and highest of seven visits.
pub(crate) fn how_soon(
    browser: &mut Browser,
    url: &str,
    ready: impl Fn(&mut Browser),
) -> [String; 3] {
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..7 {
        browser.visit(url);
        ready(browser);
        let at_ms = browser.evaluate(
            "[performance.getEntriesByName('first-contentful-paint')[0].startTime,
              performance.getEntriesByType('navigation')[0].loadEventEnd,
              performance.now()]",
        );
        for (index, into) in times.iter_mut().enumerate() {
            into.push(at_ms[index].as_f64().expect("milliseconds"));
        }
    }
    times.map(|mut all| {
        all.sort_by(f64::total_cmp);
        format!("{:.0} ({:.0} to {:.0})", all[3], all[0], all[6])
    })
}

/// `cargo test -p loadline --test browser how_soon -- --ignored --nocapture`
#[test]
#[ignore = "by hand: how soon, on a quiet machine"]
fn how_soon_a_report_of_a_thousand_trials_is_open_by_hand() {
    let mut browser = Browser::start();
    for times in [1, 3] {
        let shown = made_of(times, |_| ());
        let first = &shown.report.figures[0].id;
        let [painted, loaded, drawn] =
            how_soon(&mut browser, &shown.url, |browser| draw(browser, first));
        let _ = writeln!(
            io::stderr(),
            "{} trials: painted after {painted} ms, loaded after {loaded} ms, \
             the first chart drawn after {drawn} ms",
            shown.trials
        );
    }
}
