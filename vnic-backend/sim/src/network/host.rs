//! A host: the live engine, and a network interface that sends a packet when its link is free.

use std::collections::VecDeque;

use anyhow::{Context, Result};

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask, Congestion, CqHandle, Device, DeviceConfig, GidEntry, GidKind,
    Limits, Marking, Memory, Mtu, PdHandle, QpAttributes, QpInit, QpNumber, QpState, QpType, SendData,
    SendFlags, SendOp, SendWr, Sge, Span, SrqHandle, SrqInit, Unmapped, state,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::qos::{MarkRules, Trust};
use vnic_wire::time::Instant;

use super::scenario::Scenario;

/// Memory that holds nothing: what is written there is gone, what is read is left as it was.
#[derive(Debug)]
pub struct Nothing;

impl Memory for Nothing {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Unmapped> {
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Unmapped> {
        Ok(())
    }

    fn atomic(&self, _: u64, _: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        Ok(0)
    }

    fn copy_from(&self, _: u64, _: &dyn Memory, _: u64, _: u64) -> Result<(), Unmapped> {
        Ok(())
    }
}

/// Bytes of the one region that each host has.
const REGION: u64 = 1 << 40;
/// TTL that packets begin with.
pub const TTL: u8 = 64;
/// Priority of acknowledges where they go before data.
pub const CONTROL: u8 = 7;
/// Work requests of a queue pair.
const WORK: u32 = 8;

/// The end of a flow at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub host: usize,
    pub qp: QpNumber,
}

/// A host that has something to do.
pub struct Host {
    pub device: Device,
    pub side: Side,
    pd: PdHandle,
    cq: CqHandle,
    /// Nothing is received, but an own receive queue would tell how many receives are posted: each packet would be acknowledged.
    srq: SrqHandle,
    key: u32,
    remote: u32,
    timeout: u8,
}

/// What is beside the engine.
#[derive(Debug)]
pub struct Side {
    /// Its port.
    pub port: u32,
    /// The lane that a queue pair sends along, by the number's index.
    pub lanes: Vec<u32>,
    /// When its device is called, in ps; 0: not.
    pub timer_at: u64,
    /// When packets that wait to be worked through are done, in ps.
    pub working: VecDeque<u64>,
}

impl Side {
    /// The lane of a queue pair.
    pub fn lane(&self, qp: QpNumber) -> Option<u32> {
        self.lanes.get((qp.0 & INDEX) as usize).copied()
    }
}

/// Bits of a QP number that are its index ([`handle_bits`](vnic_engine::rdma::limits::handle_bits)).
const INDEX: u32 = (1 << 18) - 1;

fn mac(host: usize) -> MacAddr {
    let n = (host as u32).to_be_bytes();
    MacAddr([2, 0, n[0], n[1], n[2], n[3]])
}

fn gid(host: usize) -> Gid {
    let n = (host as u32).to_be_bytes();
    Gid::from_ipv4([10, n[1], n[2], n[3]])
}

/// The MTU of that many bytes.
pub fn mtu(bytes: u16) -> Result<Mtu> {
    let found = Mtu::ALL.into_iter().find(|m| m.bytes() == u32::from(bytes));
    found.with_context(|| format!("{bytes} bytes is no path MTU"))
}

impl Host {
    /// A host with an engine, and nothing connected.
    pub fn new(scenario: &Scenario, host: usize, port: u32, line_rate: u64, now: Instant) -> Result<Host> {
        let mut device = Device::new(DeviceConfig {
            mac: mac(host),
            limits: Limits::default(),
            mtu: Mtu::Mtu4096,
            trailers: false,
            pin_source_port: false,
            seed: 0,
            place: None,
        })?;
        device.set_gid(
            0,
            Some(GidEntry {
                gid: gid(host),
                kind: GidKind::RoceV2,
                vlan: None,
                mac: mac(host),
            }),
        )?;
        // A DSCP names a priority, eight each.
        device.set_marking(Marking {
            priorities: Trust::Dscp.into(),
            marks: MarkRules {
                default_dscp: 0,
                ..MarkRules::default()
            },
            ..Marking::default()
        });
        let mut priorities = 0;
        for flow in &scenario.flows {
            priorities |= 1 << (flow.priority & 7);
        }
        let control = &scenario.control;
        let limits = control.algorithm.name() != "none";
        let zero_touch = scenario.host.zero_touch;
        device.set_congestion(
            Congestion {
                control: control.algorithm.clone(),
                reaction: if limits { priorities } else { 0 },
                notification: if control.point.is_some() { priorities } else { 0 },
                point: control.point.unwrap_or_default(),
                line_rate,
                slack: std::time::Duration::from_micros(1),
                zero_touch: ZeroTouch {
                    slow_restart: zero_touch.slow_restart || limits,
                    ..zero_touch
                },
            },
            now,
        );
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(1 << 20)?;
        let srq = device.create_srq(SrqInit {
            pd,
            xrcd: None,
            cq: None,
            max_wr: 1,
            max_sge: 1,
        })?;
        let region = device.register(
            pd,
            0,
            Access::LOCAL_WRITE | Access::REMOTE,
            vec![Span { at: 0, len: REGION }],
        )?;
        Ok(Host {
            device,
            side: Side {
                port,
                lanes: Vec::new(),
                timer_at: 0,
                working: VecDeque::new(),
            },
            pd,
            cq,
            srq,
            key: region.lkey,
            remote: region.rkey,
            timeout: scenario.host.timeout & 31,
        })
    }

    /// Makes an end of a flow, not connected.
    pub fn open(&mut self) -> Result<QpNumber> {
        let made = self.device.create_qp(&QpInit {
            qp_type: QpType::Rc,
            pd: Some(self.pd),
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: Some(self.srq),
            xrcd: None,
            max_send_wr: WORK,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 0,
            max_inline: 0,
            signal_all: true,
        })?;
        Ok(made)
    }

    /// Connects it: what it sends goes along a lane, with a priority.
    pub fn connect(
        &mut self,
        qp: QpNumber,
        peer: End,
        (port, priority, mtu): (u16, u8, Mtu),
        lane: u32,
        now: Instant,
    ) -> Result<()> {
        let attributes = QpAttributes {
            path_mtu: mtu,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            destination_qp: peer.qp,
            access: Access::REMOTE,
            address: Some(AddressVector {
                dgid: gid(peer.host),
                dmac: mac(peer.host),
                sgid_index: 0,
                traffic_class: priority << 5,
                flow_label: 0,
                hop_limit: TTL,
                service_level: priority,
            }),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            timeout: self.timeout,
            retry_count: 7,
            rnr_retry: 7,
            udp_source_port: Some(port),
            ..QpAttributes::default()
        };
        let mut from = QpState::Reset;
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let needed = state::find(QpType::Rc, from, to).map(|t| t.required);
            let mut mask = needed.unwrap_or_default() | AttributeMask::STATE;
            if to == QpState::Rtr {
                mask |= AttributeMask::UDP_SOURCE_PORT;
            }
            let attributes = QpAttributes {
                state: to,
                ..attributes
            };
            self.device.modify_qp(qp, &attributes, mask, now)?;
            from = to;
        }
        let index = (qp.0 & INDEX) as usize;
        if self.side.lanes.len() <= index {
            self.side.lanes.resize(index + 1, u32::MAX);
        }
        self.side.lanes[index] = lane;
        Ok(())
    }

    /// Keys of its memory: for itself, and for others.
    pub fn keys(&self) -> (u32, u32) {
        (self.key, self.remote)
    }

    /// Posts a WRITE.
    pub fn write(&mut self, qp: QpNumber, id: u64, len: u32, rkey: u32) -> Result<()> {
        let sge = Sge {
            addr: 0,
            len,
            lkey: self.key,
        };
        self.device.post_send(
            qp,
            SendWr {
                id,
                tag: 0,
                op: SendOp::Write { addr: 0, rkey },
                flags: SendFlags::SIGNALED,
                data: SendData::Sges([sge].into_iter().collect()),
                ud: None,
                remote_srq: 0,
                access_key: 0,
            },
        )?;
        Ok(())
    }
}
