//! Headers of program files, as far as the launcher must know what the loader will do.

/// A program that the loader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Whether it has 64 bits.
    pub wide: bool,
    /// Machine type, `e_machine`.
    pub machine: u16,
    /// Whether it names a loader. Without one no library is loaded before it.
    pub has_loader: bool,
}

const MAGIC: &[u8] = b"\x7fELF";
const PT_INTERP: u32 = 3;

/// Reads a file's header and program header table; `None`: it is no such file, or a broken one.
pub fn read(file: &[u8]) -> Option<Program> {
    let rest = file.strip_prefix(MAGIC)?;
    let wide = match rest.first()? {
        1 => false,
        2 => true,
        _ => return None,
    };
    // Programs of the other byte order do not run here anyway.
    let u16_at = |at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let (table, entry_len, entries) = if wide {
        let table = u64::from_le_bytes(*file.get(32..)?.first_chunk()?);
        (usize::try_from(table).ok()?, u16_at(54)?, u16_at(56)?)
    } else {
        (usize::try_from(u32_at(28)?).ok()?, u16_at(42)?, u16_at(44)?)
    };
    let mut has_loader = false;
    for i in 0..usize::from(entries) {
        let at = table.checked_add(i * usize::from(entry_len))?;
        has_loader |= u32_at(at)? == PT_INTERP;
    }
    Some(Program {
        wide,
        machine: u16_at(18)?,
        has_loader,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A program with these segments.
    pub fn program(wide: bool, machine: u16, segments: &[u32]) -> Vec<u8> {
        let (head, entry) = if wide { (64, 56) } else { (52, 32) };
        let mut file = vec![0; head + entry * segments.len()];
        file[..4].copy_from_slice(MAGIC);
        file[4] = if wide { 2 } else { 1 };
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        let (table, len, count) = if wide { (32, 54, 56) } else { (28, 42, 44) };
        file[table] = head as u8;
        file[len] = entry as u8;
        file[count] = segments.len() as u8;
        for (i, kind) in segments.iter().enumerate() {
            file[head + i * entry..][..4].copy_from_slice(&kind.to_le_bytes());
        }
        file
    }

    #[test]
    fn loaders_are_seen() {
        for wide in [false, true] {
            let read = |segments: &[u32]| read(&program(wide, 62, segments)).expect("a program");
            assert!(read(&[6, PT_INTERP, 1]).has_loader);
            assert!(!read(&[1, 1]).has_loader);
            assert_eq!((read(&[]).wide, read(&[]).machine), (wide, 62));
        }
    }

    #[test]
    fn broken_files_are_no_programs() {
        let whole = program(true, 62, &[1, PT_INTERP]);
        for len in 0..whole.len() - 52 {
            assert_eq!(read(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(read(b"#!/bin/sh\n"), None);
        let mut far = whole;
        far[32..40].fill(0xff);
        assert_eq!(read(&far), None);
    }
}
