//! Commands: one descriptor chain of the control virtqueue each.
//!
//! Device-readable: [`CommandHead`], then the command's body, then (where it says so) a list. Device-writable:
//! [`ReplyHead`], then the reply's body. A body may lack fields that a later minor version added (they count as zero), and
//! may have more, if they are zero: so both sides may be of different minor versions.

pub mod device;
pub mod memory;
pub mod qp;
pub mod queues;

numbers! {
    /// Which command it is.
    enum Opcode: u16 {
        /// Agree on a version: [`Hello`](device::Hello) → [`HelloReply`](device::HelloReply). Must be the first.
        Hello = 0,
        /// What the device can: → [`DeviceReply`](device::DeviceReply).
        QueryDevice = 1,
        /// State of the port: → [`PortReply`](device::PortReply).
        QueryPort = 2,
        /// The GID table: [`Range`] → a list of [`GidRecord`](device::GidRecord)s.
        QueryGids = 3,
        /// Set or clear an entry of the GID table: [`GidRecord`](device::GidRecord).
        SetGid = 4,
        /// Counters: [`Range`] → a list of [`CounterRecord`](device::CounterRecord)s.
        QueryCounters = 5,
        /// Objects in use: [`Range`] → a list of [`ResourceRecord`](device::ResourceRecord)s.
        QueryResources = 6,
        /// The clock of completions: → [`ClockReply`](device::ClockReply).
        QueryClock = 7,
        /// End all objects and start again with HELLO.
        Reset = 8,
        /// Make a protection domain: → [`Object`].
        AllocPd = 16,
        /// End it: [`Object`].
        DeallocPd = 17,
        /// Register memory: [`RegisterMr`](memory::RegisterMr) and its extents → [`MrReply`](memory::MrReply).
        RegisterMr = 18,
        /// Change a region: [`ReregisterMr`](memory::ReregisterMr) and its extents → [`MrReply`](memory::MrReply).
        ReregisterMr = 19,
        /// End a region: [`Object`].
        DeregisterMr = 20,
        /// Make a memory window: [`AllocMw`](memory::AllocMw) → [`MwReply`](memory::MwReply).
        AllocMw = 21,
        /// End it: [`Object`].
        DeallocMw = 22,
        /// Take device memory: [`AllocDm`](memory::AllocDm) → [`Object`].
        AllocDm = 23,
        /// Give it back: [`Object`].
        FreeDm = 24,
        /// Write into it: [`CopyDm`](memory::CopyDm) and the bytes.
        CopyToDm = 25,
        /// Read it: [`CopyDm`](memory::CopyDm) → the bytes.
        CopyFromDm = 26,
        /// Register it: [`RegisterDmMr`](memory::RegisterDmMr) → [`MrReply`](memory::MrReply).
        RegisterDmMr = 27,
        /// Make a completion queue: [`CreateCq`](queues::CreateCq) and the extents of its ring → [`Object`].
        CreateCq = 32,
        /// Give it another ring: [`ResizeCq`](queues::ResizeCq) and its extents →
        /// [`ResizeCqReply`](queues::ResizeCqReply).
        ResizeCq = 33,
        /// End it: [`Object`].
        DestroyCq = 34,
        /// Make a shared receive queue: [`CreateSrq`](queues::CreateSrq) and the extents of its ring → [`Object`].
        CreateSrq = 36,
        /// Arm its limit, or change how many receives may wait: [`ModifySrq`](queues::ModifySrq).
        ModifySrq = 37,
        /// What it holds: [`Object`] → [`SrqReply`](queues::SrqReply).
        QuerySrq = 38,
        /// End it: [`Object`].
        DestroySrq = 39,
        /// Make an address handle: [`CreateAh`](qp::CreateAh) → [`Object`].
        CreateAh = 40,
        /// What it was made with: [`Object`] → [`AddressVector`](qp::AddressVector).
        QueryAh = 41,
        /// End it: [`Object`].
        DestroyAh = 42,
        /// Make an XRC domain: → [`Object`].
        OpenXrcd = 43,
        /// End it: [`Object`].
        CloseXrcd = 44,
        /// Make a queue pair: [`CreateQp`](qp::CreateQp) and the extents of its rings, send ring first → [`Object`].
        CreateQp = 48,
        /// Change it: [`ModifyQp`](qp::ModifyQp).
        ModifyQp = 49,
        /// Its attributes, and what it was made with: [`Object`] → [`QpReply`](qp::QpReply).
        QueryQp = 50,
        /// End it; what was posted is flushed before the reply: [`Object`].
        DestroyQp = 51,
        /// Attach a QP to a multicast group: [`Multicast`](qp::Multicast).
        AttachMulticast = 52,
        /// Detach it: [`Multicast`](qp::Multicast).
        DetachMulticast = 53,
        /// Set the rate of its send queue: [`QpRate`](qp::QpRate). Since 1.1.
        ModifyQpRate = 54,
        /// The rate that was set: [`Object`] → [`QpRate`](qp::QpRate). Since 1.1.
        QueryQpRate = 55,
        /// Make a doorbell ring: [`CreateDoorbells`](queues::CreateDoorbells) and its extents → [`Object`].
        CreateDoorbells = 64,
        /// End it: [`Object`].
        DestroyDoorbells = 65,
    }
}

impl Opcode {
    /// Minor version that brought it.
    pub const fn since(self) -> u16 {
        match self {
            Opcode::ModifyQpRate | Opcode::QueryQpRate => 1,
            _ => 0,
        }
    }
}

/// No object, where a field of a body may be empty.
pub const NONE: u32 = u32::MAX;

layouts! {
    /// What stands in front of a command.
    struct CommandHead: 16 {
        /// [`Opcode`].
        0 opcode: u16,
        /// Bytes of the body, a multiple of 8. The list is behind it.
        2 body_len: u16,
        /// Bytes behind this head: body and list.
        4 len: u32,
        /// The driver's; the reply carries it back.
        8 cookie: u64,
    }

    /// What stands in front of a reply.
    struct ReplyHead: 16 {
        /// [`CommandStatus`](crate::status::CommandStatus).
        0 status: u32,
        /// Bytes behind this head: a body, or on an error a text for people.
        4 len: u32,
        /// The command's.
        8 cookie: u64,
    }

    /// A handle.
    struct Object: 8 {
        /// The handle.
        0 handle: u32,
        /// Zero.
        4 reserved: u32,
    }

    /// Where a list begins.
    struct Range: 8 {
        /// Index of the first entry that is wanted.
        0 first: u32,
        /// Zero.
        4 reserved: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_their_commands() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode.number()), Some(opcode));
        }
        assert_eq!(Opcode::from_number(0xffff), None);
    }

    #[test]
    fn body_lengths_fit_into_the_head() {
        for layout in crate::LAYOUTS.iter().copied().flatten() {
            assert!(layout.size <= usize::from(u16::MAX), "{}", layout.name);
        }
    }
}
