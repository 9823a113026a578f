//! Commands. Each is one descriptor chain of the control virtqueue.
//!
//! Device-readable: [`CommandHead`], then the command's body, then (if the command has one) a list. Device-writable:
//! [`ReplyHead`], then the reply's body. A body may lack fields that a later minor version added (they count as zero), and
//! may have more fields, if they are zero: so the two sides may be of different minor versions.

pub mod connection;
pub mod device;
pub mod flow;
pub mod memory;
pub mod qp;
pub mod queues;

numbers! {
    /// Number of a command.
    enum Opcode: u16 {
        /// Agree on a version: [`Hello`](device::Hello) → [`HelloReply`](device::HelloReply). The first command.
        Hello = 0,
        /// Query the device's attributes: → [`DeviceReply`](device::DeviceReply).
        QueryDevice = 1,
        /// Query the state of the port: → [`PortReply`](device::PortReply).
        QueryPort = 2,
        /// Query the GID table: [`Range`] → a list of [`GidRecord`](device::GidRecord)s.
        QueryGids = 3,
        /// Set or clear an entry of the GID table: [`GidRecord`](device::GidRecord).
        SetGid = 4,
        /// Query counters: [`Range`] → a list of [`CounterRecord`](device::CounterRecord)s.
        QueryCounters = 5,
        /// Query how many objects are in use: [`Range`] → a list of [`ResourceRecord`](device::ResourceRecord)s.
        QueryResources = 6,
        /// Query the clock of completions: → [`ClockReply`](device::ClockReply).
        QueryClock = 7,
        /// End all objects and start again with HELLO.
        Reset = 8,
        /// Ask whether a post fails on purpose: [`JudgePost`](device::JudgePost) → [`JudgePostReply`](device::JudgePostReply).
        /// Since 1.3.
        JudgePost = 9,
        /// Make a protection domain: → [`Object`].
        AllocPd = 16,
        /// End a protection domain: [`Object`].
        DeallocPd = 17,
        /// Register memory: [`RegisterMr`](memory::RegisterMr) and its extents → [`MrReply`](memory::MrReply).
        RegisterMr = 18,
        /// Change a region: [`ReregisterMr`](memory::ReregisterMr) and its extents → [`MrReply`](memory::MrReply).
        ReregisterMr = 19,
        /// End a region: [`Object`].
        DeregisterMr = 20,
        /// Make a memory window: [`AllocMw`](memory::AllocMw) → [`MwReply`](memory::MwReply).
        AllocMw = 21,
        /// End a memory window: [`Object`].
        DeallocMw = 22,
        /// Allocate device memory: [`AllocDm`](memory::AllocDm) → [`Object`].
        AllocDm = 23,
        /// Free device memory: [`Object`].
        FreeDm = 24,
        /// Write device memory: [`CopyDm`](memory::CopyDm) and the bytes.
        CopyToDm = 25,
        /// Read device memory: [`CopyDm`](memory::CopyDm) → the bytes.
        CopyFromDm = 26,
        /// Register device memory: [`RegisterDmMr`](memory::RegisterDmMr) → [`MrReply`](memory::MrReply).
        RegisterDmMr = 27,
        /// Register memory that is nowhere: [`Object`], the protection domain → [`MrReply`](memory::MrReply). Since 1.2.
        RegisterNullMr = 28,
        /// Register addresses whose pages come on demand: [`RegisterOnDemandMr`](memory::RegisterOnDemandMr) →
        /// [`MrReply`](memory::MrReply). Since 1.3.
        RegisterOnDemandMr = 29,
        /// Give pages to a region on demand, take them back or refuse them: [`SetPages`](memory::SetPages) and their extents.
        /// Since 1.3.
        SetPages = 30,
        /// Make a completion queue: [`CreateCq`](queues::CreateCq) and the extents of its ring → [`Object`].
        CreateCq = 32,
        /// Give a completion queue another ring: [`ResizeCq`](queues::ResizeCq) and its extents →
        /// [`ResizeCqReply`](queues::ResizeCqReply).
        ResizeCq = 33,
        /// End a completion queue: [`Object`].
        DestroyCq = 34,
        /// Make a shared receive queue: [`CreateSrq`](queues::CreateSrq) and the extents of its ring → [`Object`].
        CreateSrq = 36,
        /// Arm a shared receive queue's limit, or change how many receives may wait: [`ModifySrq`](queues::ModifySrq).
        ModifySrq = 37,
        /// Query a shared receive queue: [`Object`] → [`SrqReply`](queues::SrqReply).
        QuerySrq = 38,
        /// End a shared receive queue: [`Object`].
        DestroySrq = 39,
        /// Make an address handle: [`CreateAh`](qp::CreateAh) → [`Object`].
        CreateAh = 40,
        /// Query an address handle: [`Object`] → [`AddressVector`](qp::AddressVector).
        QueryAh = 41,
        /// End an address handle: [`Object`].
        DestroyAh = 42,
        /// Make an XRC domain: → [`Object`].
        OpenXrcd = 43,
        /// End an XRC domain: [`Object`].
        CloseXrcd = 44,
        /// Make a queue pair: [`CreateQp`](qp::CreateQp) and the extents of its rings, send ring first → [`Object`].
        CreateQp = 48,
        /// Change a queue pair: [`ModifyQp`](qp::ModifyQp).
        ModifyQp = 49,
        /// Query a queue pair, its attributes and what it was made with: [`Object`] → [`QpReply`](qp::QpReply).
        QueryQp = 50,
        /// End a queue pair; outstanding requests are flushed before the reply: [`Object`].
        DestroyQp = 51,
        /// Attach a QP to a multicast group: [`Multicast`](qp::Multicast).
        AttachMulticast = 52,
        /// Detach a QP from a multicast group: [`Multicast`](qp::Multicast).
        DetachMulticast = 53,
        /// Set the rate of a send queue: [`QpRate`](qp::QpRate). Since 1.1.
        ModifyQpRate = 54,
        /// Query the rate of a send queue: [`Object`] → [`QpRate`](qp::QpRate). Since 1.1.
        QueryQpRate = 55,
        /// Let a queue pair have frames that come: [`CreateFlow`](flow::CreateFlow) → [`Object`]. Since 1.6.
        CreateFlow = 56,
        /// End that: [`Object`]. Since 1.6.
        DestroyFlow = 57,
        /// Make a hash queue pair, which spreads its frames over others: [`CreateHashQp`](flow::CreateHashQp) → [`Object`].
        /// Since 1.8.
        CreateHashQp = 58,
        /// End a hash queue pair: [`Object`]. Since 1.8.
        DestroyHashQp = 59,
        /// Make a doorbell ring: [`CreateDoorbells`](queues::CreateDoorbells) and its extents → [`Object`].
        CreateDoorbells = 64,
        /// End a doorbell ring: [`Object`].
        DestroyDoorbells = 65,
        /// Listen for a service: [`Listen`](connection::Listen). Since 1.4.
        Listen = 72,
        /// Listen for a service no more: [`Listen`](connection::Listen). Since 1.4.
        Unlisten = 73,
        /// Ask a peer for a connection, or for the queue pair of a service: [`Message`](connection::Message) → [`Object`].
        /// Since 1.4.
        Connect = 74,
        /// Accept what a peer asked for or has accepted: [`Message`](connection::Message). Since 1.4.
        Accept = 75,
        /// Reject what a peer asked for or has accepted: [`Message`](connection::Message). Since 1.4.
        Reject = 76,
        /// End a connection, or agree to its end: [`Message`](connection::Message). Since 1.4.
        Disconnect = 77,
        /// Forget a connection: [`Object`]. Since 1.4.
        DestroyConnection = 78,
        /// Query a connection, and the attributes of its queue pair: [`Object`] →
        /// [`ConnectionReply`](connection::ConnectionReply). Since 1.4.
        QueryConnection = 79,
        /// Take what has happened to connections: → a list of [`ConnectionEvent`](connection::ConnectionEvent)s. Since 1.4.
        TakeConnectionEvents = 80,
    }
}

impl Opcode {
    /// Minor version that added the command.
    pub const fn since(self) -> u16 {
        match self {
            Opcode::ModifyQpRate | Opcode::QueryQpRate => 1,
            Opcode::RegisterNullMr => 2,
            Opcode::RegisterOnDemandMr | Opcode::SetPages | Opcode::JudgePost => 3,
            Opcode::Listen
            | Opcode::Unlisten
            | Opcode::Connect
            | Opcode::Accept
            | Opcode::Reject
            | Opcode::Disconnect
            | Opcode::DestroyConnection
            | Opcode::QueryConnection
            | Opcode::TakeConnectionEvents => 4,
            Opcode::CreateFlow | Opcode::DestroyFlow => 6,
            Opcode::CreateHashQp | Opcode::DestroyHashQp => 8,
            _ => 0,
        }
    }
}

/// No object, for fields of a body that may be empty.
pub const NONE: u32 = u32::MAX;

layouts! {
    /// The head in front of a command.
    struct CommandHead: 16 {
        /// [`Opcode`].
        0 opcode: u16,
        /// Bytes of the body, a multiple of 8. The list is behind it.
        2 body_len: u16,
        /// Bytes behind this head: body and list.
        4 len: u32,
        /// A number of the driver's; the reply gives it back.
        8 cookie: u64,
    }

    /// The head in front of a reply.
    struct ReplyHead: 16 {
        /// [`CommandStatus`](crate::status::CommandStatus).
        0 status: u32,
        /// Bytes behind this head: the body, or a text for people on an error.
        4 len: u32,
        /// The command's cookie.
        8 cookie: u64,
    }

    /// A body that is a handle.
    struct Object: 8 {
        /// The handle.
        0 handle: u32,
        /// Zero.
        4 reserved: u32,
    }

    /// The part of a list that is wanted.
    struct Range: 8 {
        /// Index of its first entry.
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
