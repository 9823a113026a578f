//! `docs/congestion.md`: its commands, as they stand there, and what they print.

use std::process::Command;

use crate::common::lab::{Lab, text};
use vnic_backend::counters::RDMA_COUNTERS;

/// A fenced block: what is behind its fence, its lines, and where these are in the page.
pub struct Block<'a> {
    pub kind: &'a str,
    pub text: &'a str,
    at: usize,
}

pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut all, mut open, mut at) = (Vec::new(), None, 0);
    for line in page.split_inclusive('\n') {
        match (line.strip_prefix("```"), open) {
            (Some(kind), None) => open = Some((kind.trim_end(), at + line.len())),
            (Some(_), Some((kind, from))) => {
                let text = &page[from..at];
                all.push(Block { kind, text, at: from });
                open = None;
            }
            (None, _) => {}
        }
        at += line.len();
    }
    assert!(open.is_none(), "a fence is open at the end");
    all
}

/// Runs commands of the page; answers what they print.
pub async fn run(lab: &Lab, commands: &str) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_vnicctl"));
    let dir = program.parent().expect("a directory").display().to_string();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", commands])
        .env(
            "PATH",
            format!("{dir}:{}", std::env::var("PATH").unwrap_or_default()),
        )
        .env(
            "VNIC_ENDPOINT",
            format!("unix:{}", lab.dir.path().join("control.sock").display()),
        );
    let done = tokio::task::spawn_blocking(move || bash.output().expect("bash"))
        .await
        .expect("bash");
    assert!(done.status.success(), "{commands}: {}", text(&done.stderr));
    text(&done.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_do_what_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/congestion.md");
    let page = std::fs::read_to_string(path).expect("docs/congestion.md");
    let mut made = page.clone();
    let mut moved = 0isize;
    let lab = Lab::start(4).await;
    let all = blocks(&page);
    let mut steps = all.iter().filter(|b| ["sh", "text"].contains(&b.kind)).peekable();
    let mut commands = 0;
    while let Some(step) = steps.next() {
        assert_eq!(step.kind, "sh");
        let said = run(&lab, step.text).await;
        commands += 1;
        if let Some(shown) = steps.next_if(|b| b.kind == "text") {
            let at = shown.at.strict_add_signed(moved);
            made.replace_range(at..at + shown.text.len(), &said);
            moved += said.len() as isize - shown.text.len() as isize;
        }
    }
    assert!(commands >= 7, "only {commands} commands");
    // Its expressions are about metrics that there are.
    for block in all.iter().filter(|b| b.kind == "promql") {
        let known = |name: &str| block.text.contains(&format!("vnic_rdma_{name}_total["));
        assert!(RDMA_COUNTERS.iter().any(|c| known(c.name)), "{}", block.text);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/congestion.md");
    }
    let page = std::fs::read_to_string(path).expect("docs/congestion.md");
    assert!(
        page == made,
        "docs/congestion.md shows something else than its commands: UPDATE_DOCS=1 cargo test writes it"
    );
    lab.end().await;
}
