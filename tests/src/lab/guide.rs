//! Pages of `docs/` whose commands are run by tests, as they stand there.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Lab, checkout, output, skip};

/// A part of a page: a fenced block, or what the test does besides (a comment).
#[derive(Debug)]
pub struct Part {
    /// What is behind the fence; `guest` for a comment.
    pub kind: String,
    /// Its lines.
    pub text: String,
}

/// The parts of `docs/NAME`.
pub fn parts(name: &str) -> Result<Vec<Part>> {
    let page = std::fs::read_to_string(checkout().join("docs").join(name)).context(name.to_owned())?;
    let mut all: Vec<Part> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        let comment = line.strip_prefix("<!-- ").and_then(|l| l.strip_suffix(" -->"));
        match (line.strip_prefix("```"), comment, inside) {
            (Some(kind), _, false) => {
                inside = true;
                all.push(Part {
                    kind: kind.to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), _, true) => inside = false,
            (None, _, true) => {
                let part = all.last_mut().context("a fence")?;
                part.text += line;
                part.text.push('\n');
            }
            (None, Some(what), false) => all.push(Part {
                kind: "guest".to_owned(),
                text: what.to_owned(),
            }),
            (None, None, false) => {}
        }
    }
    ensure!(!inside, "a fence is open at the end");
    Ok(all)
}

/// A word of the environment by which commands of a page find our programs.
pub fn search_path(lab: &Lab) -> Result<String> {
    let programs = lab.program("vnicd");
    let dir = programs.parent().context("a directory")?.display().to_string();
    Ok(format!("PATH={dir}:{}", std::env::var("PATH")?))
}

/// Are all expressions (`promql`) of a page sound, and is what they name in `metrics`, a page of the daemon's?
pub fn expressions(lab: &Lab, metrics: &str, page: &[Part]) -> Result<()> {
    let all: Vec<&Part> = page.iter().filter(|p| p.kind == "promql").collect();
    ensure!(all.len() >= 6, "expressions are missing");
    let mut rules = String::from("groups:\n  - name: guide\n    rules:\n");
    for (i, part) in all.iter().enumerate() {
        let expression = part.text.trim();
        let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        for name in expression.split(word).filter(|w| w.starts_with("vnic_")) {
            ensure!(metrics.contains(&format!("# TYPE {name} ")), "there is no {name}");
        }
        rules += &format!(
            "      - record: guide:{i}\n        expr: {}\n",
            serde_json::to_string(expression)?
        );
    }
    let file = lab.path("guide.yml");
    std::fs::write(&file, rules)?;
    if Command::new("promtool").arg("--version").output().is_ok() {
        output(Command::new("promtool").args(["check", "rules"]).arg(&file))?;
    } else {
        skip(&format!("{} promtool", lab.name()), "there is no promtool");
    }
    Ok(())
}
