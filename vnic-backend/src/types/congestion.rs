//! Congestion control of the control plane.

pub use vnic_engine::congestion::Faults;
pub use vnic_engine::congestion::named::{Parameter as ProgramParameter, Tuned, TunedParameter};
pub use vnic_engine::congestion::program::{MODULE_MAX, Program};
use vnic_engine::rdma::FlowStatus;
pub use vnic_engine::settings::{Chosen, CongestionKeys, Points, Preset};

vnic_wire::named! {
    /// Reaction of queue pairs to congestion.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
    pub enum CongestionAlgorithm {
        /// DCQCN: by congestion notifications.
        #[default]
        Dcqcn => "dcqcn",
        /// DCQCN+: by congestion notifications that contain their period.
        DcqcnPlus => "dcqcn+",
        /// TIMELY: by the round-trip time and its gradient.
        Timely => "timely",
        /// Swift: by the round-trip time and a target.
        Swift => "swift",
        /// HPCC: by telemetry of the queues on the way. Those of ports with a rate write some.
        Hpcc => "hpcc",
        /// The program that is loaded.
        Program => "program",
        /// No congestion control.
        None => "none",
    }
}

impl CongestionAlgorithm {
    /// Description in one line.
    pub const fn help(self) -> &'static str {
        match self {
            CongestionAlgorithm::None => "flows send as fast as the link does",
            CongestionAlgorithm::Dcqcn => "by congestion notifications, with the parameters below",
            CongestionAlgorithm::DcqcnPlus => "notifications tell their period (reconstructed)",
            CongestionAlgorithm::Timely => "by the round-trip time and its gradient",
            CongestionAlgorithm::Swift => "by the round-trip time and a target",
            CongestionAlgorithm::Program => "the program that `cc load` gave the adapter",
            CongestionAlgorithm::Hpcc => "by telemetry of queues with a rate",
        }
    }

    /// The algorithm with this name.
    pub fn by_name(name: &str) -> Option<CongestionAlgorithm> {
        let all = CongestionAlgorithm::ALL;
        all.into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }

    /// Whether a sender learns of congestion only by notifications.
    pub const fn is_notified(self) -> bool {
        matches!(self, CongestionAlgorithm::Dcqcn | CongestionAlgorithm::DcqcnPlus)
    }
}

/// Operator's configuration of an adapter's congestion control, in addition to the keys of its registry ([`CongestionKeys`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CongestionSpec {
    /// Algorithm of the queue pairs.
    pub algorithm: CongestionAlgorithm,
    /// Source of parameters that are not set.
    pub preset: Preset,
    /// Priorities, enabled by their key, that have only the reaction point, a bit each.
    pub only_reaction: u8,
    /// Priorities, enabled by their key, that have only the notification point, a bit each.
    pub only_notification: u8,
    /// Parameters without a key.
    pub own: Chosen,
    /// Parameters of the algorithms that have none of the others; those of the chosen one act.
    pub tuned: Tuned,
    /// The program that was loaded, with its parameters. It acts if it is the algorithm.
    pub program: Option<Program>,
}

/// Algorithms that adapters may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlgorithmLimits {
    /// DCQCN, or none.
    pub only_dcqcn: bool,
    /// Programs.
    pub programs: bool,
}

impl AlgorithmLimits {
    /// Whether an adapter may use an algorithm.
    pub const fn allow(self, algorithm: CongestionAlgorithm) -> bool {
        match algorithm {
            CongestionAlgorithm::Dcqcn | CongestionAlgorithm::None => true,
            CongestionAlgorithm::Program => self.programs && !self.only_dcqcn,
            _ => !self.only_dcqcn,
        }
    }
}

impl Default for AlgorithmLimits {
    fn default() -> Self {
        AlgorithmLimits {
            only_dcqcn: false,
            programs: true,
        }
    }
}

impl CongestionSpec {
    /// Priorities with a reaction point and with a notification point, under these keys.
    pub fn enabled(&self, keys: &CongestionKeys) -> (u8, u8) {
        (
            keys.enable & !self.only_notification,
            keys.enable & !self.only_reaction,
        )
    }

    /// Parameters that act, at this line rate in bit/s.
    pub fn points(&self, keys: &CongestionKeys, line_rate: u64) -> Points {
        let mut points = self.preset.points();
        if self.algorithm == CongestionAlgorithm::DcqcnPlus {
            let told = vnic_engine::congestion::notification::Settings::dcqcn_plus();
            points.notification.spacing = told.spacing;
            points.notification.told = told.told;
        }
        // (What NV configuration says comes with the keys, and counts less.)
        let points = keys.parameters.over(points, line_rate);
        self.own.over(points, line_rate)
    }
}

/// Status of an adapter's congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionStatus {
    /// The configuration.
    pub spec: CongestionSpec,
    /// Keys that act.
    pub keys: CongestionKeys,
    /// Parameters that act, from configuration and keys.
    pub acting: Points,
    /// Speed of the link in bit/s.
    pub line_rate: u64,
    /// Whether the adapter has an RDMA function.
    pub rdma: bool,
    /// The algorithm that acts: DCQCN where the configured one may not be used.
    pub algorithm: CongestionAlgorithm,
    /// Events that the program could not handle.
    pub faults: Faults,
}

/// A flow that congestion control limits now.
pub type CongestionFlow = FlowStatus;

/// A flow of a guest's own RoCE, over its Ethernet function, that congestion control limits now.
pub type GuestFlow = vnic_engine::congestion::proxy::FlowStatus;
