//! Programs of congestion control as files: WebAssembly, in binary form or as text.

use std::path::Path;

use vnic_engine::congestion::named::Named;
use vnic_engine::congestion::program::Program;

/// What stands before the path of a program where an algorithm is named.
pub const PREFIX: &str = "program:";

/// The bytes of a program; text becomes its binary form.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    // (Errors of text have the line in them.)
    let binary = wat::parse_bytes(&bytes).map_err(|mut e| {
        e.set_path(path);
        e.to_string()
    })?;
    Ok(binary.into_owned())
}

/// A program.
pub fn load(path: &Path) -> Result<Program, String> {
    Program::load(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

/// An algorithm by its name, or a program by `program:FILE`.
pub fn named(name: &str) -> Result<Named, String> {
    match name.strip_prefix(PREFIX) {
        Some(path) => load(Path::new(path)).map(Named::Program),
        None => Named::by_name(name).map_err(|e| e.to_string()),
    }
}
