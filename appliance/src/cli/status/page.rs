//! The page of `vnicctl status` for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::text;
use super::findings::{Finding, Level};
use super::state::{Counted, Status};

/// Lines of a section at most; `-o json` has all.
const LINES_MAX: usize = 5;

/// Lines below a heading.
struct Page(String);

impl Page {
    /// Adds the lines of a section; its name stands before the first.
    fn add(&mut self, name: &str, lines: Vec<String>) {
        let more = lines.len().saturating_sub(LINES_MAX);
        let mut shown: Vec<String> = lines.into_iter().take(LINES_MAX).collect();
        if more > 0 {
            shown.push(format!("and {more} more"));
        }
        for (i, line) in shown.iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            let _ = writeln!(self.0, "{}", format!("{name:<9} {line}").trim_end());
        }
    }
}

/// Text of a state and its findings; `time` names the span of its events.
pub fn text(status: &Status, findings: &[Finding], time: &str) -> String {
    let mut page = Page(String::new());
    page.add("vnicd", vec![daemon(status)]);
    page.add("cores", cores(status));
    page.add("adapters", vec![adapters(status)]);
    page.add("ports", ports(status));
    page.add("teams", teams(status));
    page.add("drops", counted(&status.drops, status, "none"));
    page.add("RDMA", counted(&status.rdma_errors, status, "no errors"));
    page.add("queues", queues(status));
    page.add("events", events(status, time));
    page.add("pending", pending(status));
    page.add("faults", faults(status));
    let mut page = page.0;
    page.push('\n');
    if findings.is_empty() {
        page.push_str("Nothing is odd.\n");
        return page;
    }
    page.push_str("What is odd, and what to do:\n");
    for f in findings {
        let mark = match f.level {
            Level::Error => "!!",
            Level::Warning => " !",
        };
        let _ = writeln!(page, "{mark} {}\n     {}\n     $ {}", f.what, f.advice, f.command);
    }
    page
}

fn daemon(status: &Status) -> String {
    let d = &status.daemon;
    let git = match d.git_revision.as_str() {
        "" => String::new(),
        git => format!(" ({git})"),
    };
    let uptime = text::span(Some(prost_types::Duration {
        seconds: d.uptime_seconds,
        nanos: 0,
    }));
    let health = match (d.serving, d.responsive) {
        (true, true) => "serving, all threads answer",
        (true, false) => "serving, but not all threads answer",
        (false, _) => "not serving",
    };
    format!("{}{git}, pid {}, up {uptime}, {health}", d.version, d.pid)
}

fn cores(status: &Status) -> Vec<String> {
    let core = |c: &super::state::Core| {
        format!(
            "{}: {} % of {} rounds/s have work, {} sleeps/s",
            c.cpu,
            c.busy_percent,
            text::short(c.rounds_per_second),
            text::short(c.sleeps_per_second)
        )
    };
    status.cores.iter().map(core).collect()
}

/// How many of each word, such as `2: 1 up, 1 detached`.
fn tally<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    counts.join(", ")
}

fn adapters(status: &Status) -> String {
    let all = &status.adapters;
    if all.is_empty() {
        return "none".to_owned();
    }
    let rdma = tally(all.iter().map(|a| a.rdma));
    format!("{}; RDMA functions: {rdma}", tally(all.iter().map(|a| a.state)))
}

fn ports(status: &Status) -> Vec<String> {
    let all = &status.ports;
    if all.is_empty() {
        return vec!["none".to_owned()];
    }
    let mut lines = vec![tally(all.iter().map(|p| if p.up { "up" } else { "down" }))];
    for p in all.iter().filter(|p| !p.up) {
        let colon = if p.problem.is_empty() { "" } else { ": " };
        lines.push(format!("{} is down{colon}{}", p.name, p.problem));
    }
    lines
}

fn teams(status: &Status) -> Vec<String> {
    let team = |t: &super::state::Team| {
        let state = if t.up { "up" } else { "down" };
        let good = t.members - t.down.len() - t.missing.len();
        format!("{} is {state}: {good} of {} members up", t.name, t.members)
    };
    status.teams.iter().map(team).collect()
}

/// Counters that grow, and a line about the others.
fn counted(all: &[Counted], status: &Status, none: &str) -> Vec<String> {
    let growing: Vec<&Counted> = all.iter().filter(|c| c.grew > 0).collect();
    let mut by_owner: BTreeMap<&str, u64> = BTreeMap::new();
    for c in all {
        let sum = by_owner.entry(&c.owner).or_default();
        *sum = sum.saturating_add(c.total);
    }
    let totals: Vec<String> = by_owner
        .iter()
        .map(|(owner, n)| format!("{owner} {}", text::count(*n)))
        .collect();
    let seconds = Some(prost_types::Duration {
        seconds: i64::try_from(status.interval_ms / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(status.interval_ms % 1000 * 1_000_000).unwrap_or(0),
    });
    let mut lines: Vec<String> = growing
        .iter()
        .map(|c| {
            let total = text::count(c.total);
            format!(
                "{}: {}, {} a second, {total} in all",
                c.owner,
                c.what,
                text::count(c.per_second)
            )
        })
        .collect();
    match (totals.is_empty(), growing.is_empty()) {
        (true, _) => lines.push(none.to_owned()),
        (false, true) => lines.push(format!(
            "no new ones in {}; in all: {}",
            text::span(seconds),
            totals.join(", ")
        )),
        (false, false) => {}
    }
    lines
}

fn queues(status: &Status) -> Vec<String> {
    let all = status.queue_pairs_in_error.iter();
    all.map(|(adapter, n)| format!("{adapter}: {n} queue pairs in an error state"))
        .collect()
}

fn events(status: &Status, time: &str) -> Vec<String> {
    if status.events.is_empty() {
        return vec![format!("no warning and no error in the last {time}")];
    }
    let event = |e: &super::state::Events| {
        let owner = if e.owner.is_empty() { "-" } else { &e.owner };
        format!(
            "{} {} {} {owner}, last {}: {}",
            e.count, e.severity, e.kind, e.last_time, e.last_message
        )
    };
    status.events.iter().map(event).collect()
}

fn pending(status: &Status) -> Vec<String> {
    let keys = status.pending.iter();
    let keys = keys.map(|p| {
        format!(
            "{} {}: {} now, {} after a restart",
            p.adapter, p.key, p.effective, p.pending
        )
    });
    let nv = status.nv_pending.iter();
    let nv = nv.map(|p| format!("{}: {} now, {} after a reset", p.name, p.current, p.next));
    keys.chain(nv).collect()
}

fn faults(status: &Status) -> Vec<String> {
    let fault = |f: &super::state::Fault| {
        let spent = if f.spent { ", spent" } else { "" };
        format!(
            "{}: {}, from {} to {}, {} hit{spent}",
            f.name,
            f.action,
            text::or(&f.from, "any"),
            text::or(&f.to, "any"),
            f.injected
        )
    };
    let verbs = |f: &super::state::VerbsFault| {
        format!(
            "{}: {}, {} of {}, {} hit, {}",
            f.name, f.action, f.matches, f.adapter, f.injected, f.state
        )
    };
    let frames = status.faults.iter().map(fault);
    frames.chain(status.verbs_faults.iter().map(verbs)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::state::{Adapter, Core, Daemon, Port};
    use super::*;

    fn counted(what: &str, total: u64, grew: u64) -> Counted {
        Counted {
            owner: "vf0".to_owned(),
            what: what.to_owned(),
            total,
            grew,
            per_second: grew,
        }
    }

    #[test]
    fn a_page_has_a_line_for_each_part_and_advice_at_its_end() {
        let adapter = |name: &str, state, rdma| Adapter {
            name: name.to_owned(),
            state,
            rdma,
        };
        let mut status = Status {
            daemon: Daemon {
                version: "1.2.3".to_owned(),
                pid: 7,
                uptime_seconds: 61,
                serving: true,
                responsive: true,
                ..Daemon::default()
            },
            cores: vec![Core {
                cpu: 3,
                busy_percent: 10,
                rounds_per_second: 12_345,
                sleeps_per_second: 4,
                ..Core::default()
            }],
            adapters: vec![adapter("vf0", "up", "none"), adapter("vf1", "detached", "none")],
            drops: vec![counted("runt", 5, 0)],
            interval_ms: 1000,
            ..Status::default()
        };
        let page = text(&status, &findings::of(&status), "1 h 0 min");
        let wanted = "\
vnicd     1.2.3, pid 7, up 1 min 1 s, serving, all threads answer
cores     3: 10 % of 12.3k rounds/s have work, 4 sleeps/s
adapters  1 detached, 1 up; RDMA functions: 2 none
ports     none
drops     no new ones in 1 s; in all: vf0 5
RDMA      no errors
events    no warning and no error in the last 1 h 0 min

Nothing is odd.
";
        assert_eq!(page, wanted);
        status.drops.insert(0, counted("runt", 9, 4));
        status.ports.push(Port {
            name: "p0".to_owned(),
            ..Port::default()
        });
        let page = text(&status, &findings::of(&status), "1 h");
        assert!(
            page.contains("ports     1 down\n          p0 is down\n"),
            "{page}"
        );
        assert!(
            page.contains("drops     vf0: runt, 4 a second, 9 in all\n"),
            "{page}"
        );
        let end = "\
What is odd, and what to do:
!! the link of port p0 is down
     see whether its device is there and up (ip link), and its cable or peer
     $ vnicctl port show p0
 ! frames of vf0 are dropped: runt (4 a second, 9 in all)
     its sender makes frames that are too short
     $ vnicctl capture live vf0 --drops-only
";
        assert!(page.ends_with(end), "{page}");
    }

    #[test]
    fn a_long_section_says_how_much_is_left_out() {
        let mut page = Page(String::new());
        page.add("x", (0..7).map(|i| i.to_string()).collect());
        assert!(page.0.ends_with("4\n          and 2 more\n"), "{}", page.0);
    }
}
