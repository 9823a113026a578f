//! `mlx5cmd -ZtRoce` (WinOF-2 Ethernet Network, Zero Touch RoCE).

use std::collections::HashMap;
use std::fmt::Write as _;

use vnic_control::v1;

use super::super::client::Client;
use super::super::congestion;
use super::super::output::Output;
use super::{DONE, Failure};

/// Facilities, in the order of the tool's output.
const FACILITIES: [&str; 3] = ["AdpRetrans", "TxWindow", "SlowStart"];

const HELP: &str = "\
Zero touch RoCE, by facility: -AdpRetrans, -TxWindow and -SlowStart.
  mlx5cmd -ZtRoce -Name ADAPTER -Get        what acts
  mlx5cmd -ZtRoce -Name ADAPTER -Caps       what the NIC can do
  mlx5cmd -ZtRoce -Name ADAPTER -Defaults   what acts while nothing is set
  mlx5cmd -ZtRoce -Name ADAPTER -Set [-AdpRetrans 0|1] [-TxWindow 0|1] [-SlowStart 0|1]
  mlx5cmd -ZtRoce -Name ADAPTER -Enable | -Disable | -Restore
";

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Show what acts.
    Get,
    /// Show what the NIC can do.
    Caps,
    /// Show default values.
    Defaults,
    /// Set facilities; without a value, to the default.
    Set(Vec<(&'static str, Option<bool>)>),
    /// Show the help.
    Help,
}

/// Runs a command.
pub async fn run(name: &str, act: Act, client: &Client, out: &Output) -> Result<(), Failure> {
    let now = match &act {
        Act::Help => {
            out.message("Congestion", &v1::Congestion::default(), || HELP.to_owned())?;
            return Ok(());
        }
        Act::Get | Act::Caps | Act::Defaults => congestion::get(client, name).await?,
        Act::Set(facilities) => {
            let value = |on: &Option<bool>| on.map_or_else(String::new, |on| u32::from(on).to_string());
            let wanted: HashMap<_, _> = facilities
                .iter()
                .map(|(facility, on)| ((*facility).to_owned(), value(on)))
                .collect();
            congestion::set(client, congestion::parameters(name, wanted)).await?
        }
    };
    out.message("Congestion", &now, || text(name, &act, &now))
}

fn text(name: &str, act: &Act, now: &v1::Congestion) -> String {
    let (title, value): (_, fn(&v1::CongestionParameter) -> &str) = match act {
        Act::Get => ("Current configuration", |p| &p.value),
        // What the NIC has is in the list.
        Act::Caps => ("FW capabilities", |_| "1"),
        Act::Defaults => ("Default configuration", |p| &p.preset_value),
        Act::Set(_) | Act::Help => return DONE.to_owned(),
    };
    let mut text = format!("{title} for Adapter '{name}':\n");
    for facility in FACILITIES {
        let on = now
            .parameters
            .iter()
            .any(|p| p.name == facility && value(p) == "1");
        let word = if on { "Enabled" } else { "Disabled" };
        let _ = writeln!(text, "{facility} {word}");
    }
    text + DONE
}

/// Parses a command line if it is `-ZtRoce`.
pub fn parse(words: &[String]) -> Option<Result<(String, Act), String>> {
    let (first, rest) = words.split_first()?;
    first.eq_ignore_ascii_case("-ZtRoce").then(|| read(rest))
}

fn read(mut rest: &[String]) -> Result<(String, Act), String> {
    let is = |word: &String, option: &str| word.eq_ignore_ascii_case(option);
    let (mut name, mut act, mut set) = (None, None, false);
    let all = |on: Option<bool>| Act::Set(FACILITIES.map(|facility| (facility, on)).to_vec());
    while let Some((option, behind)) = rest.split_first() {
        rest = behind;
        let facility = FACILITIES.into_iter().find(|f| {
            option
                .strip_prefix('-')
                .is_some_and(|o| o.eq_ignore_ascii_case(f))
        });
        // (The document has another dash in some of its lines.)
        let verb = option
            .strip_prefix('–')
            .map_or_else(|| option.clone(), |word| format!("-{word}"));
        let chosen = match verb.to_ascii_lowercase().as_str() {
            "-get" => Act::Get,
            "-caps" => Act::Caps,
            "-defaults" => Act::Defaults,
            "-enable" => all(Some(true)),
            "-disable" => all(Some(false)),
            "-restore" => all(None),
            "-h" => return Ok((String::new(), Act::Help)),
            "-set" => {
                set = true;
                Act::Set(Vec::new())
            }
            _ if is(option, "-Name") => {
                let (value, behind) = rest.split_first().ok_or("-Name: the adapter's name is missing")?;
                name = Some(value.clone());
                rest = behind;
                continue;
            }
            _ => {
                let (Some(facility), true, Some(Act::Set(facilities))) = (facility, set, &mut act) else {
                    return Err(format!(
                        "{option} is not an option of -ZtRoce that is known here\n\n{HELP}"
                    ));
                };
                let on = match rest.split_first().map(|(value, behind)| (value.as_str(), behind)) {
                    Some(("0", behind)) => (false, behind),
                    Some(("1", behind)) => (true, behind),
                    _ => return Err(format!("{option}: 0 or 1 is missing")),
                };
                facilities.push((facility, Some(on.0)));
                rest = on.1;
                continue;
            }
        };
        if act.replace(chosen).is_some() {
            return Err(
                "-Get, -Caps, -Defaults, -Set, -Enable, -Disable and -Restore: one of them is allowed"
                    .to_owned(),
            );
        }
    }
    let name = name.ok_or("-ZtRoce needs -Name and an adapter")?;
    match act {
        None => Err(format!("what shall be done is missing\n\n{HELP}")),
        Some(Act::Set(facilities)) if facilities.is_empty() => {
            Err("-Set: a facility and its value are missing, such as -SlowStart 1".to_owned())
        }
        Some(act) => Ok((name, act)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Option<Result<(String, Act), String>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    fn all(on: Option<bool>) -> Act {
        Act::Set(vec![("AdpRetrans", on), ("TxWindow", on), ("SlowStart", on)])
    }

    #[test]
    fn command_lines_of_the_tool_are_read() {
        for (line, act) in [
            ("-ZtRoce -Name vf0 -Get", Act::Get),
            ("-ztroce -get -name vf0", Act::Get),
            ("-ZtRoce -Name vf0 -Caps", Act::Caps),
            ("-ZtRoce -Name vf0 -Defaults", Act::Defaults),
            ("-ZtRoce -Name vf0 –Enable", all(Some(true))),
            ("-ZtRoce -Name vf0 –Disable", all(Some(false))),
            ("-ZtRoce -Name vf0 -Restore", all(None)),
            (
                "-ZtRoce -Name vf0 -Set -AdpRetrans 0 -TxWindow 1 -SlowStart 1",
                Act::Set(vec![
                    ("AdpRetrans", Some(false)),
                    ("TxWindow", Some(true)),
                    ("SlowStart", Some(true)),
                ]),
            ),
            (
                "-ZtRoce -Set -slowstart 0 -Name vf0",
                Act::Set(vec![("SlowStart", Some(false))]),
            ),
        ] {
            assert_eq!(ask(line), Some(Ok(("vf0".to_owned(), act))), "{line}");
        }
        assert_eq!(ask("-ZtRoce -h"), Some(Ok((String::new(), Act::Help))));
        assert_eq!(ask("-Stat"), None);
    }

    #[test]
    fn wrong_command_lines_say_what_is_wrong() {
        for (line, problem) in [
            ("-ZtRoce -Get", "-Name"),
            ("-ZtRoce -Name", "name is missing"),
            ("-ZtRoce -Name vf0", "what shall be done"),
            ("-ZtRoce -Name vf0 -Get -Caps", "one of them"),
            ("-ZtRoce -Name vf0 -Set -Get", "one of them"),
            ("-ZtRoce -Name vf0 -Set", "are missing"),
            ("-ZtRoce -Name vf0 -Set -TxWindow", "0 or 1"),
            ("-ZtRoce -Name vf0 -Set -TxWindow 2", "0 or 1"),
            ("-ZtRoce -Name vf0 -TxWindow 1", "known here"),
            ("-ZtRoce -Name vf0 -Enable -TxWindow 1", "known here"),
            ("-ZtRoce -Name vf0 -Frob", "-Frob"),
        ] {
            let error = ask(line).expect("about this").expect_err(line);
            assert!(error.contains(problem), "{line}: {error}");
        }
    }

    #[test]
    fn what_acts_is_shown_as_the_tool_does() {
        let parameter = |name: &str, value: &str| v1::CongestionParameter {
            name: name.to_owned(),
            value: value.to_owned(),
            preset_value: "1".to_owned(),
            ..v1::CongestionParameter::default()
        };
        let now = v1::Congestion {
            parameters: vec![
                parameter("AdpRetrans", "0"),
                parameter("TxWindow", "0"),
                parameter("SlowStart", "1"),
            ],
            ..v1::Congestion::default()
        };
        let get = "Current configuration for Adapter 'vf0':\nAdpRetrans Disabled\nTxWindow Disabled\nSlowStart Enabled\n";
        assert_eq!(text("vf0", &Act::Get, &now), format!("{get}{DONE}"));
        let on = "AdpRetrans Enabled\nTxWindow Enabled\nSlowStart Enabled\n";
        for (act, title) in [
            (Act::Caps, "FW capabilities"),
            (Act::Defaults, "Default configuration"),
        ] {
            assert_eq!(
                text("vf0", &act, &now),
                format!("{title} for Adapter 'vf0':\n{on}{DONE}")
            );
        }
    }
}
