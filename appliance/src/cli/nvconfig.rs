//! `vnicctl nvconfig`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Subcommand;
use vnic_control::v1;

use super::Failure;
use super::client::Client;
use super::output::Output;
use super::text;

/// What to do with the NV configuration.
#[derive(Debug, Subcommand)]
pub enum NvVerb {
    /// Show parameters: default, current, and after the next reset of the device
    #[command(after_help = "Examples:\n  vnicctl nvconfig query\n  vnicctl nvconfig query ROCE_CONTROL")]
    Query {
        /// Names of parameters; all when absent
        names: Vec<String>,
    },
    /// Set what parameters will be after the next reset of the device
    #[command(
        after_help = "Examples:\n  vnicctl nvconfig set ROCE_CONTROL=1\n  vnicctl nvconfig set -y ROCE_CONTROL=off && \
                      vnicctl nvconfig device-reset -y"
    )]
    Set {
        /// Name and value; again for further ones: all of them or none
        #[arg(required = true, value_name = "NAME=VALUE")]
        assignments: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Set what parameters will be after the next reset of the device to their defaults
    #[command(after_help = "Example:\n  vnicctl nvconfig reset -y")]
    Reset {
        /// Names of parameters; all when absent
        names: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Reset the device: all adapters' links go down and come back
    #[command(after_help = "Example:\n  vnicctl nvconfig device-reset -y")]
    DeviceReset {
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// Asks for confirmation. Without a terminal, `-y` is needed.
fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("{what}: say -y, nobody can be asked")));
    }
    write!(std::io::stderr(), "{what}? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing has changed".to_owned())),
    }
}

/// Runs a command.
pub async fn run(verb: NvVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.nvconfig().await?;
    match verb {
        NvVerb::Query { names } => {
            let request = v1::ListNvParametersRequest {};
            let mut all = service.list_nv_parameters(request).await?.into_inner();
            let is = |p: &v1::NvParameter, n: &String| p.name.eq_ignore_ascii_case(n);
            if let Some(unknown) = names.iter().find(|n| !all.parameters.iter().any(|p| is(p, n))) {
                return Err(Failure::Failed(format!("there is no parameter {unknown}")));
            }
            all.parameters
                .retain(|p| names.is_empty() || names.iter().any(|n| is(p, n)));
            out.message("ListNvParametersResponse", &all, || table(&all.parameters))
        }
        NvVerb::Set { assignments, yes } => {
            let mut request = v1::SetNvParametersRequest::default();
            for text in &assignments {
                let (name, value) = text
                    .split_once('=')
                    .ok_or_else(|| Failure::Usage(format!("{text}: NAME=VALUE is allowed")))?;
                request
                    .assignments
                    .push(v1::set_nv_parameters_request::Assignment {
                        name: name.to_owned(),
                        value: value.to_owned(),
                    });
            }
            confirm(
                yes,
                &format!("set {} from the next reset on", assignments.join(" ")),
            )?;
            let done = service.set_nv_parameters(request).await?.into_inner();
            out.message("SetNvParametersResponse", &done, || {
                table(&done.parameters) + "takes effect with vnicctl nvconfig device-reset\n"
            })
        }
        NvVerb::Reset { names, yes } => {
            let what = match names.is_empty() {
                true => "all parameters".to_owned(),
                false => names.join(" "),
            };
            confirm(yes, &format!("set {what} to the default from the next reset on"))?;
            let request = v1::ResetNvParametersRequest { names };
            let done = service.reset_nv_parameters(request).await?.into_inner();
            out.message("ResetNvParametersResponse", &done, || {
                match done.parameters.as_slice() {
                    [] => "all had their defaults\n".to_owned(),
                    changed => table(changed) + "takes effect with vnicctl nvconfig device-reset\n",
                }
            })
        }
        NvVerb::DeviceReset { yes } => {
            confirm(
                yes,
                "reset the device: the links of all adapters go down and come back",
            )?;
            let request = v1::ResetDeviceRequest {};
            let done = service.reset_device(request).await?.into_inner();
            out.message("ResetDeviceResponse", &done, || {
                let changed = match done.parameters.as_slice() {
                    [] => String::new(),
                    changed => table(changed),
                };
                format!("{changed}{} adapters restarted\n", done.adapters.len())
            })
        }
    }
}

fn table(parameters: &[v1::NvParameter]) -> String {
    text::table! { p in parameters, "no parameters";
        let value = |v: Option<u32>| match v {
            None => "-".to_owned(),
            Some(v) => match p.choices.iter().find(|c| c.value == v) {
                Some(choice) => format!("{}({v})", choice.word),
                None => v.to_string(),
            },
        };
        let (current, next) = match p.built {
            true => (value(p.current_value), value(p.next_value)),
            false => ("not implemented".to_owned(), "-".to_owned()),
        };
        // As in mlxconfig, an asterisk marks a value that the next reset changes.
        let mark = if p.current_value == p.next_value { "" } else { " *" };
        "PARAMETER": p.name,
        "DEFAULT": value(p.default_value),
        "CURRENT": current,
        "NEXT BOOT": next + mark,
        "MEANING": p.help,
    }
}
