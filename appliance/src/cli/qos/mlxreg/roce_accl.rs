//! Register ROCE_ACCL (zero touch RoCE) of an adapter. A field is written if it is named and its `_field_select` is not 0; a
//! register that is read shows 1 there, for all of them can be written.

use std::collections::HashMap;

use vnic_control::v1;

use super::super::super::Failure;
use super::field::{Access, Chosen, Field, Given, rows};

/// Names of a field and of what selects it, bit of both, and the parameter behind it.
const FIELDS: [(&str, &str, u32, &str); 5] = [
    (
        "roce_adp_retrans_en",
        "roce_adp_retrans_field_select",
        0,
        "AdpRetrans",
    ),
    ("roce_tx_window_en", "roce_tx_window_field_select", 1, "TxWindow"),
    (
        "roce_slow_restart_en",
        "roce_slow_restart_field_select",
        2,
        "SlowStart",
    ),
    (
        "roce_slow_restart_idle_en",
        "roce_slow_restart_idle_field_select",
        3,
        "roce_slow_restart_idle_en",
    ),
    (
        "selective_repeat_forced_en",
        "selective_repeat_forced_en_field_select",
        6,
        "selective_repeat_forced_en",
    ),
];

pub(super) fn fields() -> Vec<Field> {
    let selects = FIELDS.map(|(_, select, bit, _)| Field::of(select, (0, bit), 1, Access::Rw));
    let values = FIELDS.map(|(field, _, bit, _)| Field::of(field, (4, bit), 1, Access::Rw));
    [selects, values].concat()
}

/// Parameters of fields that are to be written.
pub fn parameters(given: &Given) -> Result<HashMap<String, String>, Failure> {
    let chosen = Chosen::of(&fields(), given)?;
    let all: HashMap<String, String> = FIELDS
        .iter()
        .filter_map(|(field, select, _, parameter)| {
            Some(((*parameter).to_owned(), chosen.masked(field, select)?.to_string()))
        })
        .collect();
    if all.is_empty() {
        return Err(Failure::Usage("no field is selected that is written".to_owned()));
    }
    Ok(all)
}

/// Text of the register.
pub fn text(now: &v1::Congestion) -> String {
    let selects = FIELDS.map(|(_, select, _, _)| (select.to_owned(), 1));
    let values = FIELDS.map(|(field, _, _, parameter)| {
        let found = now.parameters.iter().find(|p| p.name == parameter);
        let value = found.and_then(|p| p.value.parse().ok()).unwrap_or(0);
        (field.to_owned(), value)
    });
    rows(&[selects, values].concat())
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
            ("roce_tx_window_en=2", "0 to 1"),
            ("min_ack_timeout_limit_disabled=1", "is no field"),
            ("roce_tx_window_en=1,roce_tx_window_field_select=0", "selected"),
        ] {
            let error = ask(text).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
