//! What is simulated: hosts, switches, links, flows, parameters. Rates in bit/s, sizes in bytes, times in ns.

use std::sync::Arc;

use vnic_engine::congestion::CongestionControl;
use vnic_engine::congestion::none;
use vnic_engine::congestion::notification;
use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_fabric::qos::red::MILLION;
use vnic_fabric::qos::{Curve, Red};

/// A run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name, for reports.
    pub name: String,
    /// Whatever is random follows from it.
    pub seed: u64,
    /// Virtual time that is simulated, unless all flows end before.
    pub duration: u64,
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Path MTU of queue pairs: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// All switches.
    pub switch: SwitchSettings,
    /// All hosts.
    pub host: HostSettings,
    /// What flows to or from anybody do that says nothing else.
    pub control: Control,
    /// In any order.
    pub flows: Vec<Flow>,
    /// What is written down.
    pub record: Record,
}

/// Who is connected to whom. Nodes are hosts `0..hosts`, then switches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    /// How many nodes are hosts; each has one link.
    pub hosts: usize,
    /// How many are switches.
    pub switches: usize,
    /// Each in both directions.
    pub links: Vec<Link>,
    /// Names of nodes, for reports; may be shorter.
    pub names: Vec<String>,
}

/// A cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its ends.
    pub a: usize,
    /// The other end.
    pub b: usize,
    /// bit/s.
    pub rate: u64,
    /// Propagation, in ns.
    pub delay: u64,
}

/// A switch: shared memory, output queues, RED, flow control.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchSettings {
    /// Bytes of shared buffer; what does not fit is dropped.
    pub buffer: u64,
    /// Marking, of all classes and ports. With `scale`, thresholds are of a link of that many bit/s and grow with the link.
    pub red: Red,
    /// See `red`; 0: thresholds do not grow.
    pub red_scale: u64,
    /// When hosts and switches are told to wait.
    pub pfc: Pfc,
    /// Bytes below which of the XOFF threshold XON is said.
    pub xon_offset: u64,
    /// Packets that want it gather telemetry.
    pub telemetry: bool,
}

/// Thresholds of priority flow control, by ingress port and priority.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pfc {
    /// None: what does not fit is dropped.
    Off,
    /// XOFF at so many bytes.
    Static(u64),
    /// XOFF at this part of the free buffer (DCQCN, section 4: beta (B - 8 n t_flight - s) / 8; `beta` 8 there is 1 here).
    Dynamic(f64),
    /// XOFF at `factor` of the free buffer for ports of that rate in bit/s; a port of another rate may hold in proportion (HPCC's
    /// public code, where faster ports have a smaller shift).
    ByRate {
        /// Of a port of `rate`.
        factor: f64,
        /// bit/s.
        rate: u64,
    },
}

/// A host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostSettings {
    /// Time that a packet takes from the wire to the engine, and an acknowledge from there to the wire.
    pub delay: u64,
    /// Rate at which received packets are worked through, bit/s; 0: as they come. They queue before it (Swift, section 3.5).
    pub receive_rate: u64,
    /// Packets that may queue there; more are dropped. 0: any.
    pub receive_queue: u32,
    /// Acknowledges and CNPs go before data.
    pub control_first: bool,
    /// Packets of a million that are lost on their way into a host, at random.
    pub loss: u32,
    /// ACK timeout of queue pairs: 4.096 us times 2 to the power of this, 0..=31; 0: none.
    pub timeout: u8,
    /// Zero touch RoCE. Published networks have none of it; their senders restart slowly where congestion control limits them.
    pub zero_touch: ZeroTouch,
    /// Received packets are not worked through for the second time at the beginning of each of the first time, in ns: the software
    /// there does something else. The first one 0: it never does.
    pub receive_stall: (u64, u64),
}

/// Congestion control of a flow.
#[derive(Debug, Clone)]
pub struct Control {
    /// The algorithm.
    pub algorithm: Arc<dyn CongestionControl>,
    /// How marked packets are answered; `None`: not at all.
    pub point: Option<notification::Settings>,
}

/// Bytes from one host to another: RDMA WRITEs on a queue pair of their own.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Host that sends.
    pub from: usize,
    /// Host that receives.
    pub to: usize,
    /// In ns.
    pub start: u64,
    /// Bytes; `None`: without end.
    pub bytes: Option<u64>,
    /// Stops then, in ns, wherever it is.
    pub stop: Option<u64>,
    /// Priority, 0..=7. CNPs and acknowledges have their own.
    pub priority: u8,
    /// A name that flows share which belong together, for reports.
    pub group: u16,
}

/// What is written down.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// Statistics (queue percentiles, throughput, fairness) count from here, in ns.
    pub from: u64,
    /// Time between two samples of series, in ns; 0: no series.
    pub interval: u64,
    /// Queues that are sampled and of which the distribution is kept, as (switch or host, link): the egress of that node
    /// there. Empty: the one that most flows end at.
    pub queues: Vec<(usize, usize)>,
    /// Flows whose rates are sampled; empty: none.
    pub flows: Vec<usize>,
}

impl Scenario {
    /// On this network, with switches of [`SwitchSettings::paper`] and no congestion control; no flows yet. The rest is filled in
    /// by struct update.
    pub fn new(name: impl Into<String>, topology: Topology) -> Scenario {
        Scenario {
            name: name.into(),
            seed: 1,
            duration: 10_000_000,
            topology,
            mtu: 1024,
            switch: SwitchSettings::paper(),
            host: HostSettings::default(),
            control: Control::none(),
            flows: Vec::new(),
            record: Record::default(),
        }
    }
}

impl SwitchSettings {
    /// DCQCN's (SIGCOMM 2015): 12 MB shared, RED 5 KB / 200 KB / 1 % at dequeue, dynamic PFC with beta 8 (1 here), XON two
    /// packets below XOFF.
    pub fn paper() -> SwitchSettings {
        SwitchSettings {
            buffer: 12_000_000,
            red: SwitchSettings::red(5_000, 200_000, 0.01),
            red_scale: 0,
            pfc: Pfc::Dynamic(1.0),
            xon_offset: 2 * 1_100,
            telemetry: false,
        }
    }

    /// DCQCN+'s (ICNP 2018): as [`paper`](SwitchSettings::paper), RED 20 KB / 200 KB / 1 %.
    pub fn dcqcn_plus() -> SwitchSettings {
        SwitchSettings {
            red: SwitchSettings::red(20_000, 200_000, 0.01),
            ..SwitchSettings::paper()
        }
    }

    /// HPCC's (SIGCOMM 2019, section 5.1): 32 MB shared, RED 100 KB / 400 KB / 20 % at 25 Gb/s and growing with the link, XOFF
    /// at 11 % of the free buffer for ports of 100 Gb/s and in proportion for others (the paper only says 11 %; its code does this),
    /// telemetry.
    pub fn hpcc() -> SwitchSettings {
        SwitchSettings {
            buffer: 32_000_000,
            red: SwitchSettings::red(100_000, 400_000, 0.2),
            red_scale: 25_000_000_000,
            pfc: Pfc::ByRate {
                factor: 0.11,
                rate: 100_000_000_000,
            },
            xon_offset: 3_000,
            telemetry: true,
        }
    }

    /// Marks everything beyond `bytes` (DCTCP; the strawman of DCQCN, section 4).
    pub fn step(bytes: u32) -> SwitchSettings {
        SwitchSettings {
            red: SwitchSettings::red(bytes, bytes, 1.0),
            ..SwitchSettings::paper()
        }
    }

    /// No marks and no flow control: what does not fit into `buffer` bytes is dropped.
    pub fn tail_drop(buffer: u64) -> SwitchSettings {
        SwitchSettings {
            buffer,
            red: Red::default(),
            pfc: Pfc::Off,
            ..SwitchSettings::paper()
        }
    }

    /// Marks at dequeue, with the probability `pmax` (0..=1) at `kmax`.
    pub fn red(kmin: u32, kmax: u32, pmax: f64) -> Red {
        Red {
            enable: true,
            green: Curve {
                kmin,
                kmax,
                pmax: (pmax * f64::from(MILLION)).round() as u32,
            },
            ..Red::default()
        }
    }
}

impl Default for HostSettings {
    /// Hosts that take no time; acknowledges and CNPs go first.
    fn default() -> HostSettings {
        HostSettings {
            delay: 0,
            receive_rate: 0,
            receive_queue: 0,
            loss: 0,
            control_first: true,
            timeout: 14,
            zero_touch: ZeroTouch::OFF,
            receive_stall: (0, 0),
        }
    }
}

impl Control {
    /// None: flows send as fast as their link does.
    pub fn none() -> Control {
        Control {
            algorithm: Arc::new(none::None),
            point: None,
        }
    }

    /// An algorithm that wants to be notified, once in 50 us and queue pair.
    pub fn notified(algorithm: impl CongestionControl + 'static) -> Control {
        Control {
            algorithm: Arc::new(algorithm),
            point: Some(notification::Settings::default()),
        }
    }

    /// An algorithm that learns from acknowledges alone.
    pub fn unnotified(algorithm: impl CongestionControl + 'static) -> Control {
        Control {
            algorithm: Arc::new(algorithm),
            point: None,
        }
    }
}
