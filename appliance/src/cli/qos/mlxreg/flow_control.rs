//! Register PFCC: global pause, priority flow control, storm prevention, length of the cable.

use vnic_control::v1;

use super::super::super::Failure;
use super::field::{Access, Chosen, Field, LOCAL_PORT, PNAT, usage};

pub(super) const FIELDS: [Field; 22] = [
    Field::of("critical_stall_mask", (0, 2), 1, Access::Op),
    Field::of("minor_stall_mask", (0, 3), 1, Access::Op),
    Field::of("cable_length_mask", (0, 5), 1, Access::Op),
    PNAT,
    LOCAL_PORT,
    Field::of("cap_remote_admin", (0, 28), 1, Access::Ro),
    Field::of("cap_local_admin", (0, 29), 1, Access::Ro),
    Field::of("dcbx_operation_type", (0, 30), 2, Access::Index),
    Field::of("prio_mask_rx", (4, 0), 8, Access::Op),
    Field::of("prio_mask_tx", (4, 16), 8, Access::Op),
    Field::of("fctx_disabled", (8, 8), 1, Access::Ro),
    Field::of("pfctx", (8, 16), 8, Access::Rw),
    Field::of("pptx_mask_n", (8, 29), 1, Access::Wo),
    Field::of("aptx", (8, 30), 1, Access::Ro),
    Field::of("pptx", (8, 31), 1, Access::Rw),
    Field::of("pfcrx", (12, 16), 8, Access::Rw),
    Field::of("pprx_mask_n", (12, 29), 1, Access::Op),
    Field::of("aprx", (12, 30), 1, Access::Ro),
    Field::of("pprx", (12, 31), 1, Access::Rw),
    Field::of("device_stall_critical_watermark", (16, 0), 16, Access::Rw),
    Field::of("device_stall_minor_watermark", (16, 16), 16, Access::Rw),
    Field::of("cable_length", (20, 0), 8, Access::Rw),
];

/// Priorities with priority flow control, a bit each.
fn mask(qos: &v1::Qos) -> u32 {
    let on = qos.pfc.iter().zip(0u32..).filter(|(on, _)| **on);
    on.fold(0, |mask, (_, priority)| mask | 1 << priority)
}

/// Metres of a cable as the register has them, rounded up: six bits of length, above them two of what a unit is: 0.1, 1, 10 or 100 m.
fn metres(cable: u32) -> u32 {
    let tenths = (cable & 0x3f) * 10u32.pow(cable >> 6 & 3);
    tenths.div_ceil(10)
}

/// A cable of so many metres as the register has it, rounded up to its unit.
fn cable(metres: u32) -> u32 {
    match metres {
        0..64 => 1 << 6 | metres,
        _ => 2 << 6 | metres.div_ceil(10).min(0x3f),
    }
}

pub(super) fn read(name: &str, qos: &v1::Qos) -> u32 {
    let storm = qos.state.as_ref().is_some_and(|state| state.storm_prevention);
    match name {
        "fctx_disabled" => storm.into(),
        "pfctx" | "pfcrx" => mask(qos),
        "pptx" => qos.pause_tx.into(),
        "pprx" => qos.pause_rx.into(),
        "aptx" => (qos.pause_tx && mask(qos) == 0).into(),
        "aprx" => (qos.pause_rx && mask(qos) == 0).into(),
        "device_stall_critical_watermark" => qos.storm_critical_ms,
        "device_stall_minor_watermark" => qos.storm_minor_ms,
        "cable_length" => cable(qos.cable_length_m),
        // Where data center bridging exchange acts, what the operator wants and what the peer says may be another thing than what acts.
        "cap_remote_admin" | "cap_local_admin" => {
            let exchanges = qos.state.as_ref().is_some_and(|state| !state.dcbx.is_empty());
            exchanges.into()
        }
        _ => 0,
    }
}

pub(super) fn write(chosen: &Chosen<'_>, qos: &mut v1::Qos) -> Result<Vec<&'static str>, Failure> {
    let mut changed = Vec::new();
    let before = mask(qos);
    let way = |policy, which| {
        let mask = chosen.get(which).unwrap_or(0xff);
        chosen
            .get(policy)
            .map_or(before, |new| before & !mask | new & mask)
    };
    let (tx, rx) = (way("pfctx", "prio_mask_tx"), way("pfcrx", "prio_mask_rx"));
    if tx != rx {
        return Err(usage(format!(
            "pfctx {tx:#04x}, pfcrx {rx:#04x}: a priority is paused both ways or none: give both alike"
        )));
    }
    if chosen.get("pfctx").is_some() || chosen.get("pfcrx").is_some() {
        qos.pfc = (0..8).map(|priority| tx >> priority & 1 != 0).collect();
        changed.push("pfc");
    }
    if let Some(on) = chosen.unmasked("pptx", "pptx_mask_n") {
        qos.pause_tx = on != 0;
        changed.push("pause_tx");
    }
    if let Some(on) = chosen.unmasked("pprx", "pprx_mask_n") {
        qos.pause_rx = on != 0;
        changed.push("pause_rx");
    }
    if let Some(ms) = chosen.masked("device_stall_critical_watermark", "critical_stall_mask") {
        qos.storm_critical_ms = ms;
        changed.push("storm_critical_ms");
    }
    if let Some(ms) = chosen.masked("device_stall_minor_watermark", "minor_stall_mask") {
        qos.storm_minor_ms = ms;
        changed.push("storm_minor_ms");
    }
    if let Some(length) = chosen.masked("cable_length", "cable_length_mask") {
        qos.cable_length_m = metres(length);
        changed.push("cable_length_m");
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::super::args::Register::Pfcc;
    use super::super::tests::{set, shown, value};
    use super::*;

    fn qos() -> v1::Qos {
        v1::Qos {
            pfc: vec![false; 8],
            pause_tx: true,
            pause_rx: true,
            storm_critical_ms: 8000,
            storm_minor_ms: 6800,
            cable_length_m: 7,
            ..v1::Qos::default()
        }
    }

    /// The document's command: watermarks change, priorities stay as they are.
    #[test]
    fn watermarks_are_written_by_their_masks() {
        let mut qos = qos();
        let changed = set(
            Pfcc,
            "pnat=0x0,local_port=0x1,ddbx_operation_type=0x0",
            "critical_stall_mask=0x1,prio_mask_tx=0xff,prio_mask_rx=0xff,device_stall_critical_watermark=0x64",
            &mut qos,
        );
        assert_eq!(changed, Ok(vec!["storm_critical_ms"]));
        assert_eq!((qos.storm_critical_ms, mask(&qos)), (100, 0));
        let changed = set(
            Pfcc,
            "",
            "minor_stall_mask=0,device_stall_minor_watermark=90,pptx=0",
            &mut qos,
        );
        assert_eq!(changed, Ok(vec!["pause_tx"]));
        assert_eq!(
            (qos.storm_minor_ms, qos.pause_tx, qos.pause_rx),
            (6800, false, true)
        );
        let seen = shown(Pfcc, "local_port=1", &qos);
        let of = |name| value(&seen, name);
        assert_eq!((of("local_port"), of("critical_stall_mask")), (1, 0));
        assert_eq!((of("pptx"), of("aptx"), of("pprx"), of("aprx")), (0, 0, 1, 1));
        assert_eq!(of("device_stall_critical_watermark"), 0x64);
    }

    #[test]
    fn priorities_are_paused_both_ways() {
        let mut qos = qos();
        let error = set(Pfcc, "", "pfctx=0x08", &mut qos).expect_err("refused");
        assert!(error.contains("both alike"), "{error}");
        let both = "pfctx=0x18,pfcrx=0x18,prio_mask_tx=0x08,prio_mask_rx=0x08";
        assert_eq!(set(Pfcc, "", both, &mut qos), Ok(vec!["pfc"]));
        assert_eq!(mask(&qos), 0x08);
        let seen = shown(Pfcc, "", &qos);
        assert_eq!((value(&seen, "pfcrx"), value(&seen, "aptx")), (8, 0));
    }

    #[test]
    fn cables_have_a_length_and_a_unit() {
        for (field, metres, shown_as) in [
            (0x40 | 40, 40, 0x40 | 40),
            (0x80 | 25, 250, 0x80 | 25),
            (5, 1, 0x41),
            (0xc0 | 2, 200, 0x80 | 20),
        ] {
            let mut qos = qos();
            let changed = set(Pfcc, "", &format!("cable_length={field}"), &mut qos);
            assert_eq!(changed, Ok(vec!["cable_length_m"]));
            let seen = value(&shown(Pfcc, "", &qos), "cable_length");
            assert_eq!((qos.cable_length_m, seen), (metres, shown_as), "{field}");
        }
        let length = value(
            &shown(
                Pfcc,
                "",
                &v1::Qos {
                    cable_length_m: 255,
                    ..qos()
                },
            ),
            "cable_length",
        );
        assert_eq!(metres(length), 260);
    }
}
