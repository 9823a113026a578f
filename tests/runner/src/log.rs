//! The log of a step.

use std::fs;
use std::path::PathBuf;

/// A file that a step's processes write to.
#[derive(Debug, Clone)]
pub struct Log(pub PathBuf);

impl Log {
    /// All of it.
    pub fn text(&self) -> String {
        fs::read(&self.0).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// What it says last, as far as it can be printed: characters that would move a cursor are left out.
    pub fn last_words(&self) -> String {
        let text = self.text();
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let line = text
            .lines()
            .rev()
            .map(|line| line.chars().map(printable).collect::<String>());
        let line = line.map(|l| l.trim().to_owned()).find(|l| !l.is_empty());
        line.unwrap_or_default().chars().take(90).collect()
    }

    /// How many tests of cargo it speaks of: passed, failed, ignored.
    pub fn counts(&self) -> [u64; 3] {
        let mut sum = [0; 3];
        for line in self.text().lines().filter(|l| l.starts_with("test result: ")) {
            for (n, what) in sum.iter_mut().zip([" passed;", " failed;", " ignored;"]) {
                let before = line.split(what).next().unwrap_or_default();
                *n += before
                    .rsplit(' ')
                    .next()
                    .and_then(|n| n.parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
        sum
    }

    /// The first lines that name what is wrong, each cut to a line of a terminal or two.
    pub fn reasons(&self) -> Vec<String> {
        let text = self.text();
        let bad = text.lines().filter(|line| is_bad(line)).take(5);
        bad.map(|line| line.chars().take(200).collect()).collect()
    }

    /// What a failed step has to say. What cargo's tests say about failures comes before the end of the log, and after what passed
    /// tests printed.
    pub fn tell_failure(&self) {
        let text = self.text();
        for (at, line) in text.lines().enumerate().filter(|(_, l)| is_bad(l)).take(40) {
            println!("{}:{line}", at + 1);
        }
        let mut on = false;
        let about = text.lines().filter(|line| {
            on = (on || *line == "failures:") && !line.starts_with("test result:");
            on
        });
        about.take(200).for_each(|line| println!("{line}"));
        println!("---- end of {}", self.0.display());
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..]
            .iter()
            .for_each(|line| println!("{line}"));
        println!("----");
    }
}

/// Whether a line names what is wrong.
fn is_bad(line: &str) -> bool {
    line.starts_with("error") || line.contains("... FAILED") || line.contains("FAILED:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_the_last_words_are_found() {
        let file = std::env::temp_dir().join(format!("vnic-runner-{}.log", std::process::id()));
        let result =
            "test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        fs::write(&file, format!("{result}{result}x\u{1b}[0m y\n\n")).expect("written");
        let log = Log(file.clone());
        assert_eq!(log.counts(), [6, 2, 4]);
        assert!(log.reasons().is_empty());
        assert_eq!(log.last_words(), "x [0m y");
        fs::remove_file(file).expect("removed");
    }
}
