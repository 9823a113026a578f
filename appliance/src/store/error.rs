//! Errors of the store.

use std::path::PathBuf;

use super::mark::{self, before};

/// Error of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The file differs from what was written.
    #[error(
        "{} is damaged: {problem}; put it back from a backup (without {}), or start with --reset-damaged-state to keep \
         it under another name and begin with defaults",
        file.display(), mark::path(file).display()
    )]
    Damaged {
        /// Path of the file.
        file: PathBuf,
        /// Detected problem.
        problem: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{} has schema {found}, this version of vnicd knows {known}: use the version that wrote it, or put back what an \
         upgrade from {known} has kept, {} (without {}); settings made since are not in it",
        file.display(), before(file, *known).display(), mark::path(file).display()
    )]
    Newer {
        /// Path of the file.
        file: PathBuf,
        /// Schema of the file.
        found: u32,
        /// Newest known schema.
        known: u32,
    },
    /// The file was written by an older version, and cannot be migrated. It is unchanged.
    #[error("{} has schema {found}, this version of vnicd has {known} and cannot read it: {problem}", file.display())]
    Older {
        /// Path of the file.
        file: PathBuf,
        /// Schema of the file.
        found: u32,
        /// Known schema.
        known: u32,
        /// Cause.
        problem: String,
    },
    /// A system call failed.
    #[error("{}: {problem}", file.display())]
    Os {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        problem: String,
    },
    /// A write failed: nothing more is written until the daemon restarts, because the contents of the disk are unknown.
    #[error("the store {} cannot be written any more: {problem}; restart the daemon when that is mended", file.display())]
    Failed {
        /// Path of the file.
        file: PathBuf,
        /// Cause.
        problem: String,
    },
    /// The store is closed: the daemon ends.
    #[error("the store is closed")]
    Closed,
}
