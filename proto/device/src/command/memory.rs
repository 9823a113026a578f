//! Commands about memory: regions, windows, device memory.

use crate::ring::ExtentList;

layouts! {
    /// Body of [`Opcode::RegisterMr`](super::Opcode::RegisterMr).
    struct RegisterMr: 24 {
        /// Protection domain.
        0 pd: u32,
        /// [`access`](crate::verbs::access).
        4 access: u32,
        /// Address of the first byte, as work requests and peers name it.
        8 iova: u64,
        /// The memory.
        16 extents: ExtentList,
    }

    /// Body of [`Opcode::ReregisterMr`](super::Opcode::ReregisterMr).
    struct ReregisterMr: 32 {
        /// The region.
        0 mr: u32,
        /// [`reregister`](crate::verbs::reregister): which of the following fields count.
        4 change: u32,
        /// The new registration, as when the region was registered.
        8 register: RegisterMr,
    }

    /// Reply to commands that give a region keys.
    struct MrReply: 16 {
        /// The region.
        0 mr: u32,
        /// Local key.
        4 lkey: u32,
        /// Remote key.
        8 rkey: u32,
        /// Zero.
        12 reserved: u32,
    }

    /// Body of [`Opcode::AllocMw`](super::Opcode::AllocMw).
    struct AllocMw: 8 {
        /// Protection domain.
        0 pd: u32,
        /// [`MwType`](crate::verbs::MwType).
        4 mw_type: u32,
    }

    /// Reply to [`Opcode::AllocMw`](super::Opcode::AllocMw).
    struct MwReply: 8 {
        /// The window.
        0 mw: u32,
        /// Remote key of the window.
        4 rkey: u32,
    }

    /// Body of [`Opcode::AllocDm`](super::Opcode::AllocDm).
    struct AllocDm: 16 {
        /// Length in bytes.
        0 len: u64,
        /// Alignment: 2^n bytes.
        8 log_alignment: u32,
        /// Zero.
        12 reserved: u32,
    }

    /// Body of [`Opcode::CopyToDm`](super::Opcode::CopyToDm) and [`Opcode::CopyFromDm`](super::Opcode::CopyFromDm).
    struct CopyDm: 16 {
        /// The device memory.
        0 dm: u32,
        /// Bytes, a multiple of 4.
        4 len: u32,
        /// First byte, a multiple of 4.
        8 offset: u64,
    }

    /// Body of [`Opcode::RegisterDmMr`](super::Opcode::RegisterDmMr).
    struct RegisterDmMr: 32 {
        /// Protection domain.
        0 pd: u32,
        /// [`access`](crate::verbs::access), with `ZERO_BASED`.
        4 access: u32,
        /// The device memory.
        8 dm: u32,
        /// Zero.
        12 reserved: u32,
        /// First byte, a multiple of 4.
        16 offset: u64,
        /// Bytes, a multiple of 4.
        24 len: u64,
    }

    /// Body of [`Opcode::RegisterOnDemandMr`](super::Opcode::RegisterOnDemandMr).
    struct RegisterOnDemandMr: 32 {
        /// Protection domain.
        0 pd: u32,
        /// [`access`](crate::verbs::access).
        4 access: u32,
        /// Address of the first byte, as work requests and peers name it.
        8 iova: u64,
        /// Length in bytes.
        16 len: u64,
        /// Guest-physical address of a word of 8 bytes: while it is not 0, the device uses no page of the region.
        24 hold: u64,
    }

    /// Body of [`Opcode::SetPages`](super::Opcode::SetPages).
    struct SetPages: 32 {
        /// The region.
        0 mr: u32,
        /// [`pages`](crate::verbs::pages).
        4 flags: u32,
        /// First byte, from the region's first.
        8 start: u64,
        /// Length in bytes.
        16 len: u64,
        /// The memory, of `len` bytes; empty: there is none.
        24 extents: ExtentList,
    }
}
