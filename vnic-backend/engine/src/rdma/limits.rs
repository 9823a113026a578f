//! Limits of a device, and how much of each is in use.

use super::handle::Table;
use super::types::{Object, VerbsError};

/// How many objects a device has and how large they may be (`ibv_device_attr`).
///
/// The defaults are what a ConnectX-5 or -6 reports (`ibv_devinfo -v`, as many public bug reports show it: `max_qp`
/// 131072, `max_qp_wr` 32768, `max_cqe` 4194303, `max_qp_rd_atom` 16, `max_srq_wr` 32767, `max_srq_sge` 31,
/// `max_ah` 2^31 - 1, 16 M each of CQs, regions and PDs). Where such a card counts in millions, the defaults are lower:
/// a handle keeps some bits to tell an old object from a new one, and an adapter's share of the daemon's memory must
/// have a bound.
// Wide: one number for each limit of `ibv_device_attr`, as the verb names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most outstanding work requests on a queue of a QP.
    pub max_qp_wr: u32,
    /// Most scatter/gather elements of a work request.
    pub max_sge: u32,
    /// Most bytes of an inline send.
    pub max_inline: u32,
    /// Most completion queues.
    pub max_cq: u32,
    /// Most entries of a completion queue.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Most bytes of a memory region.
    pub max_mr_size: u64,
    /// Most extents of all memory regions together: the entries of the translation table.
    pub max_mr_extents: u32,
    /// Most memory windows.
    pub max_mw: u32,
    /// Most protection domains.
    pub max_pd: u32,
    /// Most shared receive queues.
    pub max_srq: u32,
    /// Most outstanding work requests on a shared receive queue.
    pub max_srq_wr: u32,
    /// Most scatter elements of a work request on a shared receive queue.
    pub max_srq_sge: u32,
    /// Most address handles.
    pub max_ah: u32,
    /// Most XRC domains.
    pub max_xrcd: u32,
    /// Most connections of communication management.
    pub max_cm_id: u32,
    /// Most connections that the targets of the dynamically connected transport know, those included that were closed lately.
    pub max_dc_connections: u32,
    /// Most outstanding READs and atomics of a QP, as requester and as responder.
    pub max_rd_atomic: u8,
    /// Most work requests without a completion and completions that nobody has taken, of all queues together, that the device
    /// is given: further ones wait in the rings.
    pub max_requests: u32,
    /// Most multicast groups.
    pub max_mcast_groups: u32,
    /// Most QPs of a multicast group.
    pub max_mcast_qp_per_group: u32,
    /// Entries of the GID table.
    pub gid_table_len: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_qp: 131_072,
            max_qp_wr: 32_768,
            max_sge: 32,
            max_inline: 1024,
            max_cq: 1 << 20,
            max_cqe: 4_194_303,
            max_mr: 1 << 19,
            max_mr_size: u64::MAX,
            max_mr_extents: 1 << 22,
            max_mw: 1 << 18,
            max_pd: 1 << 20,
            max_srq: 1 << 18,
            max_srq_wr: 32_767,
            max_srq_sge: 31,
            max_ah: 1 << 20,
            max_xrcd: 1 << 16,
            max_cm_id: 1 << 16,
            max_dc_connections: 1024,
            max_rd_atomic: 16,
            max_requests: 1 << 17,
            max_mcast_groups: 8192,
            max_mcast_qp_per_group: 248,
            gid_table_len: 256,
        }
    }
}

/// Most QPs that any device may have: 18 bits of a QP number are its index (see [`handle_bits`]), QP 0 and 1 are
/// management's (IBTA chapter 13) and the last index would give 0xffffff, the multicast QP (IBTA 9.2).
pub const QP_LIMIT: u32 = (1 << 18) - 3;

/// How a handle is divided: bits of the index and bits in total. The bits above the index are the generation. Numbers of QPs
/// and SRQs travel in 24 bits (IBTA 9.2 and A14); keys have 24 bits that the device chooses (IBTA 10.6.3); a doorbell has 24
/// bits for the number of a QP, an SRQ or a CQ (proto/device, section 7).
pub const fn handle_bits(object: Object) -> (u32, u32) {
    match object {
        Object::Qp | Object::Srq => (18, 24),
        Object::Mr | Object::Mw | Object::Cq => (20, 24),
        Object::Pd | Object::Ah => (20, 32),
        Object::Xrcd | Object::Gid | Object::Multicast => (16, 32),
    }
}

/// A device's place in a function that several devices share: numbers of queue pairs and keys of memory are those of one
/// place only.
///
/// ```text
///  24 bits of the function's only device     g g g g g g i i i i i i i i i i i i i i i i i i     QP: 18 of index, 6 of generation
///  place 0                                   0 g g g g g i i i i i i i i i i i i i i i i i i
///  places 1 to 63                            1 p p p p p p g g g g i i i i i i i i i i i i i
/// ```
///
/// A process that is alone is at place 0, and misses next to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(u8);

impl Place {
    /// Number of places.
    pub const COUNT: u8 = 64;

    /// The place with this number, if there is one.
    pub const fn new(number: u8) -> Option<Place> {
        if number < Place::COUNT {
            Some(Place(number))
        } else {
            None
        }
    }

    /// The place's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The place of the device that gives out a number of a queue pair, or the upper 24 bits of a key.
    #[inline]
    pub const fn of(number: u32) -> Place {
        match number >> 23 {
            0 => Place(0),
            _ => Place((number >> 17) as u8 & (Place::COUNT - 1)),
        }
    }

    /// Upper bits of numbers that are the place, and what they are.
    const fn prefix(self) -> (u32, u32) {
        match self.0 {
            0 => (1, 0),
            n => (7, 0x40 | n as u32),
        }
    }
}

/// Bits of the index in the handles of a device at a place (`None`: the only device of its function).
pub const fn index_bits(object: Object, place: Option<Place>) -> u32 {
    match (object, place) {
        (Object::Qp, Some(Place(1..))) => 13,
        (Object::Mr | Object::Mw, Some(Place(1..))) => 14,
        _ => handle_bits(object).0,
    }
}

/// An empty table for the objects of a device at a place.
pub(super) fn table<T>(object: Object, limit: u32, place: Option<Place>) -> Table<T> {
    let table = Table::new(object, limit, index_bits(object, place), handle_bits(object).1);
    match (object, place) {
        (Object::Qp | Object::Mr | Object::Mw, Some(place)) => {
            let (bits, prefix) = place.prefix();
            table.with_prefix(bits, prefix)
        }
        _ => table,
    }
}

impl Limits {
    /// Limits of the device at a place of a function that has these: together the devices at all places hold no more requests.
    #[must_use]
    pub fn at(&self, place: Place) -> Limits {
        let parts = u32::from(Place::COUNT);
        match place.0 {
            0 => Limits {
                max_requests: (self.max_requests / 2).max(1),
                ..*self
            },
            _ => Limits {
                max_qp: self.max_qp.min(4096),
                max_cq: self.max_cq.min(1 << 14),
                max_mr: self.max_mr.min(1 << 13),
                max_mr_extents: self.max_mr_extents.min(1 << 18),
                max_mw: self.max_mw.min(1 << 12),
                max_pd: self.max_pd.min(1 << 14),
                max_srq: self.max_srq.min(1 << 12),
                max_ah: self.max_ah.min(1 << 14),
                max_xrcd: self.max_xrcd.min(1 << 10),
                max_cm_id: self.max_cm_id.min(1 << 12),
                max_requests: (self.max_requests / 2 / parts).max(1),
                ..*self
            },
        }
    }

    /// Checks that a device can be made of these limits; the error names the one that is wrong.
    pub fn check(&self) -> Result<(), VerbsError> {
        const fn most(object: Object) -> u64 {
            1 << handle_bits(object).0
        }
        // Regions and windows share one space of keys, and its index 0 is not used.
        let keys = most(Object::Mr) - 1;
        let rows = [
            ("max_qp", u64::from(self.max_qp), u64::from(QP_LIMIT)),
            ("max_qp_wr", self.max_qp_wr.into(), 1 << 20),
            ("max_sge", self.max_sge.into(), 256),
            ("max_inline", self.max_inline.into(), 4096),
            ("max_cq", self.max_cq.into(), most(Object::Cq)),
            ("max_cqe", self.max_cqe.into(), 1 << 30),
            ("max_mr", self.max_mr.into(), keys),
            (
                "max_mw",
                self.max_mw.into(),
                keys - u64::from(self.max_mr).min(keys),
            ),
            ("max_mr_extents", self.max_mr_extents.into(), 1 << 30),
            ("max_pd", self.max_pd.into(), most(Object::Pd)),
            ("max_srq", self.max_srq.into(), most(Object::Srq)),
            ("max_srq_wr", self.max_srq_wr.into(), 1 << 20),
            ("max_srq_sge", self.max_srq_sge.into(), 256),
            ("max_ah", self.max_ah.into(), most(Object::Ah)),
            ("max_xrcd", self.max_xrcd.into(), most(Object::Xrcd)),
            ("max_cm_id", self.max_cm_id.into(), 1 << 24),
            ("max_dc_connections", self.max_dc_connections.into(), 1 << 16),
            ("max_rd_atomic", self.max_rd_atomic.into(), 16),
            ("gid_table_len", self.gid_table_len.into(), 4096),
        ];
        for (what, value, max) in rows {
            in_range(what, value, 0, max)?;
        }
        Ok(())
    }
}

/// Checks that `value` is within `min..=max`.
pub(super) fn in_range<T>(what: &'static str, value: T, min: T, max: T) -> Result<(), VerbsError>
where
    T: Into<u64> + PartialOrd + Copy,
{
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(VerbsError::OutOfRange {
        what,
        value: value.into(),
        min: min.into(),
        max: max.into(),
    })
}

/// Objects of one kind that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Usage {
    /// In use now.
    pub used: u32,
    /// Most that there may be.
    pub limit: u32,
}

/// What is in use now, by type (as `rdma resource show` lists it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    /// Protection domains.
    pub pd: Usage,
    /// Completion queues.
    pub cq: Usage,
    /// Queue pairs.
    pub qp: Usage,
    /// Memory regions.
    pub mr: Usage,
    /// Extents of memory regions.
    pub mr_extents: Usage,
    /// Memory windows.
    pub mw: Usage,
    /// Shared receive queues.
    pub srq: Usage,
    /// Address handles.
    pub ah: Usage,
    /// XRC domains.
    pub xrcd: Usage,
    /// Connections of communication management.
    pub cm_id: Usage,
    /// Multicast groups.
    pub mcast_group: Usage,
    /// Entries of the GID table.
    pub gid: Usage,
}

impl Resources {
    /// All types by name: those of `rdma resource` where it has one.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Usage)> {
        [
            ("pd", self.pd),
            ("cq", self.cq),
            ("qp", self.qp),
            ("mr", self.mr),
            ("mr_extents", self.mr_extents),
            ("mw", self.mw),
            ("srq", self.srq),
            ("ah", self.ah),
            ("xrcd", self.xrcd),
            ("cm_id", self.cm_id),
            ("mcast_group", self.mcast_group),
            ("gid", self.gid),
        ]
        .into_iter()
    }
}
