//! NV configuration, as in mlxconfig: settings that act after a device reset. The start of the daemon counts as a reset, too.

mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vnic_backend::settings::{self, Chosen};
use vnic_backend::{AlgorithmLimits, DcbxMode, LldpExtent, PRESETS, PortPreset, QosLimits};

use table::{
    CLASSES, CNP_DSCP, CNP_DSCP_MODE, LANES, LEGACY_DCQCN, PFC, PRIORITIES, PROGRAMMABLE, REAL_TIME,
    WOL_MAGIC,
};
pub use table::{NvDef, NvKind, NvScope, PARAMETERS, ROCE_CONTROL, ROCE_OFF};

use crate::check::nearest;
use crate::store::{Batch, Store, StoreError};

/// Table of the store. Key of a row: the parameter's name; value: its next value.
const TABLE: &str = "nv";

/// Why a parameter is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvWhy {
    /// There is no parameter of this name.
    #[error("there is no parameter {name:?}{}", nearest.map(|n| format!(": did you mean {n}?")).unwrap_or_default())]
    Unknown {
        name: String,
        /// Known parameter with a similar name.
        nearest: Option<&'static str>,
    },
    /// The value is not allowed.
    #[error("{name}: {value:?} is not allowed; allowed: {allowed}")]
    NotAllowed {
        name: &'static str,
        value: String,
        allowed: String,
    },
    /// The parameter is not built.
    #[error("{name}: not implemented: this parameter waits for {waits_for}")]
    NotBuilt {
        name: &'static str,
        waits_for: &'static str,
    },
}

/// A parameter and its values.
#[derive(Debug, Clone, Copy)]
pub struct NvView {
    pub def: &'static NvDef,
    /// Acting value.
    pub current: Option<u32>,
    /// Value after the next reset.
    pub next: Option<u32>,
}

/// What the NV configuration changes of adapters, at their next restart.
#[derive(Debug, Clone, Copy, Default)]
pub struct NvActing {
    /// Whether adapters have no RDMA function.
    pub roce_off: bool,
    /// Parameters of congestion control where the operator has not said otherwise.
    pub congestion: Chosen,
    /// Priorities with congestion control where the operator has not said otherwise, a bit each.
    pub priorities: u8,
    /// Whether magic packets mean nothing.
    pub wake_off: bool,
}

/// The NV configuration.
pub struct Nv {
    store: Arc<Store>,
    values: Mutex<Values>,
}

/// Values that are set; other parameters have their defaults.
#[derive(Default)]
struct Values {
    current: BTreeMap<&'static str, u32>,
    next: BTreeMap<&'static str, u32>,
}

/// Row of a parameter; case does not matter.
pub fn parameter(name: &str) -> Result<&'static NvDef, NvWhy> {
    let found = PARAMETERS.iter().find(|p| p.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&'static str> = PARAMETERS.iter().map(|p| p.name).collect();
        NvWhy::Unknown {
            name: name.to_owned(),
            nearest: nearest(&name.to_ascii_uppercase(), &names),
        }
    })
}

impl NvDef {
    /// Allowed values in words.
    pub fn allowed(&self) -> String {
        match self.kind {
            NvKind::Number { min, max } => format!("{min} to {max}"),
            NvKind::Enum(choices) => {
                let words: Vec<String> = choices.iter().map(|(v, w)| format!("{v} ({w})")).collect();
                words.join(", ")
            }
            NvKind::Bool => "0 and 1".to_owned(),
        }
    }

    /// Parses a value: a decimal number, a hexadecimal one after `0x`, or a word. An error if the parameter does not allow
    /// it, or is not built.
    pub fn check(&'static self, text: &str) -> Result<u32, NvWhy> {
        if let Some(waits_for) = self.waits_for {
            return Err(NvWhy::NotBuilt {
                name: self.name,
                waits_for,
            });
        }
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let number = number.filter(|_| !text.contains('+'));
        let value = match self.kind {
            NvKind::Number { min, max } => number.filter(|n| (min..=max).contains(n)),
            NvKind::Enum(choices) => {
                let is = |(v, word): &&(u32, &str)| Some(*v) == number || word.eq_ignore_ascii_case(text);
                choices.iter().find(is).map(|(v, _)| *v)
            }
            NvKind::Bool => number.filter(|n| *n <= 1),
        };
        value.ok_or_else(|| NvWhy::NotAllowed {
            name: self.name,
            value: text.to_owned(),
            allowed: self.allowed(),
        })
    }

    fn legal(&'static self, value: u32) -> bool {
        self.check(&value.to_string()).is_ok()
    }
}

impl Nv {
    /// Reads the stored values. This counts as a device reset: the next values act.
    pub fn new(store: Arc<Store>) -> Result<Nv, StoreError> {
        let mut values = Values::default();
        for (name, bytes) in store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            let value = bytes.as_slice().try_into().ok().map(u32::from_le_bytes);
            match (parameter(&name), value) {
                (Ok(def), Some(value)) if def.legal(value) => {
                    values.next.insert(def.name, value);
                }
                _ => tracing::warn!(
                    "NV configuration: {name}: what is stored means nothing here: left as it is"
                ),
            }
        }
        values.current = values.next.clone();
        Ok(Nv {
            store,
            values: Mutex::new(values),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A parameter with its values.
    pub fn view(&self, def: &'static NvDef) -> NvView {
        let values = self.lock();
        let value = |set: &BTreeMap<&'static str, u32>| match def.waits_for {
            None => set.get(def.name).copied().or(def.default),
            Some(_) => None,
        };
        NvView {
            def,
            current: value(&values.current),
            next: value(&values.next),
        }
    }

    /// Sets next values, all or none. May block.
    pub fn set(&self, assignments: &[(&'static NvDef, u32)]) -> Result<(), StoreError> {
        // Locked during the write, so that the values in memory are the stored ones.
        let mut values = self.lock();
        let mut batch = Batch::new();
        for (def, value) in assignments {
            batch.put(TABLE, def.name.as_bytes(), value.to_le_bytes());
        }
        self.store.commit(batch)?;
        values
            .next
            .extend(assignments.iter().map(|(def, v)| (def.name, *v)));
        Ok(())
    }

    /// Sets next values to their defaults; returns the parameters that change. May block.
    pub fn reset(&self, wanted: &[&'static NvDef]) -> Result<Vec<&'static NvDef>, StoreError> {
        let mut values = self.lock();
        let changed: Vec<&'static NvDef> = wanted
            .iter()
            .copied()
            .filter(|def| values.next.contains_key(def.name))
            .collect();
        let mut batch = Batch::new();
        for def in &changed {
            batch.delete(TABLE, def.name.as_bytes());
        }
        self.store.commit(batch)?;
        for def in &changed {
            values.next.remove(def.name);
        }
        Ok(changed)
    }

    /// Resets the device: the next values act. Returns the parameters whose acting value has changed.
    pub fn reset_device(&self) -> Vec<&'static NvDef> {
        let mut values = self.lock();
        let (before, next) = (values.current.clone(), values.next.clone());
        let value =
            |set: &BTreeMap<&'static str, u32>, def: &NvDef| set.get(def.name).copied().or(def.default);
        values.current.clone_from(&next);
        let changed = PARAMETERS.iter().filter(|d| value(&before, d) != value(&next, d));
        changed.collect()
    }

    /// Algorithms of congestion control that adapters may use.
    pub fn algorithms(&self) -> AlgorithmLimits {
        let values = self.lock();
        let on = |name| values.current.get(name) == Some(&1);
        AlgorithmLimits {
            only_dcqcn: on(LEGACY_DCQCN),
            programs: on(PROGRAMMABLE),
        }
    }

    /// Whether times of completions are of the NIC's clock.
    pub fn real_time(&self) -> bool {
        self.lock().current.get(REAL_TIME) != Some(&0)
    }

    /// Most traffic classes, and most priorities with flow control, of adapters and ports.
    pub fn qos_limits(&self) -> QosLimits {
        let current = &self.lock().current;
        let most = |name| {
            let set = current.get(name);
            set.map_or(8, |most| u8::try_from(*most).unwrap_or(8).min(8))
        };
        QosLimits {
            classes: match most(CLASSES) {
                0 => 8,
                classes => classes,
            },
            lanes: match current.get(LANES) {
                Some(1) => 1,
                Some(2) => 2,
                Some(3) => 4,
                Some(4) => 8,
                _ => 15,
            },
            pfc: most(PFC),
        }
    }

    /// What acts on ports: parameters that end in `_P1` on the first one by name, and so on.
    pub fn presets(&self) -> [PortPreset; PRESETS] {
        let current = &self.lock().current;
        let mut place = 0;
        [(); PRESETS].map(|()| {
            place += 1;
            let value = |name: &str| {
                let def = PARAMETERS
                    .iter()
                    .find(|def| def.name == format!("{name}_P{place}"));
                def.and_then(|def| current.get(def.name).copied().or(def.default))
            };
            let extent = |name| match value(name) {
                Some(2) => LldpExtent::All,
                Some(1) => LldpExtent::Mandatory,
                _ => LldpExtent::Off,
            };
            let on = |name| value(name) == Some(1);
            let dcbx = match (on("DCBX_IEEE"), on("DCBX_CEE")) {
                _ if !on("LLDP_NB_DCBX") => DcbxMode::Off,
                (true, true) => DcbxMode::Auto,
                (true, false) => DcbxMode::Ieee,
                (false, true) => DcbxMode::Cee,
                (false, false) => DcbxMode::Off,
            };
            PortPreset {
                receive: extent("LLDP_NB_RX_MODE"),
                transmit: extent("LLDP_NB_TX_MODE"),
                dcbx,
                willing: on("DCBX_WILLING"),
            }
        })
    }

    /// What acts on adapters.
    pub fn acting(&self) -> NvActing {
        let current = &self.lock().current;
        NvActing {
            roce_off: current.get(ROCE_CONTROL) == Some(&ROCE_OFF),
            congestion: congestion(current),
            priorities: current
                .get(PRIORITIES)
                .map_or(0, |mask| u8::try_from(*mask).unwrap_or(u8::MAX)),
            wake_off: current.get(WOL_MAGIC) == Some(&0),
        }
    }
}

/// Parameters of congestion control that these values set.
fn congestion(values: &BTreeMap<&'static str, u32>) -> Chosen {
    let mut chosen = Chosen::default();
    let dscp = values.get(CNP_DSCP_MODE) == Some(&1);
    for def in PARAMETERS.iter().filter(|def| dscp || def.name != CNP_DSCP) {
        if let (Some(sets), Some(nv)) = (def.sets, values.get(def.name))
            && let (Some(parameter), Some(value)) = (settings::parameter(sets.parameter), sets.value(*nv))
        {
            chosen.put(parameter, Some(value));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::table::Follows;
    use super::*;
    use vnic_backend::settings::Value;

    #[test]
    fn the_table_is_in_order_and_complete() {
        for pair in PARAMETERS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
        }
        for def in PARAMETERS {
            assert!(!def.help.is_empty() && !def.source.is_empty(), "{}", def.name);
            let set = def.sets.is_some() || def.name == PRIORITIES;
            assert!(
                def.waits_for.is_none() || (def.default.is_none() && !set),
                "{}",
                def.name
            );
            assert!(
                def.waits_for.is_some() || def.default.is_some() || set,
                "{}",
                def.name
            );
        }
    }

    /// Whatever a parameter allows, the one that it sets can have.
    #[test]
    fn what_is_set_is_allowed() {
        for def in PARAMETERS {
            let Some(sets) = def.sets else { continue };
            let parameter = settings::parameter(sets.parameter).expect(def.name);
            let (least, most) = match def.kind {
                NvKind::Number { min, max } => (min, max),
                NvKind::Enum(choices) => (0, choices.len() as u32 - 1),
                NvKind::Bool => (0, 1),
            };
            for nv in [least, most] {
                let Some(value) = sets.value(nv) else { continue };
                // Bytes go beyond what the key holds, and rates beyond the line rate, which they then are.
                let fits = matches!(sets.value, Follows::Blocks);
                let checked = parameter.def.check_value(&Value::Dword(value), u32::MAX);
                assert!(fits || checked.is_ok(), "{} {nv}: {checked:?}", def.name);
            }
        }
    }

    #[test]
    fn parameters_of_congestion_control_are_set() {
        let of = |values: &[(&'static str, u32)]| {
            let chosen = congestion(&values.iter().copied().collect());
            let set = chosen.iter().map(|(p, value)| (p.def.name, value));
            set.collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), []);
        assert_eq!(
            of(&[("RPG_AI_RATE", 7), ("RDMA_SELECTIVE_REPEAT_EN", 0)]),
            [("DcqcnRpgAiRate", 7)]
        );
        assert_eq!(
            of(&[("DCE_TCP_G", 1019), ("RPG_BYTE_RESET", 32_767)]),
            [("DcqcnRpgByteReset", 512), ("DcqcnDceTcpG", 5)]
        );
        assert_eq!(of(&[("CNP_DSCP", 48)]), []);
        assert_eq!(
            of(&[("CNP_DSCP", 48), ("CNP_DSCP_MODE", 1)]),
            [("DcqcnCnpDscp", 48)]
        );
        assert_eq!(of(&[("ROCE_CC_CNP_MODERATION", 0)]), []);
        assert_eq!(of(&[("ROCE_CC_CNP_MODERATION", 1)]), [("np_cnp_scope", 3)]);
        assert_eq!(
            of(&[("RDMA_SELECTIVE_REPEAT_EN", 1)]),
            [("selective_repeat_forced_en", 1)]
        );
        assert_eq!(of(&[("ROCE_ADAPTIVE_ROUTING_EN", 0)]), []);
        assert_eq!(
            of(&[("ROCE_ADAPTIVE_ROUTING_EN", 1)]),
            [("roce_multipath_ways", 16)]
        );
    }

    #[test]
    fn values_are_numbers_or_words() {
        let def = parameter("roce_control").expect("a parameter");
        for (text, value) in [("0", 0), ("off", 1), ("ON", 2), ("0x2", 2)] {
            assert_eq!(def.check(text), Ok(value));
        }
        for text in ["3", "", "-1", "+1", "0x", "maybe"] {
            assert!(matches!(def.check(text), Err(NvWhy::NotAllowed { .. })), "{text}");
        }
        assert!(matches!(
            parameter("SRIOV_EN").expect("a parameter").check("1"),
            Err(NvWhy::NotBuilt { .. })
        ));
        let unknown = parameter("ROCE_CONTROLL").expect_err("unknown");
        assert!(
            unknown.to_string().contains("did you mean ROCE_CONTROL?"),
            "{unknown}"
        );
    }
}
