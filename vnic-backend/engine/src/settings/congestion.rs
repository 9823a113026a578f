//! Settings of congestion control: a preset, registry keys, and parameters that are not keys.
//!
//! ```text
//!  preset ─▶ every parameter ◀─ what is stored: keys of the registry, and what has none
//!                 │ not above the line rate
//!                 ▼
//!          dcqcn::Parameters, notification::Settings, …
//! ```

use core::time::Duration;

use super::table::{CONGESTION, CONGESTION_ENABLE, CONGESTION_OWN, ZERO_TOUCH};
use super::{Field, KeyDef, Place, Value};
use crate::congestion::dcqcn::{AlphaClock, Hyper, Order, Parameters};
use crate::congestion::notification::{CnpPriority, Scope, Settings};
use crate::congestion::zero_touch::ZeroTouch;

/// End of a flow to which a parameter belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Sender, which limits its rate.
    Reaction,
    /// Receiver, which sends notifications.
    Notification,
    /// The device as a whole.
    Device,
}

/// Parameters of both points of an adapter, from all sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    /// Parameters of the reaction point.
    pub reaction: Parameters,
    /// Settings of the notification point.
    pub notification: Settings,
    /// Priority of notifications, if it is not copied.
    pub cnp_priority: u8,
    /// Zero touch RoCE.
    pub zero_touch: ZeroTouch,
    /// Credit of an idle flow.
    pub idle_credit: Duration,
    /// Whether RoCE that the guest runs over Ethernet is limited, too.
    pub soft_roce: bool,
    /// Whether all queue pairs send from one UDP port.
    pub pin_source_port: bool,
}

vnic_wire::named! {
    /// Preset: source of the parameters that are not set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
    pub enum Preset {
        /// The example of the WinOF-2 manual: the defaults of the keys.
        #[default]
        Winof2Doc => "winof2-doc",
        /// Current firmware.
        MlxFw => "mlx-fw",
        /// The DCQCN paper.
        Paper => "paper",
        /// The simulator of the paper's authors.
        Ns3Rdma => "ns3-rdma",
    }
}

impl Preset {
    /// One line for people.
    pub const fn help(self) -> &'static str {
        match self {
            Preset::Winof2Doc => "what the WinOF-2 text shows; nothing else is configured",
            Preset::MlxFw => "what current firmware has",
            Preset::Paper => "the DCQCN paper (SIGCOMM 2015)",
            Preset::Ns3Rdma => "the simulator of the paper's authors",
        }
    }

    /// Preset of a name.
    pub fn by_name(name: &str) -> Option<Preset> {
        Preset::ALL
            .into_iter()
            .find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// Parameters of the preset.
    pub fn points(self) -> Points {
        let plain = Settings::default();
        let (spacing, dscp, priority, cnp_priority) = match self {
            // The manual shows no spacing; firmware of its time has this one.
            Preset::Winof2Doc => (4, 0, CnpPriority::Copied, 7),
            Preset::MlxFw => (4, 48, CnpPriority::Fixed(6), 6),
            Preset::Paper | Preset::Ns3Rdma => (50, 48, CnpPriority::Fixed(6), 6),
        };
        Points {
            reaction: Parameters::preset(self.name()).unwrap_or(Parameters::PAPER),
            notification: Settings {
                spacing: Duration::from_micros(spacing),
                dscp,
                priority,
                ..plain
            },
            cnp_priority,
            zero_touch: ZeroTouch::default(),
            idle_credit: Duration::from_micros(200),
            soft_roce: false,
            pin_source_port: false,
        }
    }
}

/// Row of a parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Name, range, unit and effect.
    pub def: &'static KeyDef,
    /// Whether it is a registry key.
    pub keyed: bool,
    /// End to which it belongs.
    pub point: Point,
    access: Access,
}

/// How a parameter is read and set, in the unit of its row.
#[derive(Debug, Clone, Copy)]
struct Access {
    get: fn(&Points) -> u32,
    set: fn(&mut Points, u32),
}

impl Parameter {
    /// Value in the unit of its row. A preset's value may be outside the range of values that can be set.
    pub fn get(&self, points: &Points) -> u32 {
        (self.access.get)(points)
    }

    /// Sets the value, in the unit of its row.
    pub fn set(&self, points: &mut Points, value: u32) {
        (self.access.set)(points, value);
    }

    /// Whether it is one of zero touch RoCE, which is set by itself: no preset has values of its own, and choosing a preset or
    /// restoring congestion control leaves it.
    pub fn is_zero_touch(&self) -> bool {
        self.def.place == Place::Tool(ZERO_TOUCH)
    }

    /// Index in [`PARAMETERS`].
    fn at(&self) -> usize {
        PARAMETERS
            .iter()
            .position(|p| p.def.name == self.def.name)
            .unwrap_or(0)
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn mbps(rate: u64) -> u32 {
    u32::try_from(rate / 1_000_000).unwrap_or(u32::MAX)
}

const fn us(value: u32) -> Duration {
    Duration::from_micros(value as u64)
}

const fn bps(value: u32) -> u64 {
    value as u64 * 1_000_000
}

const KEYED: usize = CONGESTION.len();
const COUNT: usize = KEYED + CONGESTION_OWN.len();

/// [`Access`] to a field of [`Points`] by its kind, or by functions of its own.
macro_rules! access {
    (flag $($field:ident).+) => { access!(|p| p.$($field).+.into(), |p, v| p.$($field).+ = v != 0) };
    (number $($field:ident).+) => { access!(|p| p.$($field).+, |p, v| p.$($field).+ = v) };
    (micros $($field:ident).+) => { access!(|p| micros(p.$($field).+), |p, v| p.$($field).+ = us(v)) };
    (mbps $($field:ident).+) => { access!(|p| mbps(p.$($field).+), |p, v| p.$($field).+ = bps(v)) };
    // (The choices are numbered from 0, in the order of their declaration.)
    (choice $($field:ident).+ of $choice:ident { $($word:ident),+ }) => {
        access!(|p| p.$($field).+ as u32, |p, v| {
            let choice = &mut p.$($field).+;
            $(if v == $choice::$word as u32 {
                *choice = $choice::$word;
            })+
        })
    };
    ($get:expr, $set:expr) => { Access { get: $get, set: $set } };
}

macro_rules! parameters {
    ($($rows:ident[$i:literal] $name:literal $point:ident($($access:tt)+);)+) => {
        /// All parameters: those with a key in the order of the registry, then the others.
        pub static PARAMETERS: [Parameter; COUNT] = [$(
            Parameter {
                def: {
                    let def = &$rows[$i];
                    // The row must be the one that the macro names.
                    assert!(same(def.name, $name));
                    def
                },
                keyed: same(stringify!($rows), "CONGESTION"),
                point: Point::$point,
                access: access!($($access)+),
            }
        ),+];
    };
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

parameters! {
    CONGESTION[0] "DcqcnClampTgtRate" Reaction(flag reaction.clamp_target);
    CONGESTION[1] "DcqcnClampTgtRateAfterTimeInc" Reaction(flag reaction.clamp_target_after_time);
    CONGESTION[2] "DcqcnCnpDscp" Notification(
        |p| p.notification.dscp.into(), |p, v| p.notification.dscp = (v & 0x3f) as u8
    );
    CONGESTION[3] "DcqcnCnp802pPrio" Notification(|p| p.cnp_priority.into(), |p, v| {
        p.cnp_priority = (v & 7) as u8;
        if p.notification.priority != CnpPriority::Copied {
            p.notification.priority = CnpPriority::Fixed(p.cnp_priority);
        }
    });
    CONGESTION[4] "DcqcnCnpPrioMode" Notification(
        |p| (p.notification.priority == CnpPriority::Copied).into(),
        |p, v| p.notification.priority = match v {
            0 => CnpPriority::Fixed(p.cnp_priority),
            _ => CnpPriority::Copied,
        }
    );
    CONGESTION[5] "DcqcnRpgTimeReset" Reaction(micros reaction.time_reset);
    CONGESTION[6] "DcqcnRpgByteReset" Reaction(
        |p| u32::try_from(p.reaction.byte_reset / 64).unwrap_or(u32::MAX),
        |p, v| p.reaction.byte_reset = u64::from(v) * 64
    );
    CONGESTION[7] "DcqcnRpgThreshold" Reaction(number reaction.threshold);
    CONGESTION[8] "DcqcnRpgAiRate" Reaction(mbps reaction.ai_rate);
    CONGESTION[9] "DcqcnRpgHaiRate" Reaction(mbps reaction.hai_rate);
    CONGESTION[10] "DcqcnAlphaToRateShift" Reaction(number reaction.alpha_to_rate_shift);
    CONGESTION[11] "DcqcnRpgMinDecFac" Reaction(number reaction.min_decrease);
    CONGESTION[12] "DcqcnRpgMinRate" Reaction(mbps reaction.min_rate);
    CONGESTION[13] "DcqcnRateToSetOnFirstCnp" Reaction(mbps reaction.rate_on_first_cnp);
    CONGESTION[14] "DcqcnDceTcpG" Reaction(number reaction.g);
    CONGESTION[15] "DcqcnDceTcpRtt" Reaction(micros reaction.alpha_period);
    CONGESTION[16] "DcqcnRateReduceMonitorPeriod" Reaction(micros reaction.cut_period);
    CONGESTION[17] "DcqcnInitialAlphaValue" Reaction(number reaction.initial_alpha);
    CONGESTION[18] "AdpRetrans" Device(flag zero_touch.adaptive);
    CONGESTION[19] "TxWindow" Device(flag zero_touch.limited);
    CONGESTION[20] "SlowStart" Device(flag zero_touch.slow_restart);
    CONGESTION_OWN[0] "rp_max_rate" Reaction(mbps reaction.max_rate);
    CONGESTION_OWN[1] "rp_alpha_clock" Reaction(
        choice reaction.alpha_clock of AlphaClock { Notification, Period }
    );
    CONGESTION_OWN[2] "rp_cut_order" Reaction(choice reaction.order of Order { CutFirst, AlphaFirst });
    CONGESTION_OWN[3] "rp_hyper_step" Reaction(choice reaction.hyper of Hyper { Growing, Constant });
    CONGESTION_OWN[4] "rp_fixed_point" Reaction(flag reaction.fixed_point);
    CONGESTION_OWN[5] "rp_qcn_relics" Reaction(flag reaction.qcn_relics);
    CONGESTION_OWN[6] "rp_idle_credit" Reaction(micros idle_credit);
    CONGESTION_OWN[7] "np_min_time_between_cnps" Notification(micros notification.spacing);
    CONGESTION_OWN[8] "np_cnp_scope" Notification(
        choice notification.scope of Scope { Qp, IpPair, DestinationIp, Port }
    );
    CONGESTION_OWN[9] "np_cnp_trailing" Notification(flag notification.trailing);
    CONGESTION_OWN[10] "np_cnp_ecn" Notification(
        |p| p.notification.ecn.into(), |p, v| p.notification.ecn = (v & 3) as u8
    );
    CONGESTION_OWN[11] "np_told_interval" Notification(
        |p| p.notification.told.map_or(0, |t| u32::try_from(t.as_nanos()).unwrap_or(u32::MAX)),
        |p, v| p.notification.told = (v != 0).then(|| Duration::from_nanos(v.into()))
    );
    CONGESTION_OWN[12] "roce_adp_retrans_floor" Device(micros zero_touch.floor);
    CONGESTION_OWN[13] "roce_adp_retrans_ceiling" Device(
        |p| p.zero_touch.ceiling.map_or(0, micros),
        |p, v| p.zero_touch.ceiling = (v != 0).then(|| us(v))
    );
    CONGESTION_OWN[14] "roce_tx_window_size" Device(number zero_touch.window);
    CONGESTION_OWN[15] "roce_slow_restart_idle_en" Device(flag zero_touch.slow_restart_idle);
    CONGESTION_OWN[16] "soft_roce" Device(flag soft_roce);
    CONGESTION_OWN[17] "roce_pin_source_port" Device(flag pin_source_port);
    CONGESTION_OWN[18] "selective_repeat_forced_en" Device(flag zero_touch.selective);
    CONGESTION_OWN[19] "roce_multipath_ways" Device(number zero_touch.multipath);
}

/// Parameter of a name or one of its other spellings; case does not matter.
pub fn parameter(name: &str) -> Option<&'static Parameter> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    PARAMETERS
        .iter()
        .find(|p| is(&p.def.name) || p.def.aliases.iter().any(is))
}

/// Parameters that are set, by key or otherwise; the others are the preset's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen([Option<u32>; COUNT]);

impl Default for Chosen {
    fn default() -> Self {
        Chosen([None; COUNT])
    }
}

impl Chosen {
    /// Value of a parameter, if it is set.
    pub fn get(&self, parameter: &Parameter) -> Option<u32> {
        self.0.get(parameter.at()).copied().flatten()
    }

    /// Sets a parameter, or leaves it to the preset.
    pub fn put(&mut self, parameter: &Parameter, value: Option<u32>) {
        if let Some(place) = self.0.get_mut(parameter.at()) {
            *place = value;
        }
    }

    fn put_key(&mut self, def: &KeyDef, value: Option<&Value>) {
        let number = match value {
            Some(Value::Dword(number)) => Some(*number),
            _ => None,
        };
        if let Some(parameter) = parameter(def.name) {
            self.put(parameter, number);
        }
    }

    /// Parameters that are set, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, u32)> + '_ {
        PARAMETERS
            .iter()
            .zip(&self.0)
            .filter_map(|(p, value)| Some((p, (*value)?)))
    }

    /// Those of zero touch RoCE alone.
    #[must_use]
    pub fn zero_touch(&self) -> Chosen {
        let mut kept = Chosen::default();
        self.iter()
            .filter(|(p, _)| p.is_zero_touch())
            .for_each(|(p, value)| kept.put(p, Some(value)));
        kept
    }

    /// Parameters that act. `line_rate` is in bit/s: no rate is above it.
    pub fn over(&self, mut points: Points, line_rate: u64) -> Points {
        for (parameter, value) in self.iter() {
            parameter.set(&mut points, value);
        }
        let p = &mut points.reaction;
        for rate in [
            &mut p.ai_rate,
            &mut p.hai_rate,
            &mut p.min_rate,
            &mut p.rate_on_first_cnp,
            &mut p.max_rate,
        ] {
            *rate = (*rate).min(line_rate);
        }
        points
    }
}

/// Values of the keys of congestion control. The default is what acts while nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionKeys {
    /// `DcqcnEnablePrioN`, a bit for each priority.
    pub enable: u8,
    /// Parameters that have a key.
    pub parameters: Chosen,
}

/// Field of a key that is a parameter.
pub(super) const PARAMETER: Field = Field {
    messages: &[],
    written: |_, _| {},
    set: |def, settings, value| settings.congestion.parameters.put_key(def, Some(value)),
    get: |def, settings| {
        settings
            .congestion
            .parameters
            .get(parameter(def.name)?)
            .map(Value::Dword)
    },
    copy: |def, to, from| {
        let value = (PARAMETER.get)(def, from);
        to.congestion.parameters.put_key(def, value.as_ref());
    },
};

/// Field of a priority's bit in [`CongestionKeys::enable`].
pub(super) const ENABLE: Field = Field {
    messages: &[],
    written: |_, _| {},
    set: |def, settings, value| settings.congestion.enable(def, *value != Value::Dword(0)),
    get: |def, settings| Some(Value::Dword(settings.congestion.enables(def).into())),
    copy: |def, to, from| to.congestion.enable(def, from.congestion.enables(def)),
};

/// Bit of a key in [`CongestionKeys::enable`]: its place in the table is the priority.
fn bit(def: &KeyDef) -> u8 {
    let priority = CONGESTION_ENABLE.iter().position(|key| key == def);
    priority.map_or(0, |priority| 1 << priority)
}

impl CongestionKeys {
    /// Sets the bit of a key.
    fn enable(&mut self, def: &KeyDef, on: bool) {
        self.enable = self.enable & !bit(def) | if on { bit(def) } else { 0 };
    }

    /// Whether the bit of a key is set.
    fn enables(&self, def: &KeyDef) -> bool {
        self.enable & bit(def) != 0
    }

    /// Key that enables a priority.
    pub fn enable_key(priority: u8) -> Option<&'static KeyDef> {
        CONGESTION_ENABLE.get(usize::from(priority))
    }
}
