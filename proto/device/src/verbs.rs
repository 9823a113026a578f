//! Numbers of the verbs, as libibverbs' `verbs.h` has them.

use crate::queue::Operation;

numbers! {
    /// Transport service of a queue pair (`ibv_qp_type`).
    enum QpType: u32 {
        /// Reliable connection.
        Rc = 2,
        /// Unreliable connection.
        Uc = 3,
        /// Unreliable datagram.
        Ud = 4,
        /// Whole Ethernet frames (`IBV_QPT_RAW_PACKET`).
        RawPacket = 8,
        /// Sending end of an extended reliable connection (`IBV_QPT_XRC_SEND`).
        XrcInitiator = 9,
        /// Receiving end of an extended reliable connection (`IBV_QPT_XRC_RECV`).
        XrcTarget = 10,
        /// Target of dynamic connections (`IBV_QPT_DRIVER` with `MLX5DV_DCTYPE_DCT`; the number is ours: 256 and that one).
        DcTarget = 257,
        /// Initiator of dynamic connections (`IBV_QPT_DRIVER` with `MLX5DV_DCTYPE_DCI`; the number is ours: 256 and that one).
        DcInitiator = 258,
    }

    /// State of a queue pair (`ibv_qp_state`).
    enum QpState: u8 {
        /// Just created: nothing is sent, received or posted.
        Reset = 0,
        /// Receives may be posted.
        Init = 1,
        /// Ready to receive.
        Rtr = 2,
        /// Ready to send.
        Rts = 3,
        /// Send queue drained or draining.
        Sqd = 4,
        /// Send queue error (UC and UD).
        Sqe = 5,
        /// Error: everything is flushed.
        Err = 6,
    }

    /// Path MTU (`ibv_mtu`).
    enum Mtu: u8 {
        /// 256 bytes.
        Mtu256 = 1,
        /// 512 bytes.
        Mtu512 = 2,
        /// 1024 bytes.
        Mtu1024 = 3,
        /// 2048 bytes.
        Mtu2048 = 4,
        /// 4096 bytes.
        Mtu4096 = 5,
    }

    /// Kind of a memory window (`ibv_mw_type`).
    enum MwType: u32 {
        /// A window for all QPs of the protection domain; the device chooses its key.
        Type1 = 1,
        /// A window for one QP; its owner chooses the low 8 bits of the key.
        Type2 = 2,
    }

    /// How packets of a GID travel (`ibv_gid_type`, and 0 for an entry that is empty).
    enum GidKind: u8 {
        /// There is no entry.
        None = 0,
        /// RoCE v1.
        RoceV1 = 1,
        /// RoCE v2.
        RoceV2 = 2,
    }

    /// State of the port (`ibv_port_state`).
    enum PortState: u8 {
        /// Down.
        Down = 1,
        /// Up.
        Active = 4,
    }

    /// With whom atomics are atomic (`ibv_atomic_cap`).
    enum AtomicScope: u32 {
        /// There are no atomics.
        None = 0,
        /// With all other RDMA atomics on this device's memory.
        Device = 1,
        /// With the processors' atomics, too.
        Global = 2,
    }

    /// How a work request ended (`ibv_wc_status`).
    enum CompletionStatus: u8 {
        /// Done.
        Success = 0,
        /// A length that does not fit: of a message, or of the receive buffer.
        LocalLengthError = 1,
        /// A work request that cannot be carried out, or an error in the device's own handling of the QP.
        LocalQpOperationError = 2,
        /// An invalid local key, or one without the right that was needed.
        LocalProtectionError = 4,
        /// The request was not carried out: the QP was in the error state.
        FlushError = 5,
        /// A window that could not be bound, or a key that could not be invalidated.
        MwBindError = 6,
        /// A response that the protocol does not allow.
        BadResponseError = 7,
        /// An access error hit the receive.
        LocalAccessError = 8,
        /// The peer refused the request as invalid.
        RemoteInvalidRequestError = 9,
        /// The peer's keys forbade it.
        RemoteAccessError = 10,
        /// The peer could not carry out the request.
        RemoteOperationError = 11,
        /// No acknowledge after all retries.
        RetryExceeded = 12,
        /// The receiver was not ready after all retries.
        RnrRetryExceeded = 13,
        /// The peer gave up.
        RemoteAborted = 15,
    }

    /// What a flow takes (`ibv_flow_attr_type`).
    enum FlowKind: u32 {
        /// Frames whose fields match.
        Normal = 0,
        /// Frames that no other flow takes.
        AllDefault = 1,
        /// Multicast frames that no other flow takes.
        MulticastDefault = 2,
        /// A copy of every frame, whoever else takes the frame.
        Sniffer = 3,
    }

    /// What is posted.
    enum Post: u32 {
        /// A send (`ibv_post_send`).
        Send = 0,
        /// A receive of a queue pair (`ibv_post_recv`).
        Receive = 1,
        /// A receive of a shared queue (`ibv_post_srq_recv`).
        SharedReceive = 2,
    }

    /// With what a post fails on purpose: errors of Linux, with its numbers.
    enum PostErrno: u32 {
        /// Not permitted.
        Eperm = 1,
        /// Input or output error.
        Eio = 5,
        /// Try again.
        Eagain = 11,
        /// No memory.
        Enomem = 12,
        /// Bad address.
        Efault = 14,
        /// Busy.
        Ebusy = 16,
        /// No such device.
        Enodev = 19,
        /// Invalid argument.
        Einval = 22,
        /// No space.
        Enospc = 28,
        /// Not supported.
        Eopnotsupp = 95,
    }
}

impl Post {
    /// The bit of such posts in sets of posts.
    #[inline]
    pub const fn bit(self) -> u32 {
        1 << self.number()
    }
}

impl Mtu {
    /// Payload bytes of a full packet (IBTA 9.2.1).
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self.number()
    }
}

impl QpType {
    /// Whether the service acknowledges and retries.
    pub const fn reliable(self) -> bool {
        !matches!(self, QpType::Uc | QpType::Ud | QpType::RawPacket)
    }

    /// Whether this type of QP has the operation (IBTA 9.4 and annex A14).
    #[inline]
    pub const fn allows(self, operation: Operation) -> bool {
        use Operation as O;
        const ANY: u32 = O::Send.bit() | O::SendImm.bit();
        const CONNECTED: u32 =
            ANY | O::Write.bit() | O::WriteImm.bit() | O::BindMw.bit() | O::LocalInvalidate.bit();
        const RELIABLE: u32 =
            CONNECTED | O::SendInvalidate.bit() | O::Read.bit() | O::CompareSwap.bit() | O::FetchAdd.bit();
        let all = match self {
            QpType::Rc | QpType::XrcInitiator | QpType::DcInitiator => RELIABLE,
            QpType::Uc => CONNECTED,
            QpType::Ud => ANY,
            QpType::RawPacket => O::Send.bit(),
            QpType::XrcTarget | QpType::DcTarget => 0,
        };
        all & operation.bit() != 0
    }
}

bits! {
    /// What a key allows: bits of `ibv_access_flags`, and our own at bit 31 (`SPEC.md`, section 11.1).
    access Access: u32 {
        /// The own queue pairs write: receives, results of READs and atomics.
        LOCAL_WRITE = 1 << 0,
        /// Peers WRITE. Needs LOCAL_WRITE.
        REMOTE_WRITE = 1 << 1,
        /// Peers READ.
        REMOTE_READ = 1 << 2,
        /// Peers do atomics. Needs LOCAL_WRITE.
        REMOTE_ATOMIC = 1 << 3,
        /// Windows may be bound.
        MW_BIND = 1 << 4,
        /// Addresses count from zero.
        ZERO_BASED = 1 << 5,
        /// LOCAL_INVALIDATE and a peer's SEND with invalidate may take the key back.
        INVALIDATE = 1 << 31,
    } + {
        /// Bits that may be set and mean nothing here: they are optional in verbs (`IBV_ACCESS_OPTIONAL_RANGE`).
        IGNORED = 0x3ff0_0000,
    }
}

impl Access {
    /// All rights that a peer may need: LOCAL_WRITE and the remote rights.
    pub const REMOTE_ALL: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC);
}

/// Headers that a frame must have to be a flow's: bits of [`CreateFlow::headers`](crate::command::flow::CreateFlow).
pub mod flow_headers {
    /// IPv4.
    pub const IPV4: u32 = 1 << 0;
    /// IPv6.
    pub const IPV6: u32 = 1 << 1;
    /// TCP.
    pub const TCP: u32 = 1 << 2;
    /// UDP.
    pub const UDP: u32 = 1 << 3;
    /// VXLAN (UDP port 4789).
    pub const VXLAN: u32 = 1 << 4;
    /// IPv4 inside of the tunnel.
    pub const INNER_IPV4: u32 = 1 << 5;
    /// IPv6 inside of the tunnel.
    pub const INNER_IPV6: u32 = 1 << 6;
    /// TCP inside of the tunnel.
    pub const INNER_TCP: u32 = 1 << 7;
    /// UDP inside of the tunnel.
    pub const INNER_UDP: u32 = 1 << 8;
    /// Every bit there is.
    pub const ALL: u32 = 511;
    /// Bits of version 1.6.
    pub const ALL_1_6: u32 = 31;
    /// From an outer header to the same one inside.
    pub const INNER_SHIFT: u32 = 5;
}

/// What of a frame a hash queue pair hashes: numbers of virtio 1.3, section 5.1.6.4.3.1, and [`INNER`](hash_types::INNER).
pub mod hash_types {
    /// Addresses of IPv4.
    pub const IPV4: u32 = 1 << 0;
    /// Addresses and ports of TCP over IPv4.
    pub const TCPV4: u32 = 1 << 1;
    /// Addresses and ports of UDP over IPv4.
    pub const UDPV4: u32 = 1 << 2;
    /// Addresses of IPv6.
    pub const IPV6: u32 = 1 << 3;
    /// Addresses and ports of TCP over IPv6.
    pub const TCPV6: u32 = 1 << 4;
    /// Addresses and ports of UDP over IPv6.
    pub const UDPV6: u32 = 1 << 5;
    /// Of a packet in a tunnel the inner headers.
    pub const INNER: u32 = 1 << 6;
    /// Every bit there is.
    pub const ALL: u32 = 127;
}

/// Bits of `ibv_rereg_mr_flags`.
pub mod reregister {
    /// Address and extents.
    pub const TRANSLATION: u32 = 1 << 0;
    /// Protection domain.
    pub const PD: u32 = 1 << 1;
    /// Rights.
    pub const ACCESS: u32 = 1 << 2;
    /// Every bit there is.
    pub const ALL: u32 = 7;
}

/// What [`SetPages`](crate::command::memory::SetPages) says of pages.
pub mod pages {
    /// The device may write there.
    pub const WRITE: u32 = 1 << 0;
    /// Nobody has asked for them.
    pub const PREFETCH: u32 = 1 << 1;
    /// There are none, and whoever waits for them is refused.
    pub const REFUSED: u32 = 1 << 2;
    /// Every bit there is.
    pub const ALL: u32 = 7;
}

/// Bits of `ibv_srq_attr_mask`.
pub mod srq_mask {
    /// `max_wr`.
    pub const MAX_WR: u32 = 1 << 0;
    /// `limit`.
    pub const LIMIT: u32 = 1 << 1;
    /// Every bit there is.
    pub const ALL: u32 = 3;
}

bits! {
    /// Which fields of [`QpAttributes`](crate::command::qp::QpAttributes) are meant: bits of `ibv_qp_attr_mask`, and our own at
    /// bit 31 (`SPEC.md`, section 5.5).
    qp_mask QpMask: u32 {
        /// `state`.
        STATE = 1 << 0,
        /// `current_state`: the command fails in another state.
        CURRENT_STATE = 1 << 1,
        /// `drained_event` (`IBV_QP_EN_SQD_ASYNC_NOTIFY`).
        DRAINED_EVENT = 1 << 2,
        /// `access`.
        ACCESS = 1 << 3,
        /// `pkey_index`.
        PKEY_INDEX = 1 << 4,
        /// `port`.
        PORT = 1 << 5,
        /// `qkey`.
        QKEY = 1 << 6,
        /// `address` (`IBV_QP_AV`).
        ADDRESS = 1 << 7,
        /// `path_mtu`.
        PATH_MTU = 1 << 8,
        /// `timeout`.
        TIMEOUT = 1 << 9,
        /// `retry_count`.
        RETRY_COUNT = 1 << 10,
        /// `rnr_retry`.
        RNR_RETRY = 1 << 11,
        /// `rq_psn`.
        RQ_PSN = 1 << 12,
        /// `max_rd_atomic`.
        MAX_RD_ATOMIC = 1 << 13,
        /// `min_rnr_timer`.
        MIN_RNR_TIMER = 1 << 15,
        /// `sq_psn`.
        SQ_PSN = 1 << 16,
        /// `max_dest_rd_atomic`.
        MAX_DEST_RD_ATOMIC = 1 << 17,
        /// `destination_qp`.
        DESTINATION_QP = 1 << 20,
        /// `udp_source_port`; this bit is ours.
        UDP_SOURCE_PORT = 1 << 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_are_ignored_are_no_others() {
        assert_eq!(access::ALL & access::IGNORED, 0);
    }

    #[test]
    fn numbers_that_are_not_there_are_refused() {
        assert_eq!(QpType::from_number(0), None);
        assert_eq!(QpState::from_number(7), None);
        assert_eq!(CompletionStatus::from_number(3), None);
        assert_eq!(PortState::from_number(4), Some(PortState::Active));
        assert_eq!(CompletionStatus::RemoteAborted.number(), 15);
    }
}
