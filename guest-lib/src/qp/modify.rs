//! States of queue pairs (`SPEC.md`, section 5.5).

use std::sync::atomic::Ordering::{Relaxed, Release};

use vnic_device::command::Opcode;
use vnic_device::command::qp::{ModifyQp, QpRate, QpReply};
use vnic_device::verbs::{QpState, QpType};

use super::{
    ConnectOptions, Connected, DcInitiator, DcTarget, Endpoint, QpAttributes, QpKind, QpMask, QpQuery,
    QueuePair, RateLimit, RawPacket, RtrAttributes, RtsAttributes, Ud,
};
use crate::sync::lock;
use crate::{Access, AddressVector, Context, Error, Gid, Mtu};

/// READs and atomics of [`ConnectOptions`] by default.
const RD_ATOMIC: u32 = 16;

impl<K: QpKind> QueuePair<K> {
    /// Changes the attributes that `mask` names. The device checks what `SPEC.md` allows in a state.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::{QpAttributes, QpMask};
    ///
    /// let mut attributes = QpAttributes::default();
    /// attributes.min_rnr_timer = 12;
    /// qp.modify(&attributes, QpMask::MIN_RNR_TIMER)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), Error> {
        let qp = &*self.inner;
        let body = ModifyQp {
            qp: qp.number,
            mask: mask.bits(),
            attributes: *attributes,
        };
        let _one_at_a_time = lock(&qp.modifying);
        let state = mask
            .contains(QpMask::STATE)
            .then(|| QpState::from_number(attributes.state))
            .flatten();
        if state != Some(QpState::Reset) {
            let () = qp.core.call(qp.epoch, Opcode::ModifyQp, &body)?;
            if let Some(state) = state {
                qp.state.store(state.number(), Release);
            }
            return Ok(());
        }
        // Nothing may be posted while the command is on its way; after it both sides count from 0 again.
        let mut send = lock(&qp.send);
        let mut receive = lock(&qp.receive);
        let () = qp.core.call(qp.epoch, Opcode::ModifyQp, &body)?;
        qp.state.store(QpState::Reset.number(), Release);
        // Completions that lie in the queues are of the time before: they free nothing.
        self.inner.attach();
        send.reset();
        receive.reset();
        qp.consumed.send.store(0, Relaxed);
        qp.consumed.receive.store(0, Relaxed);
        Ok(())
    }

    /// Asks the device for the queue pair's attributes.
    pub fn query(&self) -> Result<QpQuery, Error> {
        let qp = &*self.inner;
        let reply: QpReply = qp
            .core
            .about_since(qp.epoch, Opcode::QueryQp, qp.number, QpReply::LEN_1_0)?;
        Ok(QpQuery {
            attributes: reply.attributes,
            created: reply.created,
        })
    }

    /// Limits the rate of the send queue (`ibv_modify_qp_rate_limit`), in any state, also while it sends.
    /// [`to_reset`](QueuePair::to_reset) takes the limit away. A device of version 1.0 refuses it as not supported.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::RateLimit;
    ///
    /// qp.set_rate_limit(RateLimit::kbps(1_000_000))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        let qp = &*self.inner;
        let body = QpRate {
            qp: qp.number,
            rate: limit.rate,
            max_burst: limit.max_burst,
            typical_packet: limit.typical_packet,
            reserved: 0,
        };
        qp.core.call(qp.epoch, Opcode::ModifyQpRate, &body)
    }

    /// The rate limit that was set.
    pub fn rate_limit(&self) -> Result<RateLimit, Error> {
        let qp = &*self.inner;
        let reply: QpRate = qp.core.about(qp.epoch, Opcode::QueryQpRate, qp.number)?;
        Ok(RateLimit {
            rate: reply.rate,
            max_burst: reply.max_burst,
            typical_packet: reply.typical_packet,
        })
    }

    /// Goes back to RTS: from SQD, or (UC, UD) from SQE.
    pub fn resume(&self) -> Result<(), Error> {
        self.to(QpState::Rts, QpAttributes::default(), QpMask::empty())
    }

    /// Goes to ERR: outstanding requests are flushed.
    pub fn to_error(&self) -> Result<(), Error> {
        self.to(QpState::Err, QpAttributes::default(), QpMask::empty())
    }

    /// Goes to RESET: outstanding requests are forgotten, and so are completions that were not taken.
    pub fn to_reset(&self) -> Result<(), Error> {
        self.to(QpState::Reset, QpAttributes::default(), QpMask::empty())
    }

    /// Goes to SQD: sends that have begun complete, the others wait for [`resume`](QueuePair::resume). With `event`,
    /// [`SendQueueDrained`](crate::AsyncEvent::SendQueueDrained) is raised when the queue has drained.
    pub fn to_sqd(&self, event: bool) -> Result<(), Error> {
        let attributes = QpAttributes {
            drained_event: event.into(),
            ..QpAttributes::default()
        };
        self.to(QpState::Sqd, attributes, QpMask::DRAINED_EVENT)
    }

    /// The path MTU, and the READs and atomics that may be outstanding where the options say nothing.
    fn defaults(&self, options: &ConnectOptions) -> Result<(Mtu, u8), Error> {
        let context = Context {
            core: std::sync::Arc::clone(&self.inner.core),
        };
        let path_mtu = match options.path_mtu {
            Some(mtu) => mtu,
            None => context.query_port()?.active_mtu(),
        };
        // The device's limit is at most 255: the attribute has 8 bits.
        let most = context.query_device().max_rd_atomic.min(RD_ATOMIC) as u8;
        Ok((path_mtu, most))
    }

    fn to(&self, state: QpState, attributes: QpAttributes, mask: QpMask) -> Result<(), Error> {
        let attributes = QpAttributes {
            state: state.number(),
            ..attributes
        };
        self.modify(&attributes, mask | QpMask::STATE)
    }
}

impl QueuePair<DcInitiator> {
    /// Goes from RESET to RTS. Of the options those of the port, of time and of retries count.
    pub fn to_ready(&self, options: &ConnectOptions) -> Result<(), Error> {
        let (path_mtu, most) = self.defaults(options)?;
        self.to(QpState::Init, init(), INIT)?;
        let attributes = QpAttributes {
            path_mtu: path_mtu.number(),
            max_rd_atomic: options.max_rd_atomic.unwrap_or(most),
            timeout: options.timeout,
            retry_count: options.retry_count,
            rnr_retry: options.rnr_retry,
            sq_psn: self.psn(),
            udp_source_port: options.udp_source_port.unwrap_or_default(),
            ..QpAttributes::default()
        };
        let mut mask = QpMask::PATH_MTU;
        mask.set(QpMask::UDP_SOURCE_PORT, options.udp_source_port.is_some());
        self.to(QpState::Rtr, attributes, mask)?;
        let retries = QpMask::TIMEOUT | QpMask::RETRY_COUNT | QpMask::RNR_RETRY;
        self.to(
            QpState::Rts,
            attributes,
            retries | QpMask::SQ_PSN | QpMask::MAX_RD_ATOMIC,
        )
    }
}

impl QueuePair<DcTarget> {
    /// Goes from RESET to RTR, in which it takes requests. Of the options those count that say what peers may do and how they are answered.
    pub fn to_ready(&self, options: &ConnectOptions) -> Result<(), Error> {
        let (path_mtu, _) = self.defaults(options)?;
        let attributes = QpAttributes {
            access: options.access.bits(),
            path_mtu: path_mtu.number(),
            min_rnr_timer: options.min_rnr_timer,
            address: AddressVector {
                dgid: Gid::default(),
                dmac: None,
                sgid_index: options.gid_index,
                flow_label: options.flow_label,
                traffic_class: options.traffic_class,
                hop_limit: options.hop_limit,
                service_level: options.service_level,
            }
            .into(),
            udp_source_port: options.udp_source_port.unwrap_or_default(),
            ..init()
        };
        self.to(QpState::Init, attributes, INIT | QpMask::ACCESS)?;
        let mut mask = QpMask::ADDRESS | QpMask::PATH_MTU | QpMask::MIN_RNR_TIMER;
        mask.set(QpMask::UDP_SOURCE_PORT, options.udp_source_port.is_some());
        self.to(QpState::Rtr, attributes, mask)
    }
}

/// Attributes from RESET to INIT that both kinds need.
fn init() -> QpAttributes {
    QpAttributes {
        port: 1,
        pkey_index: 0,
        ..QpAttributes::default()
    }
}

const INIT: QpMask = QpMask::PORT.union(QpMask::PKEY_INDEX);

impl<K: Connected> QueuePair<K> {
    /// Goes to INIT: receives may be posted. `access`: what the peer may do.
    pub fn to_init(&self, access: Access) -> Result<(), Error> {
        self.to_init_in(access, 0)
    }

    /// As [`to_init`](QueuePair::to_init), in the partition at an index.
    fn to_init_in(&self, access: Access, pkey_index: u16) -> Result<(), Error> {
        let attributes = QpAttributes {
            access: access.bits(),
            pkey_index,
            ..init()
        };
        self.to(QpState::Init, attributes, INIT | QpMask::ACCESS)
    }

    /// Goes to RTR: ready to receive.
    pub fn to_rtr(&self, rtr: &RtrAttributes) -> Result<(), Error> {
        let mut mask = QpMask::ADDRESS | QpMask::PATH_MTU | QpMask::DESTINATION_QP | QpMask::RQ_PSN;
        if matches!(K::TYPE, QpType::Rc | QpType::XrcTarget) {
            mask |= QpMask::MAX_DEST_RD_ATOMIC | QpMask::MIN_RNR_TIMER;
        }
        if rtr.udp_source_port.is_some() {
            mask |= QpMask::UDP_SOURCE_PORT;
        }
        let attributes = QpAttributes {
            path_mtu: rtr.path_mtu.number(),
            max_dest_rd_atomic: rtr.max_dest_rd_atomic,
            min_rnr_timer: rtr.min_rnr_timer,
            udp_source_port: rtr.udp_source_port.unwrap_or_default(),
            rq_psn: rtr.rq_psn,
            destination_qp: rtr.destination_qp,
            address: rtr.address.into(),
            ..QpAttributes::default()
        };
        self.to(QpState::Rtr, attributes, mask)
    }

    /// Goes to RTS: ready to send.
    pub fn to_rts(&self, rts: &RtsAttributes) -> Result<(), Error> {
        let mut mask = QpMask::SQ_PSN;
        if !matches!(K::TYPE, QpType::Uc) {
            mask |= QpMask::TIMEOUT;
        }
        if matches!(K::TYPE, QpType::Rc | QpType::XrcInitiator) {
            mask |= QpMask::RETRY_COUNT | QpMask::RNR_RETRY | QpMask::MAX_RD_ATOMIC;
        }
        let attributes = QpAttributes {
            max_rd_atomic: rts.max_rd_atomic,
            timeout: rts.timeout,
            retry_count: rts.retry_count,
            rnr_retry: rts.rnr_retry,
            sq_psn: rts.sq_psn,
            ..QpAttributes::default()
        };
        self.to(QpState::Rts, attributes, mask)
    }

    /// Connects to the peer: INIT (unless the queue pair is there already), RTR, RTS. Post receives that must be
    /// there when the peer begins between [`to_init`](QueuePair::to_init) and this call.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>, line: &str) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::{ConnectOptions, Endpoint};
    ///
    /// println!("{}", qp.endpoint(1)?); // for the peer, by any way
    /// let peer: Endpoint = line.parse()?;
    /// qp.connect(&peer, &ConnectOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        let (path_mtu, most) = self.defaults(options)?;
        if self.state() == QpState::Reset {
            self.to_init_in(options.access, options.pkey_index)?;
        }
        self.to_rtr(&RtrAttributes {
            address: AddressVector {
                dgid: peer.gid,
                dmac: peer.mac,
                sgid_index: options.gid_index,
                flow_label: options.flow_label,
                traffic_class: options.traffic_class,
                hop_limit: options.hop_limit,
                service_level: options.service_level,
            },
            path_mtu,
            destination_qp: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: options.max_dest_rd_atomic.unwrap_or(most),
            min_rnr_timer: options.min_rnr_timer,
            udp_source_port: options.udp_source_port,
        })?;
        self.to_rts(&RtsAttributes {
            sq_psn: self.psn(),
            timeout: options.timeout,
            retry_count: options.retry_count,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic.unwrap_or(most),
        })
    }
}

impl QueuePair<RawPacket> {
    /// Makes the queue pair ready: INIT, RTR, RTS, as far as it is not there yet.
    pub fn activate(&self) -> Result<(), Error> {
        if self.state() == QpState::Reset {
            self.to(QpState::Init, init(), QpMask::PORT)?;
        }
        self.to(QpState::Rtr, QpAttributes::default(), QpMask::empty())?;
        self.to(QpState::Rts, QpAttributes::default(), QpMask::empty())
    }

    /// Makes the queue pair ready to receive only: INIT, RTR.
    pub(crate) fn receive_only(&self) -> Result<(), Error> {
        self.to(QpState::Init, init(), QpMask::PORT)?;
        self.to(QpState::Rtr, QpAttributes::default(), QpMask::empty())
    }
}

impl QueuePair<Ud> {
    /// Goes to INIT: receives may be posted. `qkey`: the Q_Key that senders must know.
    pub fn to_init(&self, qkey: u32) -> Result<(), Error> {
        let attributes = QpAttributes { qkey, ..init() };
        self.to(QpState::Init, attributes, INIT | QpMask::QKEY)
    }

    /// Goes to RTR: ready to receive.
    pub fn to_rtr(&self) -> Result<(), Error> {
        self.to(QpState::Rtr, QpAttributes::default(), QpMask::empty())
    }

    /// Goes to RTS: ready to send.
    pub fn to_rts(&self) -> Result<(), Error> {
        let attributes = QpAttributes {
            sq_psn: self.psn(),
            ..QpAttributes::default()
        };
        self.to(QpState::Rts, attributes, QpMask::SQ_PSN)
    }

    /// Makes the queue pair ready: INIT (unless it is there already), RTR, RTS.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Ud>) -> Result<(), vnic_verbs::Error> {
    /// qp.activate(0x1234)?; // senders name this Q_Key
    /// # Ok(())
    /// # }
    /// ```
    pub fn activate(&self, qkey: u32) -> Result<(), Error> {
        if self.state() == QpState::Reset {
            self.to_init(qkey)?;
        }
        self.to_rtr()?;
        self.to_rts()
    }
}
