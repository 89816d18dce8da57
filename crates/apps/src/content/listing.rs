//! A directory as a page: sortable by links that need no script, light or dark as the reader's
//! system is.
//!
//! Names are whatever the file system holds, so every one is escaped twice over: percent-encoded
//! as a link, as HTML for the eye. Links begin with `./`, so that no name can pass for a scheme.

use std::cmp::Ordering;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use loadline_base::sorting;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as the file system has it.
    pub name: Vec<u8>,
    /// Whether it is a directory (or a link to one).
    pub is_directory: bool,
    /// Length in bytes; not shown for a directory.
    pub size: u64,
    /// When it last changed, in seconds since 1970.
    pub modified_seconds: u64,
}

/// What the entries are sorted by. Directories come first in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// By name, ignoring the case of ASCII letters.
    #[default]
    Name,
    /// By size.
    Size,
    /// By time of the last change.
    Time,
}

impl SortKey {
    /// Each with its value in a query and its title.
    const COLUMNS: [(Self, &'static str, &'static str); 3] = [
        (Self::Name, "name", "Name"),
        (Self::Size, "size", "Size"),
        (Self::Time, "time", "Changed"),
    ];
}

/// How the entries are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// Largest, latest or last first.
    pub descending: bool,
}

impl Sort {
    /// Reads `sort=name|size|time` and `order=asc|desc`; anything else is ignored.
    #[must_use]
    pub fn from_query(query: Option<&[u8]>) -> Self {
        let mut sort = Self::default();
        for pair in query.unwrap_or_default().split(|byte| *byte == b'&') {
            match pair {
                b"sort=name" => sort.key = SortKey::Name,
                b"sort=size" => sort.key = SortKey::Size,
                b"sort=time" => sort.key = SortKey::Time,
                b"order=asc" => sort.descending = false,
                b"order=desc" => sort.descending = true,
                _ => {}
            }
        }
        sort
    }

    /// What the header of the column `key` leads to: the other way round where it is sorted by
    /// already, else the end that is mostly looked for (first names, largest, latest).
    fn next(self, key: SortKey) -> Self {
        let descending = if key == self.key {
            !self.descending
        } else {
            key != SortKey::Name
        };
        Self { key, descending }
    }

    fn compare(self, one: &Entry, other: &Entry) -> Ordering {
        let by_key = match self.key {
            SortKey::Name => by_name(one, other),
            SortKey::Size if one.is_directory => Ordering::Equal,
            SortKey::Size => one.size.cmp(&other.size),
            SortKey::Time => one.modified_seconds.cmp(&other.modified_seconds),
        };
        let by_key = if self.descending {
            by_key.reverse()
        } else {
            by_key
        };
        let directories_first = other.is_directory.cmp(&one.is_directory);
        directories_first
            .then(by_key)
            .then_with(|| by_name(one, other))
    }
}

/// By name without regard to case; where that is equal, by the bytes. Names differ, so the order is
/// total.
fn by_name(one: &Entry, other: &Entry) -> Ordering {
    let one_folded = one.name.iter().map(u8::to_ascii_lowercase);
    let other_folded = other.name.iter().map(u8::to_ascii_lowercase);
    one_folded
        .cmp(other_folded)
        .then_with(|| one.name.cmp(&other.name))
}

/// Most entries that a page shows.
pub const ENTRIES_MAX: usize = 10_000;

/// The page (UTF-8 HTML) of the directory `relative` (see `SitePath::relative`). All links are
/// relative, so it works below any prefix, provided it is served under a trailing slash.
///
/// `more`: the caller stopped reading before the directory's end; the page says so, as it does when
/// it cuts the entries itself at `ENTRIES_MAX`.
#[must_use]
pub fn page(relative: &[u8], mut entries: Vec<Entry>, sort: Sort, more: bool) -> Vec<u8> {
    sorting::sort_by(&mut entries, |one, other| sort.compare(one, other));
    let is_cut = more || entries.len() > ENTRIES_MAX;
    entries.truncate(ENTRIES_MAX);

    let mut out = String::with_capacity(2048 + relative.len() * 4 + entries.len() * 256);
    out.push_str(HEAD);
    out.push_str("<title>/");
    escape(relative, &mut out);
    out.push_str("</title>\n");
    out.push_str(STYLE);
    out.push_str("<main>\n");
    breadcrumb(relative, &mut out);
    out.push_str("<table>\n<thead><tr>");
    for each in SortKey::COLUMNS {
        column(each, sort, &mut out);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    if !relative.is_empty() {
        out.push_str("<tr class=\"up\"><td><a href=\"../\">Parent directory</a><td><td>\n");
    }
    for entry in &entries {
        row(entry, &mut out);
    }
    out.push_str("</tbody>\n</table>\n");
    footer(&entries, is_cut, &mut out);
    out.push_str("</main>\n</html>\n");
    out.into_bytes()
}

fn breadcrumb(relative: &[u8], out: &mut String) {
    let names: Vec<_> = relative
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .collect();
    let up = |levels: usize| match levels {
        0 => "./".to_owned(),
        _ => "../".repeat(levels),
    };
    out.push_str("<h1><a href=\"");
    out.push_str(&up(names.len()));
    out.push_str("\" title=\"Start\">/</a>");
    for (index, name) in names.iter().enumerate() {
        let levels = names.len() - 1 - index;
        let _ = write!(out, " <a href=\"{}\"><bdi>", up(levels)); // a String takes all
        escape(name, out);
        out.push_str("</bdi></a>/");
    }
    out.push_str("</h1>\n");
}

fn column((key, value, title): (SortKey, &str, &str), sort: Sort, out: &mut String) {
    let next = sort.next(key);
    let (aria, arrow) = match (key == sort.key, sort.descending) {
        (false, _) => ("none", ""),
        (true, false) => ("ascending", " \u{2191}"),
        (true, true) => ("descending", " \u{2193}"),
    };
    let order = if next.descending { "desc" } else { "asc" };
    let _ = write!(
        out,
        "<th aria-sort=\"{aria}\"><a href=\"?sort={value}&amp;order={order}\">{title}{arrow}</a>"
    );
}

fn row(entry: &Entry, out: &mut String) {
    let slash = if entry.is_directory { "/" } else { "" };
    let class = if entry.is_directory { "dir" } else { "file" };
    let _ = write!(out, "<tr class=\"{class}\"><td><a href=\"./");
    out.extend(percent_encode(&entry.name, LINK_ESCAPED));
    let _ = write!(out, "{slash}\"><bdi>");
    escape(&entry.name, out);
    let _ = write!(out, "</bdi>{slash}</a>");
    if entry.is_directory {
        out.push_str("<td>");
    } else {
        let _ = write!(out, "<td title=\"{} bytes\">", entry.size);
        write_size(entry.size, out);
    }
    out.push_str("<td>");
    write_time(entry.modified_seconds, out);
    out.push('\n');
}

fn footer(entries: &[Entry], is_cut: bool, out: &mut String) {
    let directories = entries.iter().filter(|entry| entry.is_directory).count();
    let files = entries.len() - directories;
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    if entries.is_empty() {
        out.push_str("<p>Nothing here.</p>\n");
    } else {
        let _ = write!(out, "<p>{files} file{}", plural(files));
        match directories {
            0 => {}
            1 => out.push_str(", 1 directory"),
            several => drop(write!(out, ", {several} directories")),
        }
        out.push_str("</p>\n");
    }
    if is_cut {
        let _ = writeln!(
            out,
            "<p class=\"cut\">There is more here than this page shows: it ends after {} entries.</p>",
            entries.len()
        );
    }
}

/// All but what RFC 3986 calls unreserved, so that a link needs no escaping as HTML.
const LINK_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A name for the eye: no markup, nothing invisible, bytes that are no UTF-8 as U+FFFD.
fn escape(name: &[u8], out: &mut String) {
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            hidden if hidden.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

/// As people read sizes: three digits and a unit, cut off rather than rounded up.
fn write_size(bytes: u64, out: &mut String) {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (0..UNITS.len() - 1)
        .take_while(|unit| bytes >> (10 * (unit + 1)) > 0)
        .count();
    let whole = bytes >> (10 * unit);
    let _ = if unit == 0 || whole >= 100 {
        write!(out, "{whole} {}", UNITS[unit])
    } else {
        let tenths = (bytes >> (10 * (unit - 1)) & 1023) * 10 / 1024;
        write!(out, "{whole}.{tenths} {}", UNITS[unit])
    };
}

/// `2026-11-21 07:30`, in universal time, which a page without script cannot turn into local.
fn write_time(seconds: u64, out: &mut String) {
    const YEAR_9999: u64 = 253_402_300_799;
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let date = UNIX_EPOCH + Duration::from_secs(seconds.min(YEAR_9999));
    let imf = httpdate::fmt_http_date(date); // "Sun, 06 Nov 1994 08:49:37 GMT"
    let month = MONTHS.find(&imf[8..11]).unwrap_or_default() / 3 + 1;
    let (year, day, clock) = (&imf[12..16], &imf[5..7], &imf[17..22]);
    let _ = write!(
        out,
        "<time datetime=\"{year}-{month:02}-{day}T{clock}Z\">{year}-{month:02}-{day} {clock}</time>"
    );
}

const HEAD: &str = include_str!("listing/head.html");
const STYLE: &str = include_str!("listing/style.html");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(name: &str, size: u64, modified_seconds: u64) -> Entry {
        Entry {
            name: name.into(),
            is_directory: false,
            size,
            modified_seconds,
        }
    }

    fn directory(name: &str, modified_seconds: u64) -> Entry {
        Entry {
            is_directory: true,
            ..file(name, 4096, modified_seconds)
        }
    }

    fn text(relative: &str, entries: Vec<Entry>, sort: Sort) -> String {
        String::from_utf8(page(relative.as_bytes(), entries, sort, false)).unwrap()
    }

    /// What the links to entries lead to, in order.
    fn links(page: &str) -> Vec<&str> {
        let rows = page.split("<td><a href=\"./").skip(1);
        rows.filter_map(|row| row.split('"').next()).collect()
    }

    #[test]
    fn table_of_queries() {
        let sort = |key, descending| Sort { key, descending };
        for (query, expected) in [
            (None, sort(SortKey::Name, false)),
            (Some(""), sort(SortKey::Name, false)),
            (Some("sort=size"), sort(SortKey::Size, false)),
            (Some("sort=size&order=desc"), sort(SortKey::Size, true)),
            (Some("order=desc&sort=time"), sort(SortKey::Time, true)),
            (Some("order=desc"), sort(SortKey::Name, true)),
            (Some("sort=time&order=asc&x"), sort(SortKey::Time, false)),
            (Some("sort=nosuch&order=up"), sort(SortKey::Name, false)),
            (Some("sort=&order="), sort(SortKey::Name, false)),
            (Some("&&sort=size&&"), sort(SortKey::Size, false)),
        ] {
            assert_eq!(
                Sort::from_query(query.map(str::as_bytes)),
                expected,
                "{query:?}"
            );
        }
    }

    #[test]
    fn sorted_by_each_key_both_ways_with_directories_first() {
        let entries = vec![
            file("b.txt", 10, 300),
            file("A.txt", 30, 100),
            file("a.txt", 10, 200),
            directory("z", 10),
            directory("y", 20),
        ];
        for (query, expected) in [
            ("", "y/ z/ A.txt a.txt b.txt"),
            ("order=desc", "z/ y/ b.txt a.txt A.txt"),
            ("sort=size", "y/ z/ a.txt b.txt A.txt"),
            ("sort=size&order=desc", "y/ z/ A.txt a.txt b.txt"),
            ("sort=time", "z/ y/ A.txt a.txt b.txt"),
            ("sort=time&order=desc", "y/ z/ b.txt a.txt A.txt"),
        ] {
            let sort = Sort::from_query(Some(query.as_bytes()));
            let backwards = entries.iter().rev().cloned().collect();
            for entries in [entries.clone(), backwards] {
                let shown = links(&text("", entries, sort)).join(" ");
                assert_eq!(shown, expected, "{query}");
            }
        }
    }

    #[test]
    fn headers_lead_to_the_other_order() {
        let sort = Sort::from_query(Some(b"sort=size&order=desc"));
        let page = text("", vec![], sort);
        for header in [
            r#"<th aria-sort="none"><a href="?sort=name&amp;order=asc">Name</a>"#,
            r#"<th aria-sort="descending"><a href="?sort=size&amp;order=asc">Size ↓</a>"#,
            r#"<th aria-sort="none"><a href="?sort=time&amp;order=desc">Changed</a>"#,
        ] {
            assert!(page.contains(header), "{header} in {page}");
        }
        let page = text("", vec![], Sort::default());
        let header = r#"<th aria-sort="ascending"><a href="?sort=name&amp;order=desc">Name ↑</a>"#;
        assert!(page.contains(header));
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let entries = vec![
            file("<script>alert(1)</script>", 1, 0),
            file("\" onclick='x'&amp;", 1, 0),
            file("javascript:alert(1)", 1, 0),
            file("a b?c#d%41\\e", 1, 0),
            file("line\nbreak", 1, 0),
        ];
        let page = text("<i>/\"x'", entries, Sort::default());
        for bad in [
            "<script",
            "<i>",
            "\"x'",
            "onclick='",
            "\"javascript:",
            "line\nbreak",
        ] {
            assert!(!page.contains(bad), "{bad}");
        }
        for good in [
            "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>",
            "href=\"./%3Cscript%3Ealert%281%29%3C%2Fscript%3E\"",
            "href=\"./%22%20onclick%3D%27x%27%26amp%3B\"",
            "<bdi>&quot; onclick=&#39;x&#39;&amp;amp;</bdi>",
            "href=\"./javascript%3Aalert%281%29\"",
            "href=\"./a%20b%3Fc%23d%2541%5Ce\"",
            "<bdi>line\u{fffd}break</bdi>",
            "<title>/&lt;i&gt;/&quot;x&#39;</title>",
        ] {
            assert!(page.contains(good), "{good}");
        }
    }

    #[test]
    fn ways_up() {
        let page = text("a/b c", vec![], Sort::default());
        assert!(page.contains("<td><a href=\"../\">Parent directory</a>"));
        let crumbs = "<h1><a href=\"../../\" title=\"Start\">/</a> <a href=\"../\"><bdi>a</bdi></a>/ \
                      <a href=\"./\"><bdi>b c</bdi></a>/</h1>";
        assert!(page.contains(crumbs), "{page}");
        let root = text("", vec![], Sort::default());
        assert!(!root.contains("Parent directory") && !root.contains("../"));
        assert!(root.contains("<h1><a href=\"./\" title=\"Start\">/</a></h1>"));
        assert!(root.contains("Nothing here."));
    }

    #[test]
    fn a_cut_listing_says_so() {
        let entries = |count: usize| (0..count).map(|i| file(&i.to_string(), 1, 0)).collect();
        let whole = text("", entries(ENTRIES_MAX), Sort::default());
        assert!(!whole.contains("class=\"cut\"") && links(&whole).len() == ENTRIES_MAX);
        let cut = text("", entries(ENTRIES_MAX + 1), Sort::default());
        assert!(cut.contains("class=\"cut\"") && links(&cut).len() == ENTRIES_MAX);
        let more = page(b"", entries(3), Sort::default(), true);
        assert!(
            String::from_utf8(more)
                .unwrap()
                .contains("ends after 3 entries")
        );
    }

    #[test]
    fn table_of_sizes() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_399, "99.9 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1023 KiB"),
            (1_048_576, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            let mut out = String::new();
            write_size(bytes, &mut out);
            assert_eq!(out, expected, "{bytes}");
        }
    }

    #[test]
    fn table_of_times() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (784_111_777, "1994-11-06 08:49"),
            (951_782_400, "2000-02-29 00:00"),
            (1_798_761_599, "2026-12-31 23:59"),
            (u64::MAX, "9999-12-31 23:59"),
        ] {
            let mut out = String::new();
            write_time(seconds, &mut out);
            assert!(out.ends_with(&format!(">{expected}</time>")), "{out}");
            let machine = expected.replace(' ', "T");
            assert!(out.contains(&format!("datetime=\"{machine}Z\"")), "{out}");
        }
    }

    proptest! {
        #[test]
        fn a_link_leads_back_to_its_name(
            name in proptest::collection::vec(any::<u8>(), 1..20).prop_filter("no name", |name| {
                name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/' | b'\\'))
            }),
        ) {
            let entry = Entry { name: name.clone(), ..file("", 1, 0) };
            let page = page(b"", vec![entry], Sort::default(), false);
            let page = String::from_utf8(page).unwrap();
            let link = format!("/{}", links(&page)[0]);
            let mut buffer = Vec::new();
            let decoded = crate::content::path::decode(link.as_bytes(), &mut buffer).unwrap();
            prop_assert_eq!(decoded.relative(), &name[..]);
        }
    }
}
