//! Why the store cannot be used.

use std::path::PathBuf;

use super::mark::{self, before};

/// Why the store cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// What is on the disk is not what was written.
    #[error(
        "{} is damaged: {problem}; put it back from a backup (without {}), or start with --reset-damaged-state to keep \
         it under another name and begin with defaults",
        file.display(), mark::path(file).display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        problem: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{} has schema {found}, this version of vnicd knows {known}: use the version that wrote it, or put back what an \
         upgrade from {known} has kept, {} (without {}); settings made since are not in it",
        file.display(), before(file, *known).display(), mark::path(file).display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// The file was written by an older version, and cannot be brought up to date. It is as it was.
    #[error("{} has schema {found}, this version of vnicd has {known} and cannot read it: {problem}", file.display())]
    Older {
        /// The file.
        file: PathBuf,
        /// Its schema.
        found: u32,
        /// The one that is known.
        known: u32,
        /// Why.
        problem: String,
    },
    /// The operating system refused something.
    #[error("{}: {problem}", file.display())]
    Os {
        /// The file.
        file: PathBuf,
        /// What was refused.
        problem: String,
    },
    /// A write failed: nothing more is written until the daemon starts again, because what is on the disk is not known.
    #[error("the store {} cannot be written any more: {problem}; restart the daemon when that is mended", file.display())]
    Failed {
        /// The file.
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// The daemon ends.
    #[error("the store is closed")]
    Closed,
}
