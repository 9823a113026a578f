//! A process of its own for a test: one that counts what its process has, or changes what all tests of a process share.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Names the test that a process is for.
const VARIABLE: &str = "VNIC_OWN_PROCESS";

/// The name of the test that runs on this thread, as its program lists it: `module::test`.
pub fn this_test() -> Result<String> {
    let thread = std::thread::current();
    Ok(thread
        .name()
        .context("the thread of a test has its name")?
        .to_owned())
}

/// This program, with one test only, which may write to its output.
pub fn with_test(name: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("asking for the tests' own program")?);
    command.args(["--exact", name, "--nocapture"]);
    Ok(command)
}

/// Runs a test's body where no other test runs: in this program once more, with this test alone.
pub fn own_process(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let name = this_test()?;
    if std::env::var(VARIABLE).is_ok_and(|of| of == name) {
        return body();
    }
    let output = with_test(&name)?
        .env(VARIABLE, &name)
        .output()
        .with_context(|| format!("starting {name} once more"))?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // (Who counts tests in the output counts this one once.)
    let told = text.lines().filter(|line| !line.starts_with("test result: "));
    told.for_each(|line| println!("{line}"));
    ensure!(output.status.success(), "{name}: {}\n{text}", output.status);
    ensure!(text.contains("1 passed"), "{name} did not run:\n{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_runs_in_another_process_and_its_failure_is_heard() {
        let here = std::process::id();
        let before = std::env::var(VARIABLE).is_ok();
        let outcome = own_process(|| {
            println!("in {}", std::process::id());
            Ok(())
        });
        assert!(outcome.is_ok(), "{outcome:?}");
        assert!(before || std::process::id() == here);
    }
}
