//! A tar archive (POSIX.1-1988, ustar) of small files, compressed by gzip.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Directory of the archive that has all files.
const DIR: &str = "vnic-support";

/// Archive that is being written.
pub struct Archive<W: Write>(GzEncoder<W>);

impl<W: Write> Archive<W> {
    /// Begins an archive.
    pub fn new(out: W) -> Archive<W> {
        Archive(GzEncoder::new(out, Compression::default()))
    }

    /// Appends a file that only its owner reads: its name of at most 80 bytes, its content, and its time in seconds since 1970.
    pub fn add(&mut self, name: &str, content: &[u8], time: u64) -> io::Result<()> {
        self.0.write_all(&header(name, content.len(), time))?;
        self.0.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.0.write_all(&[0; BLOCK][..rest])
    }

    /// Writes the end of the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.finish()
    }
}

/// Header of a regular file.
fn header(name: &str, size: usize, time: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        for (to, from) in block[at..].iter_mut().zip(text.bytes()) {
            *to = from;
        }
    };
    put(0, &format!("{DIR}/{name:.80}"));
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{time:011o}"));
    // (The sum counts its own field as spaces.)
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    for (to, from) in block[148..].iter_mut().zip(format!("{sum:06o}\0").bytes()) {
        *to = from;
    }
    block
}
