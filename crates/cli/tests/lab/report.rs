//! Reports of real runs: made, found to be true, and found to be false once something was changed.

use std::fs;
use std::process::Output;

use crate::bench::{Bench, said};
use crate::program::run;

const PLAN: &str = "name = \"t\"\ntitle = \"Loops\"\nfiles = { \"index.html\" = 93 }\n\
    [servers.loadline]\noptions = { workers = 0 }\n\
    [[series]]\nname = \"s\"\npath = \"/index.html\"\nreplicates = 2\nduration_s = 0.3\n\
    warm_up_s = 0.2\nload = { connections = 2, rate = 400 }\nfactors = { loops = [1, 2] }\n\
    allow = { client_limited = true, steal = 1, others = 1 }\n\
    [[chart]]\nseries = \"s\"\nx = \"loops\"\n\
    [[chart]]\nseries = \"s\"\nkind = \"spectrum\"\nmetric = \"p50_us\"\n";

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_report_is_made_of_a_run_and_is_true() {
    let bench = Bench::new(PLAN);
    bench.complete();
    let folder = bench.out();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (figures, csv, json) = (path("figures"), path("trials.csv"), path("data.json"));
    let out = folder.to_str().unwrap();
    let options = ["--figures", &figures, "--csv", &csv, "--json", &json];
    let output = run(&[&["lab", "report", out][..], &options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = fs::read_to_string(path("report.html")).unwrap();
    assert!(page.contains("<h1>Loops</h1>"));
    assert_eq!(fs::read_dir(&figures).unwrap().count(), 2);
    let trials = bench.journal().trials.len();
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), trials + 1);
    assert!(
        fs::read_to_string(json)
            .unwrap()
            .contains("\"loadline-report/1\"")
    );

    let output = run(&["lab", "verify", out]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        printed(&output).contains("everything is the same"),
        "{}",
        printed(&output)
    );

    let center = page.find("\"center\":").unwrap() + 9;
    let changed = page[..center].to_owned() + "1" + &page[center..];
    fs::write(path("report.html"), changed).unwrap();
    let output = run(&["lab", "verify", out]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        printed(&output).contains("differs: report.figures[0]"),
        "{}",
        printed(&output)
    );
}

#[test]
fn what_was_measured_is_advised_on_and_nothing_else() {
    let plan = PLAN
        .replace("replicates = 2", "replicates = 6\na_a = false") // half of them is enough
        .replace("loops = [1, 2]", "loops = [1, 2], connections = [1, 2]")
        .replace("options = {", "options = { architecture = \"reactor\",");
    let bench = Bench::new(&plan);
    bench.complete();
    let folder = bench.out();
    let (out, json) = (folder.to_str().unwrap(), folder.join("advice.json"));
    let asked = ["lab", "advise", out, "--for", "connections=2"];
    let output = run(&[&asked[..], &["--json", json.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = printed(&output);
    for part in [
        "For connections = 2: ",
        "; on 1 CPU\n",
        "Start it with\n  loadline serve DIR --listen=127.0.0.1:8080 --architecture=reactor --loops=",
        " --workers=0\n",
        "Rests on series s, connections = 2, ",
        " blocks of trials",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Which of them it is, the machine decides.
    let tied = "Not distinguishable from loops = ";
    let ahead = "Runner-up: loops = ";
    assert!(page.contains(tied) != page.contains(ahead), "{page}");
    // The first line names no winner that is not distinguishable from another.
    let first = page.lines().next().unwrap_or_default();
    let is_undecided = first.contains("none is distinguishably the best");
    assert_eq!(is_undecided, page.contains(tied), "{page}");
    assert!(
        fs::read_to_string(json)
            .unwrap()
            .contains("\"goal\": \"throughput\"")
    );

    for (workload, why) in [
        ("connections=1000", "connections = 1000 was not measured"),
        ("moon=1", "moon was not varied in this series"),
        (
            "loops=1",
            "connections was varied: right would be to name it, one of 1, 2",
        ),
    ] {
        let output = run(&["lab", "advise", out, "--for", workload]);
        assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    let output = run(&["lab", "advise", out, "--for", "connections"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("as in service_us=200"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_folder_without_a_run_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["report", "verify", "advise"] {
        let output = run(&["lab", command, folder.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("right would be the folder of a run"),
            "{}",
            said(&output)
        );
        let output = run(&["lab", command]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains(&format!("loadline lab {command} RUN")),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn runs_are_written_on_one_page_with_their_first_charts() {
    let bench = Bench::new(PLAN);
    bench.complete();
    let folder = bench.out();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (out, page, readme) = (folder.to_str().unwrap(), path("all.md"), path("README.md"));
    let words = [
        "lab", "results", out, out, "--out", &page, "--readme", &readme,
    ];
    fs::write(&readme, "# Mine\n").unwrap();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("no place for it; right would be"),
        "{}",
        said(&output)
    );

    let marks =
        "# Mine\n<!-- ./x bench papers -->\nold\n<!-- end of what the papers came to -->\nrest\n";
    fs::write(&readme, marks).unwrap();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = fs::read_to_string(&page).unwrap();
    let (_, section) = text.split_once("## t: loops\n\n").expect(&text);
    let (sentence, picture) = section.split_once("\n\n").expect(&text);
    let words = format!("![Completed requests by loops. {sentence}]");
    assert!(picture.starts_with(&words), "{text}");
    assert!(text.contains("](all/t.svg)"), "{text}");
    assert!(
        fs::read_to_string(path("all/t.svg"))
            .unwrap()
            .starts_with("<svg")
    );
    let text = fs::read_to_string(&readme).unwrap();
    assert!(text.contains("| t: loops | 0 | 0 | 0 | 0 | 6 | "), "{text}");
    assert!(text.contains("[All claims](all.md)"), "{text}");
    assert!(
        !text.contains("old") && text.ends_with("to -->\nrest\n"),
        "{text}"
    );
}

/// They fell out of the page and of the summary; pictures of none stayed.
#[test]
fn papers_of_which_no_trials_are_kept_stay_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, readme) = (path("all.md"), path("README.md"));
    let before = "# Old\n\n| | n |\n|---|---:|\n| P1: one | 7 |\n| P3: three | 1 |\n\n\
        ## P1: one\n\n![One](all/P1.svg)\n\n## P3: three\n\nOld.\n\n## P5: five\n\nFifth.\n";
    fs::write(&page, before).unwrap();
    let marks =
        "<!-- ./x bench papers -->\n| P5: five | 5 |\n<!-- end of what the papers came to -->\n";
    fs::write(&readme, marks).unwrap();
    fs::create_dir(path("all")).unwrap();
    for name in ["all/P1.svg", "all/P3-gone.svg", "all/mine.svg"] {
        fs::write(path(name), "<svg/>").unwrap();
    }
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/papers-results/P3.jsonl"
    );
    let output = run(&[
        "lab", "results", kept, "--out", &page, "--readme", &readme, "--title", "New",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let [page, readme] = [page, readme].map(|file| fs::read_to_string(file).unwrap());
    for text in [&page, &readme] {
        let rows = ["| P1: one | 7 |", "\n| P3: ", "\n| P5: five | 5 |"];
        let at = rows.map(|row| text.find(row).expect(text));
        assert!(at.is_sorted() && !text.contains("| P3: three |"), "{text}");
    }
    let headings = ["\n## P1: one\n", "\n## P3: ", "\n## P5: five\n\nFifth.\n"];
    let at = headings.map(|heading| page.find(heading).expect(&page));
    assert!(at.is_sorted() && !page.contains("\nOld.\n"), "{page}");
    let is_there = |name| fs::exists(path(name)).unwrap();
    assert!(is_there("all/P1.svg") && is_there("all/mine.svg") && is_there("all/P3-claims.svg"));
    assert!(!is_there("all/P3-gone.svg"));
}

#[test]
fn what_cannot_be_kept_of_a_paper_is_refused_before_it_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().to_str().unwrap();
    let file = folder.path().join("P4.jsonl");
    fs::write(&file, "{}\n").unwrap();
    let paper = |words: &[&str]| run(&[&["lab", "paper", "--keep", kept][..], words].concat());
    let in_full = "right would be --full, without --focus, --seconds and --replicates";
    let form = "line 1: its form is ; right would be loadline-paper/1";
    for (words, right) in [
        (&["P1", "--only", "soak"][..], in_full),
        (&["P1", "--full", "--seconds", "1"], in_full),
        (
            &["P1", "--full", "--only", "best"],
            "P1: a claim takes best and shared together; right would be --only best,shared",
        ),
        (&["P4", "--full"], form),
    ] {
        let output = paper(words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(right), "{}", said(&output));
    }
    let page = folder.path().join("page.md");
    let [file, page] = [&file, &page].map(|path| path.to_str().unwrap());
    let output = run(&["lab", "results", file, "--out", page]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(form), "{}", said(&output));
}
