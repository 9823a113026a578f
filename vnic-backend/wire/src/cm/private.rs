//! Private data of a message: bytes that the two programs exchange while they connect.

use core::fmt;

/// Private data, `N` bytes at the end of a message; what is not used is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Private<const N: usize>(pub [u8; N]);

impl<const N: usize> Private<N> {
    /// Data with zeros behind them; none if they are too long.
    pub fn new(data: &[u8]) -> Option<Private<N>> {
        let mut bytes = [0; N];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Private(bytes))
    }

    /// The end of a message.
    pub(super) fn read(b: &super::Bytes) -> Private<N> {
        Private(super::run(b, super::LEN - N))
    }

    /// Puts the data at the end of a message.
    pub(super) fn write(&self, b: &mut super::Bytes) {
        super::put(b, super::LEN - N, &self.0);
    }
}

impl<const N: usize> Default for Private<N> {
    fn default() -> Self {
        Private([0; N])
    }
}

/// Hexadecimal digits up to the last byte that is not 0.
impl<const N: usize> fmt::Debug for Private<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        write!(f, "{N}:")?;
        self.0.iter().take(used).try_for_each(|b| write!(f, "{b:02x}"))
    }
}
