//! Huge pages for DPDK: enough of them for the run, and the machine's old setting afterwards.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// Size of the pages.
pub const PAGE_BYTES: u64 = 2 << 20;
const DIR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A reservation: while it lives, at least so many pages were free when it was made.
#[derive(Debug)]
pub struct HugePages {
    /// The setting before and the one we made, when we had to change it.
    changed: Option<(u64, u64)>,
}

impl HugePages {
    /// Makes sure that `bytes` of huge pages are free.
    pub fn reserve(bytes: u64) -> Result<HugePages> {
        let wanted = bytes.div_ceil(PAGE_BYTES);
        let free = unclaimed()?;
        if free >= wanted {
            return Ok(HugePages { changed: None });
        }
        if !rustix::process::geteuid().is_root() {
            bail!(
                "DPDK needs {wanted} free huge pages of 2 MiB and the right to mount hugetlbfs; \
                 {free} are free and this is not root: run as root"
            );
        }
        let before = read("nr_hugepages")?;
        let made = before + (wanted - free);
        fs::write(file("nr_hugepages"), made.to_string()).context("setting nr_hugepages")?;
        let pages = HugePages {
            changed: Some((before, made)),
        };
        let free = unclaimed()?;
        if free < wanted {
            bail!(
                "DPDK needs {wanted} free huge pages of 2 MiB; after asking for more {free} are free: \
                 memory is short or in pieces; try `echo 1 >/proc/sys/vm/compact_memory`"
            );
        }
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Leave it alone when somebody else has changed it since.
        if let Some((before, made)) = self.changed
            && read("nr_hugepages").is_ok_and(|now| now == made)
        {
            let _ = fs::write(file("nr_hugepages"), before.to_string());
        }
    }
}

/// Pages that nobody has and nobody was promised.
fn unclaimed() -> Result<u64> {
    Ok(read("free_hugepages")?.saturating_sub(read("resv_hugepages")?))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(DIR).join(name)
}

fn read(name: &str) -> Result<u64> {
    let path = file(name);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: no huge pages of 2 MiB on this machine", path.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{}: {text:?}", path.display()))
}
