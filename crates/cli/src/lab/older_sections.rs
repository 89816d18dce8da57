//! What a page of results keeps of the one before: sections of papers of which no trials are kept.

use std::fmt::Write as _;

use loadline_papers::PAPERS;

/// What stands before the name of a run in the heading of its section, and in its row of the summary.
const HEADING: &str = "## ";
const ROW: &str = "| ";

const NOTE: &str = "\
Sections of papers of which no trials are kept are as they were on this page before, by the plans, claims \
and rules of their day.";

/// The page and its summary with what is said of other papers on the page before, all in the papers'
/// order; `None`: nothing is. A row that is not on that page may be in the summary before, `readme`.
pub(super) fn with_older(
    page: &str,
    summary: &str,
    before: &str,
    readme: &str,
) -> Option<(String, String)> {
    let (head, mut sections) = split(page);
    let (head_before, mut older) = split(before);
    let new: Vec<&str> = sections
        .iter()
        .filter_map(|section| paper(section, HEADING))
        .collect();
    older.retain(|section| paper(section, HEADING).is_some_and(|name| !new.contains(&name)));
    if older.is_empty() {
        return None;
    }
    // What it says behind the summary is of the claims of all papers.
    let introduction = head.split(summary.trim_end()).next().unwrap_or(head);
    let is_row = |line: &&str| paper(line, ROW).is_some();
    let (mut rows, mut lines): (Vec<&str>, Vec<&str>) = summary.lines().partition(is_row);
    for section in &older {
        let name = paper(section, HEADING);
        let mut lines_before = head_before.lines().chain(readme.lines());
        rows.extend(lines_before.find(|line| paper(line, ROW) == name));
    }
    rows.sort_by(|a, b| paper(a, ROW).cmp(&paper(b, ROW)));
    lines.append(&mut rows);
    let summary = format!("{}\n", lines.join("\n"));
    sections.append(&mut older);
    sections.sort_by(|a, b| paper(a, HEADING).cmp(&paper(b, HEADING)));
    let mut page = format!("{}\n\n{NOTE}\n\n{summary}", introduction.trim_end());
    for section in sections {
        let _ = write!(page, "\n{section}\n");
    }
    Some((page, summary))
}

/// What stands before the first section of a page, and its sections, each from its heading on.
fn split(page: &str) -> (&str, Vec<&str>) {
    let mut begins = Vec::new();
    let (mut at, mut is_code) = (0, false);
    for line in page.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with(HEADING) {
            begins.push(at);
        }
        at += line.len();
    }
    let head = begins.first().map_or(page, |begin| &page[..*begin]);
    let ends = begins.iter().skip(1).copied().chain([page.len()]);
    let sections = begins.iter().zip(ends);
    let sections = sections.map(|(begin, end)| page[*begin..end].trim_end());
    (head.trim_end(), sections.collect())
}

/// The paper that a line is of, which begins with `mark` and its name.
fn paper<'t>(line: &'t str, mark: &str) -> Option<&'t str> {
    let (name, _) = line.strip_prefix(mark)?.split_once(": ")?;
    let is_known = PAPERS.iter().any(|paper| paper.name == name);
    is_known.then_some(name)
}

/// Whether pictures of papers have such names: P1.svg, P1-claims.svg.
pub(super) fn is_picture(file: &str) -> bool {
    let Some(stem) = file.strip_suffix(".svg") else {
        return false;
    };
    let names = PAPERS.map(|paper| paper.name);
    let mut behind = names.iter().filter_map(|name| stem.strip_prefix(*name));
    behind.any(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Papers\n\nOld words.\n\n| | n |\n|---|---:|\n| P1: one | 7 |\n\
        | P3: three | 1 |\n\nOf all claims 8.\n\n## P1: one\n\nFirst.\n\n```console\n## P2: no heading\n```\n\n\
        ## P3: three\n\nOld.\n\n## Other: words\n\nNot a paper.\n\n## P5: five\n\nFifth.\n";

    #[test]
    fn papers_without_trials_keep_their_sections_and_rows_in_order() {
        let summary = "| | n |\n|---|---:|\n| P4: four | 4 |\n| P3: three | 2 |\n";
        let page = format!(
            "# Papers\n\nWords.\n\n{summary}\nOf all claims 6.\n\n## P4: four\n\nFourth.\n\n## P3: three\n\nNew.\n"
        );
        let readme = "| P1: one | 9 |\n| P5: five | 5 |\n";
        let (page, summary) = with_older(&page, summary, BEFORE, readme).unwrap();
        let rows = "| | n |\n|---|---:|\n| P1: one | 7 |\n| P3: three | 2 |\n| P4: four | 4 |\n| P5: five | 5 |\n";
        assert_eq!(summary, rows);
        let sections = "## P1: one\n\nFirst.\n\n```console\n## P2: no heading\n```\n\n\
            ## P3: three\n\nNew.\n\n## P4: four\n\nFourth.\n\n## P5: five\n\nFifth.\n";
        let expected = format!("# Papers\n\nWords.\n\n{NOTE}\n\n{rows}\n{sections}");
        assert_eq!(page, expected);
        // Written again, it stays the same.
        let alone = "# Papers\n\nWords.\n\n## P3: three\n\nNew.\n";
        let again = with_older(alone, "| | n |\n|---|---:|\n| P3: three | 2 |\n", &page, "");
        assert_eq!(again, Some((page, summary)));
    }

    #[test]
    fn a_page_of_which_nothing_is_older_is_as_it_is() {
        let page = "# Papers\n\n## P3: three\n\nNew.\n";
        for before in ["", "# Papers\n\n## P3: three\n\nOld.\n\n## Mine: words\n"] {
            assert_eq!(with_older(page, "", before, "| P1: one | 9 |\n"), None);
        }
    }

    #[test]
    fn only_pictures_of_papers_have_their_names() {
        for (file, is_one) in [
            ("P1.svg", true),
            ("P5-fig-24.svg", true),
            ("P12.svg", false),
            ("P6.svg", false),
            ("mine.svg", false),
            ("P1.jsonl", false),
            ("P1.svg.part", false),
        ] {
            assert_eq!(is_picture(file), is_one, "{file}");
        }
    }
}
