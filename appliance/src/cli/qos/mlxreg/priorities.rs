//! Registers QPTS (what names the priority of a packet) and QPDPM (priority by DSCP).

use vnic_control::v1;
use vnic_control::v1::qos::Trust;

use super::super::super::Failure;
use super::field::{Access, Chosen, Field, LOCAL_PORT, usage, within};

pub(super) const TRUST: [Field; 2] = [LOCAL_PORT, Field::of("trust_state", (4, 0), 3, Access::Rw)];

/// Values of `trust_state`, by number. 0 is no card's, but a switch's.
const STATES: [Trust; 4] = [Trust::Port, Trust::Pcp, Trust::Dscp, Trust::Both];

pub(super) fn read_trust(qos: &v1::Qos) -> u32 {
    let at = STATES.iter().position(|state| *state == qos.trust());
    at.map_or(0, |at| at as u32)
}

pub(super) fn write_trust(chosen: &Chosen<'_>, qos: &mut v1::Qos) -> Result<Vec<&'static str>, Failure> {
    let Some(value) = chosen.get("trust_state") else {
        return Ok(Vec::new());
    };
    let state = STATES.get(value as usize);
    let state = state.ok_or_else(|| {
        usage(format!(
            "trust_state {value}: 0 (port), 1 (PCP), 2 (DSCP) and 3 (both) are allowed"
        ))
    })?;
    qos.set_trust(*state);
    Ok(vec!["trust"])
}

/// Bit of an entry that says that it is written.
const ENTRY: u32 = 1 << 15;

/// One entry of 16 bits for each DSCP, two a word.
pub(super) fn dscp() -> Vec<Field> {
    let entries = (0..64).map(|dscp| Field {
        name: format!("dscp[{dscp}]").into(),
        ..Field::of("", (4 + dscp / 2 * 4, 16 * (1 - dscp % 2)), 16, Access::Rw)
    });
    [LOCAL_PORT].into_iter().chain(entries).collect()
}

/// Number of the entry, if the field is one.
fn entry(name: &str) -> Option<usize> {
    name.strip_prefix("dscp[")?.strip_suffix(']')?.parse().ok()
}

pub(super) fn read_dscp(name: &str, qos: &v1::Qos) -> u32 {
    let of = entry(name).and_then(|dscp| qos.dscp_to_priority.get(dscp));
    of.copied().unwrap_or(0)
}

/// Writes entries: a priority, with the bit of the entry or without it.
pub(super) fn write_dscp(chosen: &Chosen<'_>, qos: &mut v1::Qos) -> Result<Vec<&'static str>, Failure> {
    for (name, value) in chosen.0 {
        let priority = within(name, value & !ENTRY, 7)?;
        if let Some(place) = entry(name).and_then(|dscp| qos.dscp_to_priority.get_mut(dscp)) {
            *place = priority;
        }
    }
    Ok(vec!["dscp_to_priority"])
}

#[cfg(test)]
mod tests {
    use super::super::super::args::Register;
    use super::super::tests::{set, shown, value};
    use super::*;

    #[test]
    fn trust_states_are_those_of_the_register() {
        let mut qos = v1::Qos::default();
        for (number, state) in [
            (0, Trust::Port),
            (1, Trust::Pcp),
            (2, Trust::Dscp),
            (3, Trust::Both),
        ] {
            let changed = set(Register::Qpts, "", &format!("trust_state={number}"), &mut qos);
            assert_eq!((changed, qos.trust()), (Ok(vec!["trust"]), state));
            let seen = shown(Register::Qpts, "local_port=1", &qos);
            assert_eq!(value(&seen, "trust_state"), number);
        }
        let error = set(Register::Qpts, "", "trust_state=4", &mut qos).expect_err("refused");
        assert!(error.contains("3 (both)"), "{error}");
    }

    #[test]
    fn entries_are_priorities_by_dscp() {
        let mut qos = v1::Qos {
            dscp_to_priority: (0..64).map(|dscp| dscp / 8).collect(),
            ..v1::Qos::default()
        };
        let changed = set(Register::Qpdpm, "", "dscp[26]=0x8005,dscp[0]=7", &mut qos);
        assert_eq!(changed, Ok(vec!["dscp_to_priority"]));
        let seen = shown(Register::Qpdpm, "", &qos);
        assert_eq!(
            [0, 1, 26, 63].map(|d| value(&seen, &format!("dscp[{d}]"))),
            [7, 0, 5, 7]
        );
        for (fields, problem) in [("dscp[64]=1", "no field"), ("dscp[3]=0x8008", "0 to 7")] {
            let error = set(Register::Qpdpm, "", fields, &mut qos).expect_err(fields);
            assert!(error.contains(problem), "{fields}: {error}");
        }
        // Two entries a word, the first one above.
        let places = dscp().iter().map(|f| (f.address, f.bit)).collect::<Vec<_>>();
        assert_eq!(places[1..4], [(4, 16), (4, 0), (8, 16)]);
    }
}
