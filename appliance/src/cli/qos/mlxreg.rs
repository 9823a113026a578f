//! Registers of the cards in the output format of mlxreg: the same settings as those of `vnicctl qos set`, by field. Names, places
//! and access of fields are those of the cards: NVIDIA's table of access registers for host channel adapters, and for QETCR Linux,
//! `include/linux/mlx5/mlx5_ifc.h`. Fields of a card's with nothing behind them here are no fields.

mod classes;
mod congestion_point;
mod field;
mod flow_control;
mod priorities;
pub mod roce_accl;

use std::fmt::Write as _;

use vnic_control::v1;

use super::super::Failure;
use super::args::Register;
use field::{Access, Chosen, Field, Given, rows, usage};

fn fields(register: Register) -> Vec<Field> {
    match register {
        Register::Cwtp => congestion_point::THRESHOLDS.to_vec(),
        Register::Cwtpm => congestion_point::SWITCHES.to_vec(),
        Register::RoceAccl => roce_accl::fields(),
        Register::Pfcc => flow_control::FIELDS.to_vec(),
        Register::Qpts => priorities::TRUST.to_vec(),
        Register::Qpdpm => priorities::dscp(),
        Register::Qtct => classes::OF_PRIORITY.to_vec(),
        Register::Qetcr => classes::fields(),
    }
}

/// `dcbx_operation_type` of what acts.
pub const OPERATIVE: u32 = 0;
/// `dcbx_operation_type` of what the peer says.
pub const REMOTE: u32 = 2;

/// Indexes of an access.
pub struct Indexes<'a>(&'a Given);

impl<'a> Indexes<'a> {
    /// Checks indexes: those of the register, and the port by its names.
    pub fn of(register: Register, given: &'a Given) -> Result<Indexes<'a>, Failure> {
        let known = fields(register);
        let known: Vec<&str> = known
            .iter()
            .filter(|f| f.access == Access::Index)
            .map(|f| &*f.name)
            .collect();
        for (name, value) in given {
            match spelled(name) {
                "local_port" | "pnat" => {}
                name if !known.contains(&name) => {
                    return Err(usage(format!("{name:?} is no index: {} are", known.join(", "))));
                }
                name if name.ends_with("operation_type") && *value > REMOTE => {
                    return Err(usage(format!(
                        "{name} {value}: 0 is what acts, 1 what the operator wants, 2 what the peer says"
                    )));
                }
                name if *value > 7 => {
                    return Err(usage(format!("{name} {value} is out of range: 0 to 7")));
                }
                _ => {}
            }
        }
        let indexes = Indexes(given);
        for needed in ["traffic_class", "switch_prio"] {
            if known.contains(&needed) && indexes.get(needed).is_none() {
                return Err(usage(format!(
                    "--indexes: {needed} is missing, such as {needed}=5"
                )));
            }
        }
        Ok(indexes)
    }

    fn get(&self, name: &str) -> Option<u32> {
        let of = self.0.iter().rev().find(|(n, _)| spelled(n) == name);
        of.map(|(_, value)| *value)
    }

    /// Whose parameters are meant: [`OPERATIVE`], what the operator wants (1), or [`REMOTE`].
    pub fn operation_type(&self) -> u32 {
        self.get("dcbx_operation_type").unwrap_or(OPERATIVE)
    }

    /// Traffic class or priority, 0 to 7.
    fn eighth(&self) -> usize {
        let value = self.get("traffic_class").or_else(|| self.get("switch_prio"));
        value.map_or(0, |value| value as usize)
    }
}

/// A name as it is; a document in use has a slip of the pen.
fn spelled(name: &str) -> &str {
    match name {
        "ddbx_operation_type" => "dcbx_operation_type",
        name => name,
    }
}

/// Writes fields of a register into the settings; returns the fields of [`v1::Qos`] that change.
pub fn write(
    register: Register,
    indexes: &Indexes<'_>,
    given: &Given,
    qos: &mut v1::Qos,
) -> Result<Vec<&'static str>, Failure> {
    let chosen = Chosen::of(&fields(register), given)?;
    if indexes.operation_type() == REMOTE {
        return Err(usage(
            "dcbx_operation_type 2 is what the peer says, and can only be read",
        ));
    }
    let changed = match register {
        Register::Cwtp | Register::Cwtpm => {
            congestion_point::write(register, indexes.eighth(), given, qos)?;
            vec!["ecn"]
        }
        Register::RoceAccl => Vec::new(),
        Register::Pfcc => flow_control::write(&chosen, qos)?,
        Register::Qpts => priorities::write_trust(&chosen, qos)?,
        Register::Qpdpm => priorities::write_dscp(&chosen, qos)?,
        Register::Qtct => classes::write_class(&chosen, indexes.eighth(), qos)?,
        Register::Qetcr => classes::write(&chosen, qos)?,
    };
    if changed.is_empty() {
        return Err(usage("no field is selected that is written"));
    }
    Ok(changed)
}

/// Text of a register. Values that its units do not hold are rounded down.
pub fn text(register: Register, indexes: &Indexes<'_>, qos: &v1::Qos) -> String {
    let value = |field: &Field| match field.access {
        Access::Index => indexes.get(&field.name).unwrap_or(0),
        Access::Op | Access::Wo => 0,
        Access::Rw | Access::Ro => match register {
            Register::Cwtp | Register::Cwtpm => congestion_point::read(&field.name, indexes.eighth(), qos),
            Register::RoceAccl => 0,
            Register::Pfcc => flow_control::read(&field.name, qos),
            Register::Qpts => priorities::read_trust(qos),
            Register::Qpdpm => priorities::read_dscp(&field.name, qos),
            Register::Qtct => classes::read_class(&field.name, indexes.eighth(), qos),
            Register::Qetcr => classes::read(&field.name, qos),
        },
    };
    let all: Vec<(String, u32)> = fields(register)
        .iter()
        .map(|f| (f.name.clone().into_owned(), value(f)))
        .collect();
    rows(&all)
}

/// What fields a register has, as `mlxreg --show_reg` shows it: address of the word in bytes, least bit and number of bits.
pub fn layout(register: Register) -> String {
    let all = fields(register);
    let width = all.iter().map(|f| f.name.len()).max().unwrap_or(0) + 4;
    let ruler = "=".repeat(width + 41);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:width$} | {:10} | {:>6} | {:>4} | Access\n{ruler}",
        "Field Name", "Address", "Offset", "Size"
    );
    for f in &all {
        let word = f.access.word();
        let _ = writeln!(
            out,
            "{:width$} | {:#010x} | {:6} | {:4} | {word}",
            f.name, f.address, f.bit, f.size
        );
    }
    out + &ruler + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::qos::assignments;

    /// Writes fields at indexes; the error as text.
    pub fn set(
        register: Register,
        indexes: &str,
        fields: &str,
        qos: &mut v1::Qos,
    ) -> Result<Vec<&'static str>, String> {
        let (indexes, fields) = (read(indexes), read(fields));
        let indexes = Indexes::of(register, &indexes).map_err(|e| format!("{e:?}"))?;
        write(register, &indexes, &fields, qos).map_err(|e| format!("{e:?}"))
    }

    fn read(text: &str) -> Vec<(String, u32)> {
        match text {
            "" => Vec::new(),
            text => assignments(text).expect(text),
        }
    }

    /// Values of a register by field.
    pub fn shown(register: Register, indexes: &str, qos: &v1::Qos) -> Vec<(String, u32)> {
        let indexes = read(indexes);
        let indexes = Indexes::of(register, &indexes).unwrap_or_else(|e| panic!("{e:?}"));
        let text = text(register, &indexes, qos);
        let rows = text.lines().filter_map(|line| line.split_once("| 0x"));
        rows.map(|(name, value)| {
            let value = u32::from_str_radix(value, 16).expect("a hexadecimal number");
            (name.trim().to_owned(), value)
        })
        .collect()
    }

    /// Value of one field.
    pub fn value(shown: &[(String, u32)], name: &str) -> u32 {
        let of = shown.iter().find(|(n, _)| n == name);
        of.unwrap_or_else(|| panic!("{name} of {shown:?}")).1
    }

    const ALL: [Register; 8] = [
        Register::Cwtp,
        Register::Cwtpm,
        Register::RoceAccl,
        Register::Pfcc,
        Register::Qpts,
        Register::Qpdpm,
        Register::Qetcr,
        Register::Qtct,
    ];

    #[test]
    fn fields_lie_in_words_and_share_no_bit() {
        for register in ALL {
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for field in fields(register) {
                assert!(
                    field.bit + field.size <= 32 && field.address % 4 == 0,
                    "{field:?}"
                );
                let mask = (u32::MAX >> (32 - field.size)) << field.bit;
                for (address, other) in &taken {
                    assert!(*address != field.address || other & mask == 0, "{field:?}");
                }
                taken.push((field.address, mask));
            }
        }
    }

    #[test]
    fn the_layout_is_that_of_the_tool() {
        let expected = "\
Field Name      | Address    | Offset | Size | Access
========================================================
local_port      | 0x00000000 |     16 |    8 | INDEX
trust_state     | 0x00000004 |      0 |    3 | RW
========================================================
";
        assert_eq!(layout(Register::Qpts), expected);
    }

    #[test]
    fn indexes_that_are_none_are_refused() {
        for (register, indexes, problem) in [
            (Register::Cwtp, "", "traffic_class is missing"),
            (Register::Cwtp, "traffic_class=8", "0 to 7"),
            (Register::Qtct, "local_port=1", "switch_prio is missing"),
            (Register::Qpts, "traffic_class=1", "no index"),
            (Register::Pfcc, "dcbx_operation_type=3", "2 what the peer says"),
        ] {
            let given = read(indexes);
            let error = Indexes::of(register, &given).err();
            let error = error.map_or_else(String::new, |e| format!("{e:?}"));
            assert!(error.contains(problem), "{indexes}: {error}");
        }
        let given = read("pnat=0x0,local_port=0x1,ddbx_operation_type=0x0");
        assert!(Indexes::of(Register::Pfcc, &given).is_ok());
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        for (register, indexes, fields, problem) in [
            (Register::Pfcc, "", "fctx_disabled=1", "only be read"),
            (Register::Pfcc, "", "local_port=1", "index"),
            (Register::Pfcc, "", "pfctx=256", "0 to 255"),
            (Register::Pfcc, "", "prio_mask_tx=255", "no field is selected"),
            (Register::Qpts, "", "trust=1", "no field"),
        ] {
            let error = set(register, indexes, fields, &mut v1::Qos::default()).expect_err(fields);
            assert!(error.contains(problem), "{fields}: {error}");
        }
    }
}
