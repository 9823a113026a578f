//! Completion scripts and man pages, made from clap's definition of the command lines.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Failure;
use super::args::Args;
use crate::daemon;

/// Prints the completion script of `vnicctl`.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "vnicctl", &mut script);
    super::output::print(&String::from_utf8_lossy(&script))
}

/// Writes `vnicd.8`, `vnicctl.1` and a page for each command of `vnicctl`.
pub fn man(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    let mut page = Vec::new();
    clap_mangen::Man::new(daemon::Args::command())
        .section("8")
        .render(&mut page)?;
    std::fs::write(dir.join("vnicd.8"), page)?;
    // The global options are not repeated on the page of each command.
    clap_mangen::generate_to(Args::command(), dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What takes something away, in this command and those below it: its name and other names.
    fn removals(command: &clap::Command, all: &mut Vec<(String, Vec<String>)>) {
        for below in command.get_subcommands() {
            if ["remove", "delete", "clear"].contains(&below.get_name()) {
                let aliases = below.get_visible_aliases().map(str::to_owned).collect();
                all.push((format!("{} {}", command.get_name(), below.get_name()), aliases));
            }
            removals(below, all);
        }
    }

    #[test]
    fn what_takes_away_is_called_remove_and_delete_everywhere() {
        let mut all = Vec::new();
        removals(&Args::command(), &mut all);
        assert!(all.len() >= 9, "{all:?}");
        for (name, aliases) in all {
            assert!(name.ends_with(" remove"), "{name}");
            assert!(
                aliases.iter().any(|alias| alias == "delete"),
                "{name}: {aliases:?}"
            );
        }
    }
}
