//! `mlx5cmd -QosConfig -Dcqcn`.

use std::collections::HashMap;

use super::super::client::Client;
use super::super::congestion::{self, show};
use super::super::output::Output;
use super::{DONE, Failure};

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Show parameters.
    Get,
    /// Show default values.
    Defaults,
    /// Restore default values.
    Restore,
    /// Set parameters.
    Set(Vec<(String, String)>),
    /// Enable or disable a priority, or all.
    Switch(bool, Option<u8>),
}

/// Runs a command.
pub async fn run(name: &str, act: Act, client: &Client, out: &Output) -> Result<(), Failure> {
    let now = match &act {
        Act::Get | Act::Defaults => congestion::get(client, name).await?,
        Act::Restore => congestion::reset(client, name).await?,
        Act::Set(parameters) => {
            let parameters: HashMap<_, _> = parameters.iter().cloned().collect();
            congestion::set(client, congestion::parameters(name, parameters)).await?
        }
        Act::Switch(on, priority) => {
            let mask = priority.map_or(0xff, |p| 1 << p);
            congestion::set(client, congestion::priorities(name, *on, mask, mask)).await?
        }
    };
    out.message("Congestion", &now, || match act {
        Act::Get => show::tool(name, &now, false) + DONE,
        Act::Defaults => show::tool(name, &now, true) + DONE,
        _ => DONE.to_owned(),
    })
}

/// Parses a command line if it is `-QosConfig -Dcqcn`, or `-Dcqcn` alone.
pub fn parse(words: &[String]) -> Option<Result<(String, Act), String>> {
    let is = |word: &String, option: &str| word.eq_ignore_ascii_case(option);
    let rest = match words {
        [first, rest @ ..] if is(first, "-Dcqcn") => rest,
        [first, rest @ ..] if is(first, "-QosConfig") && rest.iter().any(|w| is(w, "-Dcqcn")) => rest,
        _ => return None,
    };
    Some(read(rest))
}

fn read(mut rest: &[String]) -> Result<(String, Act), String> {
    let is = |word: &String, option: &str| word.eq_ignore_ascii_case(option);
    let (mut name, mut act) = (None, None);
    let twice = "-Get, -Set, -Enable, -Disable, -Defaults and -Restore: one of them is allowed";
    while let Some((option, behind)) = rest.split_first() {
        rest = behind;
        let next = |rest: &mut &[String]| {
            let (value, behind) = rest.split_first().filter(|(value, _)| !value.starts_with('-'))?;
            *rest = behind;
            Some(value.clone())
        };
        let mut choose = |new: Act| match act.replace(new) {
            None => Ok(()),
            Some(_) => Err(twice.to_owned()),
        };
        if is(option, "-Dcqcn") {
        } else if is(option, "-Name") {
            name = Some(next(&mut rest).ok_or("-Name: the adapter's name is missing")?);
        } else if is(option, "-Get") {
            choose(Act::Get)?;
        } else if is(option, "-Defaults") {
            choose(Act::Defaults)?;
        } else if is(option, "-Restore") {
            choose(Act::Restore)?;
        } else if is(option, "-Set") {
            choose(Act::Set(Vec::new()))?;
        } else if is(option, "-Enable") || is(option, "-Disable") {
            let priority = match next(&mut rest) {
                None => None,
                Some(text) => Some(text.parse().ok().filter(|p| *p < 8).ok_or_else(|| {
                    format!("{option}: {text:?} is no priority: 0 to 7, or none for all of them")
                })?),
            };
            choose(Act::Switch(is(option, "-Enable"), priority))?;
        } else if let (Some(Act::Set(parameters)), Some(parameter)) = (&mut act, option.strip_prefix('-')) {
            let value = next(&mut rest).ok_or_else(|| format!("{option}: its value is missing"))?;
            parameters.push((parameter.to_owned(), value));
        } else {
            return Err(format!("{option} is not an option of -Dcqcn that is known here"));
        }
    }
    let name = name.ok_or("-Dcqcn needs -Name and an adapter")?;
    match act {
        None => Err("one of -Get, -Set, -Enable, -Disable, -Defaults and -Restore is needed".to_owned()),
        Some(Act::Set(parameters)) if parameters.is_empty() => {
            Err("-Set: a parameter and its value are missing, such as -DcqcnCnpDscp 3".to_owned())
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

    #[test]
    fn command_lines_of_the_tool_are_read() {
        let vf0 = |act: Act| Some(Ok(("vf0".to_owned(), act)));
        for (line, act) in [
            ("-QosConfig -Dcqcn -Name vf0 -Get", Act::Get),
            ("-Qosconfig -dcqcn -get -name vf0", Act::Get),
            ("-QosConfig -Dcqcn -Name vf0 -Enable", Act::Switch(true, None)),
            (
                "-QosConfig -Dcqcn -Name vf0 -Enable 3",
                Act::Switch(true, Some(3)),
            ),
            ("-QosConfig -Dcqcn -Disable -Name vf0", Act::Switch(false, None)),
            ("-QosConfig -Dcqcn -Name vf0 -Defaults", Act::Defaults),
            ("-Dcqcn -Name vf0 -Restore", Act::Restore),
            (
                "-QosConfig -Dcqcn -Name vf0 -Set -DcqcnClampTgtRate 1 -DcqcnCnpDscp 3",
                Act::Set(vec![
                    ("DcqcnClampTgtRate".to_owned(), "1".to_owned()),
                    ("DcqcnCnpDscp".to_owned(), "3".to_owned()),
                ]),
            ),
        ] {
            assert_eq!(ask(line), vf0(act), "{line}");
        }
        assert_eq!(ask("-QosConfig -DefaultUntaggedPriority -Name vf0 -Get"), None);
        assert_eq!(ask("-Stat"), None);
    }

    #[test]
    fn wrong_command_lines_say_what_is_wrong() {
        for (line, problem) in [
            ("-QosConfig -Dcqcn -Get", "-Name"),
            ("-QosConfig -Dcqcn -Name -Get", "name is missing"),
            ("-QosConfig -Dcqcn -Name vf0", "one of -Get"),
            ("-QosConfig -Dcqcn -Name vf0 -Get -Restore", "one of them"),
            ("-QosConfig -Dcqcn -Name vf0 -Enable 8", "no priority"),
            ("-QosConfig -Dcqcn -Name vf0 -Set", "are missing"),
            (
                "-QosConfig -Dcqcn -Name vf0 -Set -DcqcnCnpDscp",
                "value is missing",
            ),
            ("-QosConfig -Dcqcn -Name vf0 -DcqcnCnpDscp 3", "known here"),
            ("-QosConfig -Dcqcn -Name vf0 -Frob", "-Frob"),
        ] {
            let error = ask(line).expect("about this").expect_err(line);
            assert!(error.contains(problem), "{line}: {error}");
        }
    }
}
