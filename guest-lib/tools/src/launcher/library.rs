//! Place of `libvnic_ibverbs.so`.

use std::path::{Path, PathBuf};

use crate::Refusal;

/// Name of the library.
pub const NAME: &str = "libvnic_ibverbs.so";
/// Environment variable with its path.
const VARIABLE: &str = "VNIC_IBVERBS_LIBRARY";
/// Directory where a package puts it.
const INSTALLED: &str = "/usr/lib/vnic";

/// Places to look for the library.
pub struct Libraries {
    named: Option<PathBuf>,
    dirs: Vec<PathBuf>,
}

impl Libraries {
    /// The places by the environment and the path of this program.
    pub fn from_surroundings() -> Libraries {
        let named = std::env::var_os(VARIABLE).filter(|v| !v.is_empty());
        let own = std::env::current_exe().ok();
        Libraries::new(named.map(PathBuf::from), own.as_deref().and_then(Path::parent))
    }

    fn new(named: Option<PathBuf>, beside: Option<&Path>) -> Libraries {
        let own = beside.map(|dir| [dir.to_owned(), dir.join("../lib/vnic"), dir.join("../lib")]);
        let mut dirs: Vec<PathBuf> = own.into_iter().flatten().collect();
        dirs.push(INSTALLED.into());
        Libraries { named, dirs }
    }

    /// The library's path, absolute.
    pub fn find(&self, wanted: Option<&Path>) -> Result<PathBuf, Refusal> {
        let (found, whence) = match (wanted, &self.named) {
            (Some(path), _) => (Some(path.to_owned()), "--lib"),
            (None, Some(path)) => (Some(path.clone()), VARIABLE),
            (None, None) => {
                let mut there = self.dirs.iter().map(|dir| dir.join(NAME));
                (there.find(|path| path.is_file()), "")
            }
        };
        let Some(path) = found else {
            let dirs: Vec<String> = self.dirs.iter().map(|d| d.display().to_string()).collect();
            return Err(Refusal::new(format!(
                "there is no {NAME} in {}: build it (cargo build --locked --release -p vnic-verbs-preload), or say where it is: --lib \
                 PATH, or {VARIABLE}",
                dirs.join(", ")
            )));
        };
        let path = path.canonicalize().map_err(|e| {
            Refusal::new(format!(
                "{whence}{}{}: {e}; it is built by cargo build --locked --release -p vnic-verbs-preload",
                if whence.is_empty() { "" } else { ": " },
                path.display()
            ))
        })?;
        // The loader takes these characters for the end of a name.
        let shown = path.display().to_string();
        if shown.contains([':', ' ']) {
            return Err(Refusal::new(format!(
                "{shown}: there is a colon or a blank in this path, which LD_PRELOAD cannot name: put the library elsewhere"
            )));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        let (bin, lib) = (root.join("bin"), root.join("lib/vnic"));
        std::fs::create_dir(&bin).expect("a directory");
        std::fs::create_dir_all(&lib).expect("a directory");
        let places = Libraries::new(None, Some(&bin));
        let missing = places.find(None).expect_err("there is none").to_string();
        assert!(
            missing.contains("cargo build") && missing.contains("--lib"),
            "{missing}"
        );
        std::fs::write(lib.join(NAME), "").expect("a file");
        assert_eq!(places.find(None).expect("installed"), lib.join(NAME));
        std::fs::write(bin.join(NAME), "").expect("a file");
        assert_eq!(places.find(None).expect("built"), bin.join(NAME));
        let named = Libraries::new(Some(lib.join(NAME)), Some(&bin));
        assert_eq!(named.find(None).expect("named"), lib.join(NAME));
        let asked = named.find(Some(&bin.join(NAME))).expect("asked for");
        assert_eq!(asked, bin.join(NAME));
        let none = named.find(Some(&root.join("none"))).expect_err("not there");
        assert!(none.to_string().starts_with("--lib: "), "{none}");
    }

    #[test]
    fn paths_that_the_loader_cannot_name_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let odd = dir.path().join("a b");
        std::fs::create_dir(&odd).expect("a directory");
        std::fs::write(odd.join(NAME), "").expect("a file");
        assert!(Libraries::new(None, None).find(Some(&odd.join(NAME))).is_err());
    }
}
