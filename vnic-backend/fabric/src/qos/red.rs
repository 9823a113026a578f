//! The congestion point: which packets of a queue are marked (random early detection: Floyd and Jacobson 1993; DCQCN,
//! SIGCOMM 2015, section 3.1; registers CWTP and CWTPM, `rdma-notes-zh` section 17).
//!
//! ```text
//!  probability
//!        1 ┤           ┌────
//!          │           │
//!     Pmax ┤        ╱──┘
//!          │     ╱
//!        0 ┼──────┬────┬──── bytes of the class that wait
//!               Kmin  Kmax
//! ```

/// Parts of a million.
pub const MILLION: u32 = 1_000_000;

/// When the queue's length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum MarkAt {
    /// When the packet leaves.
    #[default]
    Dequeue,
    /// When it comes.
    Enqueue,
}

/// What happens to a packet that is picked and whose ends do not speak ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum NotCapable {
    /// It goes as it is.
    #[default]
    Pass,
    /// It is dropped (WRED).
    Drop,
}

/// The profile of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Red {
    /// On?
    pub enable: bool,
    /// Bytes up to which nothing is marked.
    pub kmin: u32,
    /// Bytes beyond which everything is.
    pub kmax: u32,
    /// Probability at `kmax`, in parts of a [`MILLION`].
    pub pmax: u32,
    /// When the length counts.
    pub at: MarkAt,
    /// Packets that cannot be marked.
    pub not_capable: NotCapable,
}

impl Red {
    /// Probability of a mark with so many bytes waiting, in parts of a [`MILLION`].
    pub fn probability(&self, bytes: u64) -> u32 {
        if !self.enable || bytes <= self.kmin.into() {
            0
        } else if bytes > self.kmax.into() {
            MILLION
        } else {
            let span = u64::from(self.kmax - self.kmin).max(1);
            (u64::from(self.pmax) * (bytes - u64::from(self.kmin)) / span) as u32
        }
    }
}
