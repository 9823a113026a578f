//! DCQCN: the reaction point (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015), as one engine
//! with switches where its sources differ.

mod reaction;

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{Algorithm, CongestionControl, Needs, Start};
use reaction::Reaction;

/// Clock of alpha.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AlphaClock {
    /// Each notification raises alpha, each `alpha_period` without one lowers it (paper).
    Notification,
    /// At the end of each `alpha_period` alpha follows whether there was a notification (firmware: `dce_tcp_rtt`).
    Period,
}

/// Order of cut and alpha at a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// The cut comes first, by the old alpha (paper).
    CutFirst,
    /// Alpha is raised first, then the cut (ns3-rdma).
    AlphaFirst,
}

/// The step of hyper increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hyper {
    /// `hai_rate` times the number of hyper increases so far (QCN, paper).
    Growing,
    /// `hai_rate`.
    Constant,
}

/// Parameters of the reaction point, in units of their own; [`settings`](crate::settings) has the documents' units.
// Wide: the parameters of the algorithm as papers and cards name them, in one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Whether each notification makes the current rate the target (`DcqcnClampTgtRate`).
    pub clamp_target: bool,
    /// Whether it does so also after an increase by the timer (`DcqcnClampTgtRateAfterTimeInc`). After one by bytes it always
    /// does.
    pub clamp_target_after_time: bool,
    /// T (`DcqcnRpgTimeReset`); zero: no timer, and no hyper increase.
    pub time_reset: Duration,
    /// B in bytes of payload (`DcqcnRpgByteReset` times 64); 0: no byte counter, and no hyper increase.
    pub byte_reset: u64,
    /// F, 1..=31 (`DcqcnRpgThreshold`).
    pub threshold: u32,
    /// R_AI in bit/s (`DcqcnRpgAiRate`).
    pub ai_rate: u64,
    /// R_HAI in bit/s (`DcqcnRpgHaiRate`).
    pub hai_rate: u64,
    /// Rate in bit/s at which the limiter is released; 0: that of the link (`RPG_MAX_RATE`).
    pub max_rate: u64,
    /// A cut takes alpha / 2^shift, with alpha in 1/1024 (`DcqcnAlphaToRateShift`).
    pub alpha_to_rate_shift: u32,
    /// Percent of the rate that one cut leaves at least, 0..=100 (`DcqcnRpgMinDecFac`).
    pub min_decrease: u32,
    /// Least rate in bit/s (`DcqcnRpgMinRate`). At the link's rate or more nothing is limited.
    pub min_rate: u64,
    /// Rate in bit/s at the first notification, which then does not cut it; 0: the first notification cuts as any
    /// (`DcqcnRateToSetOnFirstCnp`).
    pub rate_on_first_cnp: u64,
    /// Weight of a new sample in alpha, in 1/1024 (`DcqcnDceTcpG`; if a document gives the weight of the old one, 1024 less
    /// that).
    pub g: u32,
    /// Time between updates of alpha (`DcqcnDceTcpRtt`); zero: alpha is never lowered, and by `Period` never changed.
    pub alpha_period: Duration,
    /// Time in which the rate is cut at most once; zero: at each notification (`DcqcnRateReduceMonitorPeriod`). Notifications
    /// in that time do not cut it later either (WinOF-2).
    pub cut_period: Duration,
    /// Alpha at the first notification, in 1/1024; 1024 is 1 (`DcqcnInitialAlphaValue`).
    pub initial_alpha: u32,
    /// Clock of alpha.
    pub alpha_clock: AlphaClock,
    /// Order of cut and alpha at a notification.
    pub order: Order,
    /// The step of hyper increase.
    pub hyper: Hyper,
    /// Whether alpha is a whole number of 1/1024, as in firmware; otherwise it is exact.
    pub fixed_point: bool,
    /// Whether QCN's rules of the ns3-rdma code act: the target falls to an eighth if it is more than ten times the rate, and
    /// hyper increase halves byte counter and timer.
    pub qcn_relics: bool,
}

impl Parameters {
    /// Names of presets, in the order in which they are shown.
    pub const PRESETS: [&'static str; 4] = ["paper", "ns3-rdma", "mlx-fw", "winof2-doc"];

    /// As in the paper.
    pub const PAPER: Parameters = Parameters {
        clamp_target: true,
        clamp_target_after_time: true,
        time_reset: Duration::from_micros(55),
        byte_reset: 10_000_000,
        threshold: 5,
        ai_rate: 40_000_000,
        hai_rate: 200_000_000,
        max_rate: 0,
        alpha_to_rate_shift: 11,
        min_decrease: 50,
        min_rate: 1_000_000,
        rate_on_first_cnp: 0,
        g: 4,
        alpha_period: Duration::from_micros(55),
        cut_period: Duration::ZERO,
        initial_alpha: 1024,
        alpha_clock: AlphaClock::Notification,
        order: Order::CutFirst,
        hyper: Hyper::Growing,
        fixed_point: false,
        qcn_relics: false,
    };

    /// As in the simulator that the paper's authors published (`bobzhuyb/ns3-rdma`: the code, and `mix/config.txt`). Its least
    /// rate is the code's default; byte counter: 300 MB, which is to say off.
    pub const NS3_RDMA: Parameters = Parameters {
        clamp_target_after_time: false,
        time_reset: Duration::from_micros(60),
        byte_reset: 300_000_000,
        min_rate: 100_000_000,
        initial_alpha: 512,
        order: Order::AlphaFirst,
        qcn_relics: true,
        ..Parameters::PAPER
    };

    /// As in current firmware (`mlxconfig` of ConnectX-4 and later; all public dumps that were found agree). Its `DCE_TCP_G` of
    /// 1019 is the weight of the old value.
    pub const MLX_FW: Parameters = Parameters {
        clamp_target: false,
        clamp_target_after_time: true,
        time_reset: Duration::from_micros(300),
        byte_reset: 32767 * 64,
        threshold: 1,
        ai_rate: 5_000_000,
        hai_rate: 50_000_000,
        max_rate: 0,
        alpha_to_rate_shift: 11,
        min_decrease: 50,
        min_rate: 1_000_000,
        rate_on_first_cnp: 0,
        g: 1024 - 1019,
        alpha_period: Duration::from_micros(1),
        cut_period: Duration::from_micros(4),
        initial_alpha: 1023,
        alpha_clock: AlphaClock::Period,
        order: Order::CutFirst,
        hyper: Hyper::Constant,
        fixed_point: true,
        qcn_relics: false,
    };

    /// As WinOF-2's documentation prints them (`Mlx5Cmd -Qosconfig -Dcqcn -Get`); its `DcqcnDceTcpG` of 32 is the weight of the
    /// new sample.
    pub const WINOF2_DOC: Parameters = Parameters {
        time_reset: Duration::from_micros(100),
        byte_reset: 400 * 64,
        threshold: 5,
        ai_rate: 10_000_000,
        hai_rate: 100_000_000,
        rate_on_first_cnp: 3_000_000_000,
        g: 32,
        alpha_period: Duration::from_micros(4),
        cut_period: Duration::from_micros(32),
        initial_alpha: 0,
        ..Parameters::MLX_FW
    };

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Parameters> {
        match name {
            "paper" => Some(Parameters::PAPER),
            "ns3-rdma" => Some(Parameters::NS3_RDMA),
            "mlx-fw" => Some(Parameters::MLX_FW),
            "winof2-doc" => Some(Parameters::WINOF2_DOC),
            _ => None,
        }
    }
}

/// The algorithm with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dcqcn {
    /// The parameters.
    pub parameters: Parameters,
}

impl CongestionControl for Dcqcn {
    fn name(&self) -> &'static str {
        "dcqcn"
    }

    fn needs(&self) -> Needs {
        Needs {
            loss: true,
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        Box::new(Reaction::new(&self.parameters, now, flow))
    }
}
