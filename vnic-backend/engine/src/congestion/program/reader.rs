//! Bytes of a module, read in order.

use alloc::format;
use alloc::string::String;

use super::LoadError;

/// A cursor over a module or a part of it.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` in the module.
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor over bytes that begin at offset `at` of the module.
    pub fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An error at the place of the cursor.
    pub fn wrong<T>(&self, what: impl Into<String>) -> Result<T, LoadError> {
        Err(LoadError::Module {
            at: self.at,
            what: what.into(),
        })
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], LoadError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return self.wrong("the module ends here");
        };
        self.bytes = rest;
        self.at += len;
        Ok(taken)
    }

    /// The next `len` bytes as a cursor of their own.
    pub fn part(&mut self, len: usize) -> Result<Reader<'a>, LoadError> {
        let at = self.at;
        Ok(Reader::new(self.take(len)?, at))
    }

    /// A byte.
    pub fn byte(&mut self) -> Result<u8, LoadError> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned number of 32 bits (LEB128).
    pub fn u32(&mut self) -> Result<u32, LoadError> {
        let value = self.leb(32, false)?;
        Ok(value as u32)
    }

    /// A count of at most `most` of something.
    pub fn count(&mut self, most: usize, of: &str) -> Result<usize, LoadError> {
        let here = *self;
        let count = self.u32()? as usize;
        match count <= most {
            true => Ok(count),
            false => here.wrong(format!("{count} {of}; at most {most} are accepted")),
        }
    }

    /// A signed number of 32 bits, as its bits.
    pub fn i32(&mut self) -> Result<u64, LoadError> {
        let value = self.leb(32, true)?;
        Ok(u64::from(value as u32))
    }

    /// A signed number of 64 bits, as its bits.
    pub fn i64(&mut self) -> Result<u64, LoadError> {
        self.leb(64, true)
    }

    /// A name.
    pub fn name(&mut self) -> Result<&'a str, LoadError> {
        let len = self.u32()? as usize;
        let here = *self;
        match core::str::from_utf8(self.take(len)?) {
            Ok(name) => Ok(name),
            Err(_) => here.wrong("a name is not UTF-8"),
        }
    }

    fn leb(&mut self, bits: u32, signed: bool) -> Result<u64, LoadError> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            if shift >= bits {
                return self.wrong("a number is longer than its type");
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                if signed && byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                return Ok(value);
            }
        }
    }
}
