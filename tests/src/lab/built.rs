//! Programs and libraries of other packages: cargo builds them for no test unasked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::output;

/// Says where programs are that were built with the tests: `tests/run` has built the whole workspace.
const PROGRAMS_VARIABLE: &str = "VNIC_TEST_PROGRAMS";

/// A program or library of one of our packages: as it was built with the tests, or made by cargo now, as the tests are.
pub fn built(package: &str, name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(PROGRAMS_VARIABLE) {
        // A library that tests are linked with lies among what they are linked with; beside the programs there may be an older one.
        let dir = PathBuf::from(dir);
        let there = [dir.join("deps").join(name), dir.join(name)];
        if let Some(path) = there.into_iter().find(|path| path.is_file()) {
            return Ok(path);
        }
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--message-format=json", "--package", package]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let text = output(&mut cargo)?;
    let files = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|file| Some(PathBuf::from(file.as_str()?)));
    let is_it = |file: &PathBuf| file.file_name() == Some(Path::new(name).as_os_str());
    files
        .into_iter()
        .find(is_it)
        .with_context(|| format!("cargo names no {name} of {package}"))
}
