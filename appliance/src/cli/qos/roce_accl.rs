//! Register ROCE_ACCL (zero touch RoCE) in the output format of mlxreg. The fields are those of NVIDIA's How-to Enable/Disable
//! Lossy RoCE Accelerations, in its order. A field is written if it is named and its `_field_select` is not 0; a register that
//! is read shows 1 there, for all of them can be written.

use std::collections::HashMap;

use vnic_control::v1;

use super::super::Failure;
use super::mlxreg;

/// Fields, and the parameters behind them.
const FIELDS: [(&str, &str); 5] = [
    ("roce_adp_retrans", "AdpRetrans"),
    ("roce_tx_window", "TxWindow"),
    ("roce_slow_restart", "SlowStart"),
    ("roce_slow_restart_idle", "roce_slow_restart_idle_en"),
    ("selective_repeat_forced", "selective_repeat_forced_en"),
];

/// Parameters of fields that are to be written.
pub fn parameters(fields: &mlxreg::Fields) -> Result<HashMap<String, String>, Failure> {
    let of = |wanted: &str| {
        fields
            .iter()
            .rev()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| *value)
    };
    for (name, value) in fields {
        let known = FIELDS
            .iter()
            .any(|(field, _)| [format!("{field}_en"), format!("{field}_field_select")].contains(name));
        if !known {
            return Err(Failure::Usage(format!(
                "{name:?} is no field of ROCE_ACCL that can be written"
            )));
        }
        if *value > 1 {
            return Err(Failure::Usage(format!("{name} {value} is out of range: 0 and 1")));
        }
    }
    let chosen = |field: &str| {
        let selected = of(&format!("{field}_field_select")).unwrap_or(1) != 0;
        of(&format!("{field}_en")).filter(|_| selected)
    };
    let all: HashMap<String, String> = FIELDS
        .iter()
        .filter_map(|(field, parameter)| Some(((*parameter).to_owned(), chosen(field)?.to_string())))
        .collect();
    if all.is_empty() {
        return Err(Failure::Usage("no field is selected that is written".to_owned()));
    }
    Ok(all)
}

/// Text of the register.
pub fn text(now: &v1::Congestion) -> String {
    let selects = FIELDS.map(|(field, _)| (format!("{field}_field_select"), 1));
    let values = FIELDS.map(|(field, parameter)| {
        let found = now.parameters.iter().find(|p| p.name == parameter);
        let value = found.and_then(|p| p.value.parse().ok()).unwrap_or(0);
        (format!("{field}_en"), value)
    });
    mlxreg::rows(&[selects, values].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<Vec<(String, String)>, String> {
        let fields = crate::check::qos::assignments(text)?;
        let mut all: Vec<_> = parameters(&fields)
            .map_err(|e| format!("{e:?}"))?
            .into_iter()
            .collect();
        all.sort();
        Ok(all)
    }

    #[test]
    fn fields_that_are_selected_are_written() {
        let wanted = |all: &[(&str, &str)]| {
            Ok(all
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect())
        };
        assert_eq!(
            ask("roce_slow_restart_idle_en=0x01"),
            wanted(&[("roce_slow_restart_idle_en", "1")])
        );
        assert_eq!(
            ask("roce_tx_window_en=0,roce_slow_restart_en=1,roce_slow_restart_field_select=1"),
            wanted(&[("SlowStart", "1"), ("TxWindow", "0")])
        );
        assert_eq!(
            ask("roce_tx_window_en=0,roce_tx_window_field_select=0,roce_adp_retrans_en=0"),
            wanted(&[("AdpRetrans", "0")])
        );
        for (text, problem) in [
            ("roce_tx_window_en=2", "0 and 1"),
            ("min_ack_timeout_limit_disabled=1", "no field"),
            ("roce_tx_window_en=1,roce_tx_window_field_select=0", "selected"),
        ] {
            let error = ask(text).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
