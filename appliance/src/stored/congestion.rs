//! Congestion control as it is stored beside the registry: `vnic.v1.Congestion`. Its parameters are those that are not
//! registry keys; its priorities are the ones that are enabled if their keys are.

use prost::Message as _;
use vnic_backend::settings::parameter;
use vnic_backend::{CongestionAlgorithm, CongestionSpec, Preset, Program, TunedParameter};
use vnic_control::v1;

use crate::names::PROGRAM;

/// Encodes a specification for the store.
pub fn encode(spec: &CongestionSpec) -> Vec<u8> {
    let bits = |off: u8| (0..8).map(|bit| off & 1 << bit == 0).collect();
    let own = spec.own.iter().map(|(p, value)| v1::CongestionParameter {
        name: p.def.name.to_owned(),
        value: value.to_string(),
        ..v1::CongestionParameter::default()
    });
    let message = v1::Congestion {
        algorithm: spec.algorithm.name().to_owned(),
        preset: spec.preset.name().to_owned(),
        reaction: bits(spec.only_notification),
        notification: bits(spec.only_reaction),
        parameters: own
            .chain(of_algorithms(spec))
            .chain(spec.program.iter().flat_map(of_program))
            .collect(),
        program: spec.program.as_ref().map(|program| v1::CongestionProgram {
            code: program.bytes().to_vec(),
            ..v1::CongestionProgram::default()
        }),
        ..v1::Congestion::default()
    };
    message.encode_to_vec()
}

/// Parameters of algorithms that were set.
fn of_algorithms(spec: &CongestionSpec) -> impl Iterator<Item = v1::CongestionParameter> {
    let all = spec.tuned.parameters().into_iter();
    all.filter(TunedParameter::is_set)
        .map(|p| v1::CongestionParameter {
            name: p.name(),
            value: p.now.number,
            ..v1::CongestionParameter::default()
        })
}

/// Parameters of a program that were set.
fn of_program(program: &Program) -> impl Iterator<Item = v1::CongestionParameter> {
    let set = program.values().filter(|(_, value, default)| value != default);
    set.map(|(name, value, _)| v1::CongestionParameter {
        name: format!("{PROGRAM}{name}"),
        value: value.to_string(),
        ..v1::CongestionParameter::default()
    })
}

/// Decodes a row of the store.
pub fn decode(bytes: &[u8]) -> Result<CongestionSpec, String> {
    let message = v1::Congestion::decode(bytes).map_err(|e| e.to_string())?;
    let off = |on: &[bool]| {
        on.iter()
            .zip(0..8)
            .filter(|(on, _)| !**on)
            .fold(0, |mask, (_, bit)| mask | 1 << bit)
    };
    let mut spec = CongestionSpec {
        algorithm: CongestionAlgorithm::by_name(&message.algorithm)
            .ok_or_else(|| format!("there is no algorithm {:?}", message.algorithm))?,
        preset: Preset::by_name(&message.preset)
            .ok_or_else(|| format!("there is no preset {:?}", message.preset))?,
        only_reaction: off(&message.notification),
        only_notification: off(&message.reaction),
        ..CongestionSpec::default()
    };
    if let Some(program) = &message.program {
        let loaded = Program::load(&program.code).map_err(|e| format!("the program: {e}"))?;
        spec.program = Some(loaded);
    }
    for p in &message.parameters {
        if let (Some(name), Some(program)) = (p.name.strip_prefix(PROGRAM), &mut spec.program) {
            match program.set(name, &p.value) {
                Some(Ok(())) => continue,
                _ => return Err(format!("{} = {:?}", p.name, p.value)),
            }
        }
        if let Some(done) = spec.tuned.set(&p.name, &p.value) {
            done.map_err(|e| format!("{}: {e}", p.name))?;
            continue;
        }
        // (`roce_slow_restart_en` was no key once.)
        let known = parameter(&p.name).filter(|known| !known.keyed || known.is_zero_touch());
        let (known, value) = known
            .zip(p.value.parse().ok())
            .ok_or_else(|| format!("{} = {:?}", p.name, p.value))?;
        spec.own.put(known, Some(value));
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::settings::PARAMETERS;

    #[test]
    fn what_is_stored_is_read_back() {
        let mut spec = CongestionSpec {
            algorithm: CongestionAlgorithm::Swift,
            preset: Preset::Paper,
            only_reaction: 0x81,
            only_notification: 0x02,
            ..CongestionSpec::default()
        };
        for p in PARAMETERS.iter().filter(|p| !p.keyed) {
            spec.own.put(p, Some(1));
        }
        for (name, text) in [
            ("swift.base", "30us"),
            ("hpcc.eta", "0.9"),
            ("timely.pacing", "burst"),
        ] {
            spec.tuned
                .set(name, text)
                .expect("an algorithm")
                .expect("a value");
        }
        assert_eq!(decode(&encode(&spec)), Ok(spec));
        for (message, problem) in [
            (
                v1::Congestion {
                    algorithm: "fast".to_owned(),
                    preset: "paper".to_owned(),
                    ..v1::Congestion::default()
                },
                "no algorithm \"fast\"",
            ),
            (
                v1::Congestion {
                    algorithm: "dcqcn".to_owned(),
                    preset: "mine".to_owned(),
                    ..v1::Congestion::default()
                },
                "no preset \"mine\"",
            ),
        ] {
            let error = decode(&message.encode_to_vec()).expect_err(problem);
            assert!(error.contains(problem), "{error}");
        }
    }
}
