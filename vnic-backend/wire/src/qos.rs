//! Settings that an adapter's keys, the switch and the RDMA function share: priorities by fields of headers, marks, and how
//! long frames may wait. The numbers of words are those of the keys (WinOF-2 Ethernet Network) and of register QPTS. A new key
//! of a group is a field here: a group reaches whoever acts on it as a whole.

use core::ops::RangeInclusive;

use crate::pause;

/// Which field of a received frame names its priority (`RxTrustedState`; register QPTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Trust {
    /// None: all frames have the port's default priority.
    Port = 0,
    /// The priority code point of a tag; without one, the port's default priority.
    #[default]
    Pcp = 1,
    /// The DSCP of an IP packet; otherwise the port's default priority.
    Dscp = 2,
    /// The DSCP of an IP packet, otherwise the priority code point, otherwise the port's default priority.
    Both = 3,
}

/// What names the priority of a frame, beside the map by DSCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PriorityRules {
    /// `RxTrustedState`: the field that names the priority.
    pub trust: Trust,
    /// `DefaultUntaggedPriority`: priority of frames without such a field (register QPDP).
    pub default_priority: u8,
    /// `RxUntaggedMapToLossless`: frames without a tag count as lossless, and go to the first priority that has flow control.
    pub untagged_to_lossless: bool,
}

impl From<Trust> for PriorityRules {
    fn from(trust: Trust) -> Self {
        PriorityRules {
            trust,
            ..PriorityRules::default()
        }
    }
}

/// Drop precedence of a frame: which profile of its traffic class counts for it (IEEE 802.1Q clause 6.9.3, drop eligible; RFC 2597,
/// three precedences).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Colour {
    /// To be dropped last.
    #[default]
    Green = 0,
    /// Drop eligible.
    Yellow = 1,
    /// To be dropped first.
    Red = 2,
}

/// What a tag says of a frame, and what the NIC writes into one (IEEE 802.1Q clause 6.9: priority code point decoding and encoding).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagMaps {
    /// Priority by priority code point and drop eligible indicator: element 2 PCP + DEI, 0..=7.
    pub priority: [u8; 16],
    /// Colour by the same.
    pub colour: [Colour; 16],
    /// Priority code point by priority, 0..=7: in tags that the NIC writes, and in pause frames.
    pub pcp: [u8; 8],
    /// Priority by a socket's priority, which follows from the ToS byte (Linux, `rt_tos2priority`), 0..=7: of RDMA packets whose
    /// program names no service level (`tc_wrap -u` of MLNX_OFED). None: 0.
    pub by_socket: Option<[u8; 16]>,
}

impl TagMaps {
    /// Priority of a frame with this first byte of a TCI.
    #[inline(always)]
    pub const fn priority_of(&self, tci: u8) -> u8 {
        self.priority[(tci >> 4) as usize]
    }

    /// Colour of a frame with this first byte of a TCI.
    #[inline]
    pub const fn colour_of(&self, tci: u8) -> Colour {
        self.colour[(tci >> 4) as usize]
    }

    /// Service level of RDMA packets with this ToS byte whose program has this one, 0..=15: 0 names none.
    #[inline]
    pub const fn level_of(&self, tos: u8, service_level: u8) -> u8 {
        const SOCKET: [u8; 4] = [0, 2, 6, 4];
        match self.by_socket {
            Some(map) if service_level & 15 == 0 => map[SOCKET[(tos >> 3 & 3) as usize] as usize] & 7,
            _ => service_level & 15,
        }
    }

    /// Code point that is written for a priority; excess bits are cut off.
    #[inline]
    pub const fn pcp_of(&self, priority: u8) -> u8 {
        self.pcp[(priority & 7) as usize] & 7
    }
}

impl TagMaps {
    /// Code points of these priorities, a bit each.
    pub fn code_points(&self, priorities: u8) -> u8 {
        let all = (0..8).filter(|p| priorities >> p & 1 == 1);
        all.fold(0, |all, p| all | 1 << self.pcp_of(p))
    }

    /// A pause frame that names priorities by their code points, by priority.
    pub fn decoded(&self, frame: &pause::Frame) -> pause::Frame {
        match *frame {
            pause::Frame::Priorities { enabled, quanta } => {
                let named = (0..8).filter(|p| enabled >> self.pcp_of(*p) & 1 == 1);
                pause::Frame::Priorities {
                    enabled: named.fold(0, |all, p| all | 1 << p),
                    quanta: self.pcp.map(|c| quanta[usize::from(c & 7)]),
                }
            }
            global => global,
        }
    }
}

impl Default for TagMaps {
    /// The code point is the priority (IEEE 802.1Q table 6-2, row 8P0D), and what is drop eligible is yellow.
    fn default() -> Self {
        let mut maps = TagMaps {
            priority: [0; 16],
            colour: [Colour::Green; 16],
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            by_socket: None,
        };
        for (i, (priority, colour)) in (0u8..).zip(maps.priority.iter_mut().zip(&mut maps.colour)) {
            *priority = i >> 1;
            if i & 1 == 1 {
                *colour = Colour::Yellow;
            }
        }
        maps
    }
}

/// How RDMA packets get their DSCP, beside the map by priority (WinOF-2 Ethernet Network, DSCP: Registry Settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRules {
    /// `DscpBasedpfcEnabled`: the DSCP follows the priority.
    pub dscp_by_priority: bool,
    /// `DscpForGlobalFlowControl`: DSCP of packets with neither traffic class nor service level, where the DSCP names the priority.
    pub default_dscp: u8,
}

impl Default for MarkRules {
    fn default() -> Self {
        MarkRules {
            dscp_by_priority: false,
            default_dscp: 26,
        }
    }
}

/// How an adapter's frames wait to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRules {
    /// `SendQueuePerPrio`: each priority of the guest's has a send queue of its own.
    pub queue_per_priority: bool,
    /// `*QoSOffload`: the schedule queue acts.
    pub offload: bool,
    /// `*QosOffloadSupportedTCs`: traffic classes of which it acts, a bit each.
    pub offload_classes: u8,
}

impl Default for SendRules {
    fn default() -> Self {
        SendRules {
            queue_per_priority: false,
            offload: true,
            offload_classes: 0xff,
        }
    }
}

/// What happens to lossy packets for a guest that does not keep up (`CongestionAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintAction {
    /// Nothing.
    Off = 0,
    /// Packets are dropped.
    Drop = 1,
    /// Packets are marked (ECN congestion experienced). Those whose ends do not speak ECN go as they are.
    #[default]
    Mark = 2,
}

/// How eagerly packets are marked or dropped for a guest that does not keep up (`CongestionMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMode {
    /// All packets from a low fill on.
    Aggressive = 0,
    /// The more packets, the fuller the receive buffer is.
    #[default]
    Dynamic = 1,
}

/// Early marks and drops for a guest that does not keep up (`CongestionMonitoringEnable`, `CongestionAction`,
/// `CongestionMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintSettings {
    /// `CongestionMonitoringEnable`: whether marks and drops are on.
    pub enable: bool,
    /// `CongestionAction`: what happens to packets.
    pub action: HintAction,
    /// `CongestionMode`: how eagerly it happens.
    pub mode: HintMode,
}

/// Receive path activity monitoring: how long pause may be sent (register PFCC; WinOF-2 Ethernet Network, Receive Path
/// Activity Monitoring).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// `DeviceRxStallWatermark`: milliseconds of stall after which it is counted and reported; 0: never. At most `critical_ms`.
    pub minor_ms: u32,
    /// `DeviceRxStallTimeout`: milliseconds of stall after which pause stops on all priorities; 0: never.
    pub critical_ms: u32,
}

impl Guard {
    /// Milliseconds of a watermark, beside 0: the range of register PFCC (Linux, mlx5 `MLX5E_PFC_PREVEN_TOUT_MIN_MSEC` and
    /// `MLX5E_PFC_PREVEN_TOUT_MAX_MSEC`).
    pub const WATERMARK: RangeInclusive<u32> = 80..=8000;
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            minor_ms: 6800,
            critical_ms: 8000,
        }
    }
}

/// Head-of-queue lifetime (register QHLL; WinOF-2 Ethernet Network, Head of Queue Lifetime Limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// `TCHeadOfQueueLifeTimeLimit`: log2 of 4.096 us that a frame may wait at the head of its class, 0..=20; 20: for ever.
    pub limit: u8,
    /// `TCStallCount`: drops in a row after which a class counts as stalled, 0..=7; 0: never.
    pub stall_count: u8,
    /// `TCHeadOfQueueLifeTimeLimitEnable`: classes that have a limit, a bit each.
    pub enable: u8,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes {
            limit: 19,
            stall_count: 7,
            enable: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_priorities_are_levels() {
        let mut map = [0; 16];
        (map[0], map[2], map[4], map[6]) = (1, 2, 3, 4);
        let maps = TagMaps {
            by_socket: Some(map),
            ..TagMaps::default()
        };
        // As the tool shows it: "skprio: 2 (tos: 8)", "skprio: 4 (tos: 24)", "skprio: 6 (tos: 16)"; ECN and the rest say nothing.
        assert_eq!([0, 8, 16, 24].map(|tos| maps.level_of(tos, 0)), [1, 2, 4, 3]);
        assert_eq!([0xe3, 0x0b].map(|tos| maps.level_of(tos, 0)), [1, 2]);
        // Who names a level has it.
        assert_eq!((maps.level_of(8, 5), TagMaps::default().level_of(8, 0)), (5, 0));
    }

    #[test]
    fn pause_frames_go_by_code_points() {
        let mut maps = TagMaps::default();
        let frame = pause::Frame::Priorities {
            enabled: 0b10_1000,
            quanta: [0, 1, 2, 3, 4, 5, 6, 7],
        };
        assert_eq!((maps.code_points(0b1010), maps.decoded(&frame)), (0b1010, frame));
        // Priorities 2 and 3 are both sent as 5.
        (maps.pcp[2], maps.pcp[3]) = (5, 5);
        assert_eq!(maps.code_points(0b1100), 0b10_0000);
        let pause::Frame::Priorities { enabled, quanta } = maps.decoded(&frame) else {
            panic!("it is of the same kind");
        };
        assert_eq!(enabled, 0b10_1100);
        assert_eq!(quanta, [0, 1, 5, 5, 4, 5, 6, 7]);
        let global = pause::Frame::Global(7);
        assert_eq!(maps.decoded(&global), global);
    }
}
