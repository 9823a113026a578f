//! Models of the parts without locks: loom takes two or three threads through every order in which they can meet, and every load
//! through every value that the orderings of its program let it see.
//!
//! The parts are the product's own files, built once more: `crate::sync` is loom's here, and what they use of their
//! neighbours is a stand-in. In [`models`] are the threads, each with what a guest or a data core does around the part.
//! Every model has been seen to fail with each ordering or second look that its comment names taken away.

// (The files of others have tests of their own, which know nothing of loom.)
#![cfg(not(test))]

pub mod models;

#[path = "../../../guest-lib/src/extents.rs"]
mod extents;
mod mem;
mod rdma_memory;
mod shared;
mod sync;
#[allow(dead_code, reason = "stand-ins have what files name, not what models read")]
mod transport;

use transport::Error;

#[allow(dead_code, reason = "models use a part of each file")]
#[path = "../../../vnic-backend/src/datapath"]
mod datapath {
    pub mod dpc;
    pub mod gate;
    pub mod link;

    pub mod frame {
        use vnic_engine::virtio_net::NetHdr;

        use crate::mem::Seg;

        pub const SNAP: usize = 64;

        /// In the place of what a data core knows of a frame.
        pub struct Metadata;

        /// In the place of a frame.
        pub struct RawFrame<'a> {
            pub head: &'a [u8],
            pub len: usize,
            pub hdr: NetHdr,
            pub segs: &'a [Seg<'a>],
            pub skip: usize,
        }

        /// In the place of a copy that waits.
        pub struct OwnedFrame {
            pub bytes: Vec<u8>,
            pub hdr: NetHdr,
            pub meta: Metadata,
        }
    }
}

#[allow(dead_code, reason = "models use a part of each file")]
#[path = "../../../vnic-backend/src/ring"]
mod ring {
    pub mod chain;
    pub mod split;
}

#[allow(
    dead_code,
    unused_unsafe,
    reason = "models use a part of each file; atomics are no addresses here"
)]
#[path = "../../../vnic-backend/src/rdma"]
mod rdma {
    pub mod doorbells;
    pub mod shared_ring;

    pub(crate) use crate::rdma_memory as memory;
}

#[allow(dead_code, reason = "models use a part of each file")]
#[path = "../../../vnic-backend/src/mem/sigbus"]
mod sigbus {
    pub mod slot;

    /// In the place of a VMM's connection.
    pub struct Lender;
}

#[allow(dead_code, reason = "models use a part of each file")]
#[path = "../../../vnic-backend/src/uplink"]
mod uplink {
    pub mod exchange;
    pub mod frames;
}

#[allow(dead_code, reason = "models use a part of each file")]
#[path = "../../../guest-lib/src/driver"]
mod driver {
    pub mod virtqueue;

    pub mod doorbells {
        pub mod ring;

        /// Few, so that a ring is soon full.
        pub const ENTRIES: u32 = 4;
    }
}
