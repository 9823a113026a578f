//! The mark: number of the last commit, in a file of two slots beside the database. One slot is written at a time, so that
//! an interrupted write leaves the other one.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::private;

/// Length of a slot: the number, and its complement.
const SLOT: usize = 16;

/// Open file of the mark.
pub struct Mark(File);

/// Path of the mark of a database.
pub fn path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".mark");
    PathBuf::from(name)
}

impl Mark {
    /// Reads the number of the last commit; `None` without a mark. The inner error means that no slot is valid.
    pub fn read(database: &Path) -> io::Result<Result<Option<u64>, String>> {
        let path = path(database);
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(2 * SLOT as u64).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
            Err(error) => return Err(error),
        };
        let newest = bytes.chunks_exact(SLOT).filter_map(number).max();
        Ok(newest
            .map(Some)
            .ok_or_else(|| format!("its mark {} is damaged", path.display())))
    }

    /// Opens the mark and writes the number, unless it is the one that was read (`known`). Without a mark, one is created;
    /// then its directory entry and the database's are on the disk when this returns.
    pub fn open(database: &Path, commits: u64, known: Option<u64>) -> io::Result<Mark> {
        let path = path(database);
        let open = |path: &Path, new| private::file().write(true).create(new).truncate(new).open(path);
        if known.is_some() {
            let mut mark = Mark(open(&path, false)?);
            if known != Some(commits) {
                mark.write(commits)?;
            }
            return Ok(mark);
        }
        // The mark is renamed when it is complete: a crash in between leaves none.
        let new = path.with_extension("mark.new");
        let mut mark = Mark(open(&new, true)?);
        mark.write(commits)?;
        std::fs::rename(&new, &path)?;
        if let Some(dir) = path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(mark)
    }

    /// Writes the number of the last commit to the disk.
    pub fn write(&mut self, commits: u64) -> io::Result<()> {
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&commits.to_le_bytes());
        slot[8..].copy_from_slice(&(!commits).to_le_bytes());
        self.0.write_all_at(&slot, (commits % 2) * SLOT as u64)?;
        self.0.sync_data()
    }
}

fn number(slot: &[u8]) -> Option<u64> {
    let (number, complement) = slot.split_at_checked(8)?;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    let complement = u64::from_le_bytes(complement.try_into().ok()?);
    (number == !complement).then_some(number)
}

/// Path of the copy of a file that had this schema before a migration.
pub fn before(file: &Path, schema: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".schema-{schema}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_slot_leaves_the_number_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let database = dir.path().join("x.redb");
        assert_eq!(Mark::read(&database).expect("reads"), Ok(None));
        std::fs::write(&database, "not empty").expect("written");
        let mut mark = Mark::open(&database, 1, None).expect("made");
        for n in 1..=7 {
            mark.write(n).expect("written");
            assert_eq!(Mark::read(&database).expect("reads"), Ok(Some(n)));
        }
        let mut bytes = std::fs::read(path(&database)).expect("read");
        bytes[SLOT + 3] ^= 1;
        std::fs::write(path(&database), &bytes).expect("written");
        assert_eq!(Mark::read(&database).expect("reads"), Ok(Some(6)));
        bytes[2] ^= 1;
        std::fs::write(path(&database), &bytes).expect("written");
        assert!(Mark::read(&database).expect("reads").is_err());
        std::fs::write(path(&database), []).expect("written");
        assert!(Mark::read(&database).expect("reads").is_err());
    }
}
