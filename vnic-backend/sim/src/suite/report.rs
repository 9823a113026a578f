//! The report of the suite: Markdown and pictures. The same outcomes make the same bytes.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::runner::{Done, Verdict};
use super::{Kind, Picture};
use crate::plot::panels::{self, Run};
use crate::plot::{self, Chart};

/// Name of the page; the folder of its pictures is named like it.
pub const PAGE: &str = "congestion-results.md";
const FOLDER: &str = "congestion-results";

const HEAD: &str = "\
# Congestion control: published results, run again

Written by `vnic-sim suite --report docs`; not by hand. Each case runs the product's engine and switch in virtual time (see
[simulator.md](simulator.md)) and compares what comes out with what was published. A row that differs for a reason that is known
says **differs** and is no pass; the reason is below the table.
";

/// Writes the page and its pictures into a folder. `note` is a line about the run: machine, duration.
pub fn write(folder: &Path, done: &[Done], note: Option<&str>) -> Result<()> {
    let pictures = folder.join(FOLDER);
    std::fs::create_dir_all(&pictures).with_context(|| format!("cannot make {}", pictures.display()))?;
    for old in std::fs::read_dir(&pictures).context("cannot list pictures")? {
        let path = old.context("cannot list pictures")?.path();
        if path.extension().is_some_and(|e| e == "svg") {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    for one in done {
        for (number, picture) in one.case.about.pictures.iter().enumerate() {
            if let Some(chart) = chart(one, picture) {
                let path = pictures.join(file(one, number));
                plot::write(&path, &[chart])?;
            }
        }
    }
    let path = folder.join(PAGE);
    std::fs::write(&path, page(done, note)).with_context(|| format!("cannot write {}", path.display()))
}

fn file(done: &Done, number: usize) -> String {
    format!("{}-{}.svg", done.case.about.id.to_lowercase(), number + 1)
}

/// The chart of a picture, if its scenarios have what it shows.
fn chart(done: &Done, picture: &Picture) -> Option<Chart> {
    let runs: Vec<Run<'_>> = picture
        .of
        .iter()
        .filter_map(|(number, name)| {
            Some(Run {
                name,
                scenario: done.scenarios.get(*number)?,
                outcome: done.outcomes.get(*number)?,
            })
        })
        .collect();
    match picture.kind {
        Kind::Rates => panels::rates(&picture.title, &runs),
        Kind::Throughput => panels::throughput(&picture.title, &runs),
        Kind::Queue => panels::queue(&picture.title, &runs),
        Kind::QueueDistribution => panels::queue_distribution(&picture.title, &runs),
        Kind::Slowdown => panels::slowdown(&picture.title, &runs),
        Kind::Signals => panels::signals(&picture.title, runs.first()?),
    }
}

/// What is said of a case as a whole.
pub fn summary(done: &Done) -> &'static str {
    match (done.good(), done.passed() == done.checks.len()) {
        (true, true) => "pass",
        (true, false) => "differs",
        (false, _) => "FAIL",
    }
}

/// Heading of a case.
pub fn heading(id: &str, title: &str) -> String {
    format!("## {id}: {title}")
}

/// The page.
pub fn page(done: &[Done], note: Option<&str>) -> String {
    let mut text = HEAD.to_owned();
    let rows: usize = done.iter().map(|d| d.checks.len()).sum();
    let passed: usize = done.iter().map(Done::passed).sum();
    let differs: usize = done.iter().map(|d| differences(d).count()).sum();
    let _ = write!(
        text,
        "\n{passed} of {rows} rows pass, {differs} differ for a reason that is known, {} fail.\n",
        rows - passed - differs
    );
    if let Some(note) = note {
        let _ = write!(text, "\n{note}\n");
    }
    text.push_str("\n| case | what | rows that pass | |\n|---|---|---|---|\n");
    for one in done {
        let case = &one.case;
        let anchor = anchor(&heading(&case.about.id, &case.about.title));
        let _ = writeln!(
            text,
            "| [{}](#{anchor}) | {} | {} of {} | {} |",
            case.about.id,
            cell(&case.about.title),
            one.passed(),
            one.checks.len(),
            summary(one)
        );
    }
    for one in done {
        case(&mut text, one);
    }
    text
}

fn differences(done: &Done) -> impl Iterator<Item = (&str, &str)> {
    done.checks.iter().filter_map(|(check, verdict)| match verdict {
        Verdict::Differs(why) => Some((check.what.as_str(), why.as_str())),
        _ => None,
    })
}

fn case(text: &mut String, done: &Done) {
    let case = &done.case;
    let _ = write!(
        text,
        "\n{}\n\nSource: {}.\n\n| what | published | accepted | measured | |\n|---|---|---|---|---|\n",
        heading(&case.about.id, &case.about.title),
        case.about.source.trim_end_matches('.')
    );
    for (check, verdict) in &done.checks {
        let word = match verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "**FAIL**",
            Verdict::Differs(_) => "**differs**",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {word} |",
            cell(&check.what),
            cell(&check.published),
            cell(&check.accepted),
            cell(&check.measured)
        );
    }
    let mut said: Vec<&str> = Vec::new();
    for (what, why) in differences(done) {
        if !said.contains(&why) {
            said.push(why);
            let _ = write!(text, "\nDiffers ({what}): {why}\n");
        }
    }
    if !case.about.remarks.trim().is_empty() {
        let _ = write!(text, "\n{}\n", case.about.remarks.trim());
    }
    for (number, picture) in case.about.pictures.iter().enumerate() {
        if chart(done, picture).is_some() {
            let _ = write!(text, "\n![{}]({FOLDER}/{})\n", picture.title, file(done, number));
        }
    }
}

/// What stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The anchor that readers of Markdown give to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::runner::tests::{made, made_up_case};
    use super::*;

    #[test]
    fn the_page_says_what_was_measured() {
        let done = made(&[made_up_case()], 2);
        let page = page(&done, Some("Two cores."));
        expect_test::expect![[r#"

            1 of 3 rows pass, 1 differ for a reason that is known, 1 fail.

            Two cores.

            | case | what | rows that pass | |
            |---|---|---|---|
            | [M1](#m1-made-up) | Made up | 1 of 3 | FAIL |

            ## M1: Made up

            Source: nobody.

            | what | published | accepted | measured | |
            |---|---|---|---|---|
            | order | 1 \| 2 | 3 | 4 | pass |
            | queue, N = 2 | 1 \| 2 | 3 | 4 | **differs** |
            | rate | 1 \| 2 | 3 | 4 | **FAIL** |

            Differs (queue, N = 2): the figure is of another switch

            Nobody published *this*.

            ![Queue over time](congestion-results/m1-1.svg)
        "#]]
        .assert_eq(page.strip_prefix(HEAD).expect("its head"));
    }

    #[test]
    fn a_report_has_its_pictures_and_is_the_same_again() {
        let folder = std::env::temp_dir().join(format!("vnic-sim-report-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(FOLDER)).expect("a folder");
        std::fs::write(folder.join(FOLDER).join("old-1.svg"), "old").expect("a file");
        let read = || {
            let pictures = std::fs::read_dir(folder.join(FOLDER)).expect("a folder");
            let names: Vec<_> = pictures.map(|p| p.expect("it can be read").file_name()).collect();
            let svg = std::fs::read(folder.join(FOLDER).join("m1-1.svg")).expect("the picture");
            (names, svg, std::fs::read(folder.join(PAGE)).expect("the page"))
        };
        write(&folder, &made(&[made_up_case()], 1), None).expect("it can be written");
        let first = read();
        write(&folder, &made(&[made_up_case()], 4), None).expect("it can be written");
        assert_eq!(read(), first);
        assert_eq!(first.0, ["m1-1.svg"]);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    /// The report in the documentation is of these cases. Its numbers are not compared: that takes the suite itself.
    #[test]
    fn the_report_in_the_documentation_is_of_the_cases_that_there_are() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = std::fs::read_to_string(docs.join(PAGE)).expect("the report");
        let headings: Vec<&str> = page.lines().filter(|l| l.starts_with("## ")).collect();
        let cases = super::super::cases();
        let expected: Vec<String> = cases
            .iter()
            .map(|c| heading(&c.about.id, &c.about.title))
            .collect();
        assert_eq!(headings, expected);
        for case in &cases {
            let remarks = case.about.remarks.trim();
            assert!(page.contains(remarks), "{}: its remarks", case.about.id);
        }
        let pictures = page.lines().filter_map(|l| l.split_once("](congestion-results/"));
        for (_, name) in pictures {
            let path = docs.join(FOLDER).join(name.trim_end_matches(')'));
            let size = std::fs::metadata(&path).map(|m| m.len());
            assert!(size.is_ok_and(|s| s < 150_000), "{}", path.display());
        }
    }

    #[test]
    fn anchors_are_those_of_readers() {
        assert_eq!(
            anchor("## D1: The fluid model's queue"),
            "d1-the-fluid-models-queue"
        );
    }
}
