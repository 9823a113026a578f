//! Completions.

use std::time::Duration;

use vnic_device::queue::{CompletionEntry, CompletionKind};
use vnic_device::verbs::CompletionStatus;

pub use vnic_device::queue::completion_flags;

use crate::{Error, MacAddress};

/// How a work request ended (`ibv_wc`).
///
/// When it did not succeed, only [`id`](WorkCompletion::id), [`qp`](WorkCompletion::qp),
/// [`status`](WorkCompletion::status),
/// [`vendor_error`](WorkCompletion::vendor_error) and [`is_receive`](WorkCompletion::is_receive) mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct WorkCompletion(pub(crate) CompletionEntry);

impl From<CompletionEntry> for WorkCompletion {
    /// For tests of what is built on this.
    fn from(entry: CompletionEntry) -> WorkCompletion {
        WorkCompletion(entry)
    }
}

impl WorkCompletion {
    /// The number that the program gave the work request.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> CompletionStatus {
        self.0.status()
    }

    /// Did it succeed?
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.status == CompletionStatus::Success.number()
    }

    /// Itself if it succeeded, or else an error that says what happened.
    pub fn ok(&self) -> Result<&WorkCompletion, Error> {
        if self.is_success() {
            return Ok(self);
        }
        let what = if self.is_receive() { "receive" } else { "send" };
        Err(Error::Invalid(format!(
            "{what} {} of queue pair {:#x} ended in {:?} (vendor error {:#x})",
            self.id(),
            self.qp(),
            self.status(),
            self.vendor_error()
        )))
    }

    /// What was done. `None`: of a later version.
    #[inline]
    pub fn kind(&self) -> Option<CompletionKind> {
        CompletionKind::from_number(self.0.kind)
    }

    /// Is it of a receive?
    #[inline]
    pub fn is_receive(&self) -> bool {
        CompletionKind::is_receive(self.0.kind)
    }

    /// Number of the queue pair that it was posted to, or that took it from a shared receive queue.
    #[inline]
    pub fn qp(&self) -> u32 {
        self.0.qp
    }

    /// Bytes received (of datagrams with the 40 in front), read or fetched.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Immediate data, if there were any.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        self.has(completion_flags::IMM).then_some(self.0.imm)
    }

    /// The key that the peer took back, if it did.
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        self.has(completion_flags::INVALIDATED).then_some(self.0.imm)
    }

    /// Do the first 40 bytes of the buffer belong to the header?
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.has(completion_flags::GRH)
    }

    /// Of a datagram: queue pair of the sender.
    #[inline]
    pub fn source_qp(&self) -> u32 {
        self.0.source_qp
    }

    /// Of a datagram: Ethernet address of the sender.
    pub fn source_mac(&self) -> MacAddress {
        MacAddress(self.0.source_mac)
    }

    /// Of a datagram: the VLAN that it came on.
    pub fn vlan(&self) -> Option<u16> {
        self.has(completion_flags::VLAN).then_some(self.0.vlan)
    }

    /// Of a datagram: its service level.
    pub fn service_level(&self) -> u8 {
        self.0.service_level
    }

    /// When it was written, by the device's [clock](crate::Context::clock); zero if the device does not say.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.time)
    }

    /// On errors, for the device's developers.
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_error
    }

    /// Immediate data or the key that the peer took back, whichever there was.
    #[inline]
    pub fn imm_or_key(&self) -> u32 {
        self.0.imm
    }

    /// Number of [`kind`](WorkCompletion::kind), also of a later version.
    #[inline]
    pub fn kind_number(&self) -> u8 {
        self.0.kind
    }

    /// Its flags by their bits ([`completion_flags`]).
    #[inline]
    pub fn flags(&self) -> u8 {
        self.0.flags
    }

    /// Of a datagram: index of its partition key.
    #[inline]
    pub fn pkey_index(&self) -> u16 {
        self.0.pkey_index
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.0.flags & flag != 0
    }
}
