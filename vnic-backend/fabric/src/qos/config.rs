//! Configuration of a port by the operator.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use vnic_wire::EtherType;
use vnic_wire::pause::{FRAME_LEN, QUANTUM_BITS};
use vnic_wire::qos::{Guard, HintSettings, Lifetimes, SendRules};

use super::classify::Classification;
use super::{LEVELS, PRIORITIES, Red, VlArbitration, WIRE_OVERHEAD, check};

/// How a traffic class gets its turn (`mlnx_qos --tsa`; IEEE 802.1Q clause 8.6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Tsa {
    /// In turn with all other such classes, before all others; a card's default.
    #[default]
    Vendor,
    /// Before all ETS classes; among strict ones the higher number first.
    Strict,
    /// A share of what strict classes leave (enhanced transmission selection).
    Ets,
}

/// Traffic classes of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    /// Traffic class (0..=7), or virtual lane (0..=14), by priority.
    pub of_priority: [u8; PRIORITIES],
    /// Traffic class or virtual lane by service level less 8, of frames of service levels 8..=15: their tag has the priority code point of a priority,
    /// and is drop eligible. `None`: that of the priority.
    pub of_upper: Option<[u8; PRIORITIES]>,
    /// Traffic class or virtual lane by service level (0..=15) of what came by one of these ports, in place of [`of_priority`](Classes::of_priority)
    /// and [`of_upper`](Classes::of_upper) (IBTA volume 1, 14.2.5.8: SLtoVLMappingTable, by input and output port).
    pub by_source: Vec<(u16, [u8; LEVELS])>,
    /// How each class gets its turn.
    pub tsa: [Tsa; PRIORITIES],
    /// Percent of each [`Tsa::Ets`] class; 0 for all others. The sum is at most 100; shares are weights of what stricter
    /// classes leave.
    pub share: [u8; PRIORITIES],
    /// Most that each class may send, in bit/s on the wire; 0: no limit.
    pub limit: [u64; PRIORITIES],
    /// Classes are virtual lanes and get their turns by these tables; [`tsa`](Classes::tsa) and shares have no effect. Those above 7 have neither
    /// a limit nor marks, nor a lifetime.
    pub arbitration: Option<VlArbitration>,
}

impl Classes {
    /// Traffic class by service level.
    pub fn of_level(&self) -> [u8; LEVELS] {
        let upper = self.of_upper.unwrap_or(self.of_priority);
        let mut all = [0; LEVELS];
        all[..PRIORITIES].copy_from_slice(&self.of_priority);
        all[PRIORITIES..].copy_from_slice(&upper);
        all
    }

    /// Whether service levels 8..=15 may have other classes than their priorities.
    pub fn has_upper(&self) -> bool {
        let differs = |(_, table): &(u16, [u8; LEVELS])| table[..PRIORITIES] != table[PRIORITIES..];
        self.of_upper.is_some() || self.by_source.iter().any(differs)
    }
}

impl Default for Classes {
    /// Priorities 0 and 1 change places (IEEE 802.1Q-2018, table 8-5; register QTCT; Linux, mlx5 `en_dcbnl.c`).
    fn default() -> Self {
        Classes {
            of_priority: [1, 0, 2, 3, 4, 5, 6, 7],
            of_upper: None,
            by_source: Vec::new(),
            tsa: [Tsa::Vendor; PRIORITIES],
            share: [0; PRIORITIES],
            limit: [0; PRIORITIES],
            arbitration: None,
        }
    }
}

/// Flow control of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PauseSettings {
    /// Whether global pause is sent (IEEE 802.3 annex 31B). Without effect while `pfc` names a priority.
    pub global_tx: bool,
    /// Whether global pause is obeyed. Without effect while `pfc` names a priority.
    pub global_rx: bool,
    /// Whether a frame waits for a guest's receive buffers while global pause is sent, as frames of priorities in `pfc` do.
    pub global_waits: bool,
    /// Priorities with priority flow control (IEEE 802.1Q clause 36), sent and obeyed, a bit each. They are lossless.
    pub pfc: u8,
}

impl PauseSettings {
    /// Priorities whose frames wait for a guest's receive buffers, a bit each.
    pub const fn waiting(self) -> u8 {
        match self {
            PauseSettings { pfc: 0, .. } if self.global_tx && self.global_waits => 0xff,
            PauseSettings { pfc, .. } => pfc,
        }
    }
}

/// Room for frames that wait at a port, and the part of it for frames that are under way when senders are told to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes of all frames that wait at the port, without headroom.
    pub size: u32,
    /// Bytes of one source and priority from which on that source is told to wait (XOFF); a lossy priority drops there.
    pub xoff: u32,
    /// Bytes of one source and priority at which that source is told to go on (XON); below `xoff`.
    pub xon: u32,
    /// Bytes of one source and lossless priority that still fit when the source is told to wait: frames that were under
    /// way. They do not count in `size`.
    pub headroom: u32,
    /// Metres of cable, from which [`Buffer::headroom_for`] is computed (`mlnx_qos --cable_len`).
    pub cable_len: u8,
    /// Beta, in per cent: `xoff` is never more than this part of what is left of the room (dynamic thresholds: Choudhury and Hahne
    /// 1998; DCQCN, SIGCOMM 2015, section 4).
    pub beta: u16,
    /// Parts of the room, if it has parts.
    pub parts: Option<BufferParts>,
}

impl Buffer {
    /// Values of [`beta`](Buffer::beta): 1/100 to 64.
    pub const BETA_RANGE: RangeInclusive<u16> = 1..=6400;
}

/// Receive buffers of a port, and which priority has which (`mlnx_qos --buffer_size`, `--prio2buffer`; register PBMC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferParts {
    /// Bytes of each buffer, together at most [`Buffer::size`]; 0: no such buffer.
    pub size: [u32; PRIORITIES],
    /// Buffer (0..=7) by priority.
    pub of_priority: [u8; PRIORITIES],
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            size: 4 << 20,
            xoff: 256 << 10,
            xon: 192 << 10,
            headroom: 256 << 10,
            cable_len: 7,
            beta: 100,
            parts: None,
        }
    }
}

/// Limits and guarantees of an adapter, by traffic class (WinOF-2 Ethernet Network, Hardware QoS Offload): bit/s on the
/// wire, 0: none. All supported classes have a limit or none has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduleQueue {
    /// Most that each class may send.
    pub limit: [u64; PRIORITIES],
    /// Rate of a port that this class gets before others share the rest.
    pub guarantee: [u64; PRIORITIES],
}

/// EtherType that says "tag" on a port's wire (IEEE 802.1Q clause 9.5): a neighbour may have another than 0x8100, which all tags have
/// within the NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tpid(pub u16);

impl Tpid {
    /// EtherTypes that mean something else.
    const OTHERS: [EtherType; 6] = [
        EtherType::IPV4,
        EtherType::IPV6,
        EtherType::ARP,
        EtherType::ROCE,
        EtherType::MAC_CONTROL,
        EtherType::SLOW_PROTOCOLS,
    ];

    /// Whether tags are the same on the wire and within the NIC.
    #[inline]
    pub fn is_plain(self) -> bool {
        self == Tpid::default()
    }

    /// Turns the outer tag of a frame from the wire into one of the NIC. False: the frame has a tag by 0x8100, which is none there.
    pub fn take(self, frame: &mut [u8]) -> bool {
        let plain = EtherType::VLAN.0.to_be_bytes();
        match frame.get_mut(12..14) {
            Some(at) if *at == self.0.to_be_bytes() => at.copy_from_slice(&plain),
            Some(at) if *at == plain => return false,
            _ => {}
        }
        true
    }

    /// Turns the outer tag of a frame to the wire into one of the wire's.
    pub fn give(self, frame: &mut [u8]) {
        if let Some(at) = frame.get_mut(12..14)
            && *at == EtherType::VLAN.0.to_be_bytes()
        {
            at.copy_from_slice(&self.0.to_be_bytes());
        }
    }

    pub(super) fn check(self) -> Result<(), QosError> {
        const LEAST: u16 = 0x0600;
        if self.0 >= LEAST && !Tpid::OTHERS.contains(&EtherType(self.0)) {
            return Ok(());
        }
        let problem = alloc::format!(
            "{:#06x} is no TPID: 0x0600 to 0xffff are allowed, but for EtherTypes of IP, ARP, RoCE, MAC control and slow protocols",
            self.0
        );
        Err(QosError {
            field: "tpid",
            problem,
        })
    }
}

impl Default for Tpid {
    fn default() -> Self {
        Tpid(EtherType::VLAN.0)
    }
}

/// The whole configuration of a port. The default changes nothing and costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortQos {
    /// Speed of the link in bit/s; 0: not limited.
    pub rate: u64,
    /// Tags on the wire; an adapter has the default.
    pub tpid: Tpid,
    /// Priorities of frames.
    pub classification: Classification,
    /// Traffic classes.
    pub classes: Classes,
    /// Flow control.
    pub pause: PauseSettings,
    /// Room for frames that wait.
    pub buffer: Buffer,
    /// Storm prevention.
    pub guard: Guard,
    /// Head-of-queue lifetime.
    pub lifetimes: Lifetimes,
    /// ECN hint.
    pub hint: HintSettings,
    /// Marking by traffic class.
    pub ecn: [Red; PRIORITIES],
    /// An adapter's schedule queue.
    pub queue: Option<ScheduleQueue>,
    /// How its frames wait to be sent.
    pub sending: SendRules,
}

/// Why a configuration is refused. The text names field, value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct QosError {
    /// The field, as the control plane names it.
    pub field: &'static str,
    /// What is wrong and what is allowed.
    pub problem: alloc::string::String,
}

impl PortQos {
    /// Whether frames for this port have to be queued: some setting can make one wait for another.
    pub fn queues(&self) -> bool {
        self.rate != 0
            || self.classes.limit.iter().any(|l| *l != 0)
            || self.pause.waiting() != 0
            || self.lifetimes.enable != 0
            || self.hint.enable
            || self.marks()
    }

    /// Whether packets are marked, or dropped early, by what waits in their class.
    pub fn marks(&self) -> bool {
        self.ecn.iter().any(|red| red.enable)
    }

    /// Whether frames from this port must be classified or held back.
    pub fn polices(&self) -> bool {
        self.rate != 0
            || self.classes.limit.iter().any(|l| *l != 0)
            || self.pause.pfc != 0
            || self.queue.is_some()
            || self.sending.queue_per_priority
            || !self.classification.is_plain()
            || !self.classification.policies.is_empty()
    }

    /// Whether the colour of a packet may decide about it.
    pub fn has_colours(&self) -> bool {
        self.ecn.iter().any(Red::has_colours)
    }

    /// Priorities of which no frame is dropped for want of room.
    pub fn lossless(&self) -> u8 {
        match self.pause {
            p if p.pfc != 0 => p.pfc,
            p if p.global_tx => 0xff,
            _ => 0,
        }
    }

    /// Checks all rules that need to know no more than this port.
    pub fn check(&self) -> Result<(), QosError> {
        check::check(self)
    }
}

impl Buffer {
    /// Bytes that can arrive after a pause frame was sent, at this rate (bit/s; 0: as at 100 Gbit/s) over this cable
    /// (metres), with frames of this MTU; rounded up to whole KiB.
    ///
    /// IEEE 802.1Q annex N, simplified. The sum is: one full-size frame that found no room, one that the pause frame has to
    /// wait for, the pause frame, the cable there and back (5 ns a metre), the time that the peer may take to obey (IEEE
    /// 802.3 clause 31B.3.7: 60 quanta up to 10 Gbit/s, 118 up to 40, 394 above; delays of its interfaces included), and
    /// one full-size frame that it has just begun then.
    pub fn headroom_for(rate: u64, cable_len: u8, mtu: u16) -> u32 {
        let rate = if rate == 0 { 100_000_000_000 } else { rate };
        let quanta = match rate {
            0..=10_000_000_000 => 60,
            10_000_000_001..=40_000_000_000 => 118,
            _ => 394,
        };
        // Ethernet header and VLAN tag beside the MTU.
        let frame = u64::from(mtu) + 18 + u64::from(WIRE_OVERHEAD);
        let pause = FRAME_LEN as u64 + u64::from(WIRE_OVERHEAD);
        let cable = 2 * 5 * u128::from(cable_len) * u128::from(rate) / 8_000_000_000;
        let bytes = u128::from(3 * frame + pause + quanta * QUANTUM_BITS / 8) + cable;
        u32::try_from(bytes.next_multiple_of(1024)).unwrap_or(u32::MAX)
    }
}
