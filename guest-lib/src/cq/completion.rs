//! Completions.

use std::time::Duration;

use vnic_device::queue::{CompletionEntry, CompletionKind};
use vnic_device::verbs::CompletionStatus;

pub use vnic_device::queue::completion_flags;

use crate::{Error, MacAddress};

/// How a work request ended (`ibv_wc`).
///
/// Unless it succeeded, only [`id`](WorkCompletion::id), [`qp`](WorkCompletion::qp),
/// [`status`](WorkCompletion::status), [`vendor_error`](WorkCompletion::vendor_error) and
/// [`is_receive`](WorkCompletion::is_receive) mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct WorkCompletion(pub(crate) CompletionEntry);

impl From<CompletionEntry> for WorkCompletion {
    /// Makes a completion of an entry, for tests of what is built on this crate.
    fn from(entry: CompletionEntry) -> WorkCompletion {
        WorkCompletion(entry)
    }
}

impl WorkCompletion {
    /// The id of the work request.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How the work request ended.
    #[inline]
    pub fn status(&self) -> CompletionStatus {
        self.0.status()
    }

    /// Whether the work request succeeded.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.status == CompletionStatus::Success.number()
    }

    /// The completion itself if the request succeeded, or else an error that says what happened.
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

    /// What was done. `None`: an operation of a later version of the contract.
    #[inline]
    pub fn kind(&self) -> Option<CompletionKind> {
        CompletionKind::from_number(self.0.kind)
    }

    /// Whether a receive completed.
    #[inline]
    pub fn is_receive(&self) -> bool {
        CompletionKind::is_receive(self.0.kind)
    }

    /// Number of the queue pair that the request was posted to, or that took it from a shared receive queue.
    #[inline]
    pub fn qp(&self) -> u32 {
        self.0.qp
    }

    /// Bytes received (with the 40 in front of a datagram), read or fetched.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Immediate data, if the peer sent any.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        self.has(completion_flags::IMM).then_some(self.0.imm)
    }

    /// The key that the peer invalidated, if it did.
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        self.has(completion_flags::INVALIDATED).then_some(self.0.imm)
    }

    /// For a raw packet: whether its checksums of IPv4, TCP and UDP were found right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        self.has(completion_flags::CHECKSUM_OK)
    }

    /// Whether the first 40 bytes of the buffer are a global routing header.
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.has(completion_flags::GRH)
    }

    /// For a datagram: queue pair of the sender.
    #[inline]
    pub fn source_qp(&self) -> u32 {
        self.0.source_qp
    }

    /// For a datagram: Ethernet address of the sender.
    pub fn source_mac(&self) -> MacAddress {
        MacAddress(self.0.source_mac)
    }

    /// For a datagram: the VLAN that it came on.
    pub fn vlan(&self) -> Option<u16> {
        self.has(completion_flags::VLAN).then_some(self.0.vlan)
    }

    /// For a datagram: its service level.
    pub fn service_level(&self) -> u8 {
        self.0.service_level
    }

    /// For a datagram: its network header, a number of the contract's `NetworkHeader`: 0 a GRH (RoCE v1, or a device before version
    /// 1.4 of the contract), 1 IPv6, 2 IPv4 (both RoCE v2).
    pub fn network_header(&self) -> u8 {
        self.0.network
    }

    /// When the device wrote the completion, or a raw packet queue pair's frame came to the machine, where that is known: by the device's
    /// [clock](crate::Context::clock). Zero if the device does not say.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.time)
    }

    /// A code for the device's developers, of errors.
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_error
    }

    /// Immediate data or the invalidated key, whichever there was.
    #[inline]
    pub fn imm_or_key(&self) -> u32 {
        self.0.imm
    }

    /// Number of the [`kind`](WorkCompletion::kind), also of a later version of the contract.
    #[inline]
    pub fn kind_number(&self) -> u8 {
        self.0.kind
    }

    /// The completion's flags by their bits ([`completion_flags`]).
    #[inline]
    pub fn flags(&self) -> u8 {
        self.0.flags
    }

    /// For a datagram: index of its partition key.
    #[inline]
    pub fn pkey_index(&self) -> u16 {
        self.0.pkey_index
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.0.flags & flag != 0
    }
}
