//! Partitions (IBTA 10.9): the P_Keys of a device's port, and packets that came with others.

use vnic_wire::gid::Gid;
use vnic_wire::pkey::PkeyTable;
use vnic_wire::transport::Extended;

use super::marks::Mark;
use super::packet::Incoming;
use super::shared::Shared;
use super::types::QpNumber;

/// Packets whose P_Key was not that of their queue pair (the trap "bad P_Key" of IBTA 14.2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PkeyViolation {
    /// P_Key of the first of them.
    pub pkey: u16,
    /// P_Key of the queue pair that it was for; 0: it was for queue pair 1, which takes all of the port's.
    pub own: u16,
    /// That queue pair.
    pub qp: QpNumber,
    /// Where it came from.
    pub source: Gid,
    /// The queue pair that sent it, if it says so: a datagram does.
    pub source_qp: Option<QpNumber>,
    /// How many there were.
    pub packets: u64,
}

/// The P_Keys of the port.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    pub table: PkeyTable,
    /// Packets with others, since somebody took the report.
    pub violation: Option<PkeyViolation>,
}

impl Partitions {
    /// P_Key of a datagram between management's queue pairs about a connection in a partition: the port's own, the first one if it
    /// has none of that partition.
    pub fn of_a_datagram(&self, pkey: u16) -> u16 {
        self.table.get(self.table.index_of(pkey).unwrap_or(0))
    }
}

impl Shared {
    /// A packet came with a P_Key that is not that of its queue pair, which is `own`: it is dropped without an answer
    /// (IBTA 9.6.1.1.3) and counted.
    #[cold]
    #[inline(never)]
    pub fn wrong_partition(&mut self, own: u16, packet: &Incoming<'_>) {
        self.counters.drop_pkey_mismatch += 1;
        self.marks.hit(Mark::WrongPartition);
        let bth = &packet.headers.bth;
        let source_qp = match packet.headers.extended {
            Extended::Deth(deth) | Extended::DethImm(deth, _) => Some(QpNumber(deth.source_qp)),
            _ => None,
        };
        let first = PkeyViolation {
            pkey: bth.pkey,
            own,
            qp: QpNumber(bth.destination_qp),
            source: packet.path.network.source(),
            source_qp,
            packets: 0,
        };
        self.partitions.violation.get_or_insert(first).packets += 1;
    }
}
