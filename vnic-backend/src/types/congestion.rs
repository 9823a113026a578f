//! Congestion control, as the control plane sees it.

use vnic_engine::rdma::FlowStatus;
pub use vnic_engine::settings::{Chosen, CongestionKeys, Points, Preset};

vnic_wire::named! {
    /// How queue pairs react to congestion.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
    pub enum CongestionAlgorithm {
        /// DCQCN: by congestion notifications.
        #[default]
        Dcqcn => "dcqcn",
        /// DCQCN+: notifications tell their period.
        DcqcnPlus => "dcqcn+",
        /// TIMELY: by the round-trip time and its gradient.
        Timely => "timely",
        /// Swift: by the round-trip time and a target.
        Swift => "swift",
        /// HPCC: by telemetry of the switches on the way. No live queue writes any: it keeps its first window.
        Hpcc => "hpcc",
        /// They do not.
        None => "none",
    }
}

impl CongestionAlgorithm {
    /// One line for people.
    pub const fn help(self) -> &'static str {
        match self {
            CongestionAlgorithm::None => "flows send as fast as the link does",
            CongestionAlgorithm::Dcqcn => "by congestion notifications, with the parameters below",
            CongestionAlgorithm::DcqcnPlus => "notifications tell their period (reconstructed)",
            CongestionAlgorithm::Timely => "by the round-trip time and its gradient",
            CongestionAlgorithm::Swift => "by the round-trip time and a target",
            CongestionAlgorithm::Hpcc => {
                "by telemetry of the switches; no live queue writes any: keeps its first window"
            }
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<CongestionAlgorithm> {
        let all = CongestionAlgorithm::ALL;
        all.into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }

    /// Does a sender hear of congestion by notifications only?
    pub const fn is_notified(self) -> bool {
        matches!(self, CongestionAlgorithm::Dcqcn | CongestionAlgorithm::DcqcnPlus)
    }
}

/// What an operator configures at an adapter beside the keys of its registry ([`CongestionKeys`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionSpec {
    /// How queue pairs react.
    pub algorithm: CongestionAlgorithm,
    /// Where the parameters come from that nobody has set.
    pub preset: Preset,
    /// Priorities that are on by their key of which only the reaction point is, a bit each.
    pub only_reaction: u8,
    /// Priorities that are on by their key of which only the notification point is, a bit each.
    pub only_notification: u8,
    /// Parameters that have no key.
    pub own: Chosen,
}

impl CongestionSpec {
    /// Priorities with a reaction point and with a notification point, while the keys say this.
    pub fn enabled(&self, keys: &CongestionKeys) -> (u8, u8) {
        (
            keys.enable & !self.only_notification,
            keys.enable & !self.only_reaction,
        )
    }

    /// What acts, at this line rate in bit/s.
    pub fn points(&self, keys: &CongestionKeys, line_rate: u64) -> Points {
        let mut points = self.preset.points();
        if self.algorithm == CongestionAlgorithm::DcqcnPlus {
            let told = vnic_engine::congestion::notification::Settings::dcqcn_plus();
            points.notification.spacing = told.spacing;
            points.notification.told = told.told;
        }
        let points = keys.parameters.over(points, line_rate);
        self.own.over(points, line_rate)
    }
}

/// Congestion control of an adapter as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionStatus {
    /// What was configured.
    pub spec: CongestionSpec,
    /// Keys that act.
    pub keys: CongestionKeys,
    /// Parameters that act, both together.
    pub acting: Points,
    /// Speed of the link in bit/s.
    pub line_rate: u64,
    /// The adapter has an RDMA function.
    pub rdma: bool,
}

/// A flow that is limited now.
pub type CongestionFlow = FlowStatus;

/// A flow of a guest's own RoCE, over its Ethernet function, that is limited now.
pub type GuestFlow = vnic_engine::congestion::proxy::FlowStatus;
