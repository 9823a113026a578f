//! `vnicctl mlx5muxtool`: verbs and output in the syntax of the Windows tool.
//!
//! Adapters of the tool are ports here; their names are in the place of its GUIDs, also in braces.

use std::fmt::Write as _;

use vnic_control::v1;

use super::client::{Client, resource};
use super::output::Output;
use super::team::{self, show};
use super::{Failure, port};
use crate::names::{self, PORTS};

/// Examples, for the help.
pub const HELP: &str = "\
Verbs:
  showlist
  create team <Aggregate|Failover> <Name> [NoFailBackToPrimary] [IPoIB]
  attach team <Name> <Port> [primary] [SetTeamMacAddress]
  detach team <Name> <Port>
  removeteam <Name>
  queryteam <Name>

Examples:
  vnicctl mlx5muxtool create team Failover Team0 NoFailBackToPrimary
  vnicctl mlx5muxtool attach team Team0 p0 primary SetTeamMacAddress
  vnicctl mlx5muxtool attach team Team0 p1
  vnicctl mlx5muxtool queryteam Team0

Words may be written in small or capital letters. Names of ports stand where the tool has GUIDs. What the tool \
cannot say (hash, LACP, delays, VLAN, view, affinities): vnicctl team.";

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    ShowList,
    Create {
        kind: v1::team::Type,
        name: String,
        no_failback: bool,
        ipoib: bool,
    },
    Attach {
        name: String,
        port: String,
        primary: bool,
        set_mac: bool,
    },
    Detach {
        name: String,
        port: String,
    },
    Remove(String),
    Query(String),
}

/// Runs a command.
pub async fn run(words: &[String], client: &Client, out: &Output) -> Result<(), Failure> {
    let wish = parse(words).map_err(Failure::Usage)?;
    let mut service = client.teams().await?;
    match wish {
        Wish::ShowList => {
            let all = team::list(client).await?;
            let ports = port::list(client).await?.ports;
            out.message("ListTeamsResponse", &all, || list(&all, &ports))
        }
        Wish::Create {
            kind,
            name,
            no_failback,
            ipoib,
        } => {
            let mut new = v1::Team {
                no_failback_to_primary: no_failback,
                ipoib,
                ..v1::Team::default()
            };
            new.set_type(kind);
            let request = v1::CreateTeamRequest {
                team_id: name.clone(),
                team: Some(new),
            };
            let made = service.create_team(request).await?.into_inner();
            out.message("Team", &made, || {
                let guid = made.guid.trim_matches(['{', '}']);
                format!("Adding team {name}\nTeam created with Guid = {guid}\n")
            })
        }
        Wish::Attach {
            name,
            port,
            primary,
            set_mac,
        } => {
            let request = v1::AttachTeamMemberRequest {
                name: team::team_name(&name),
                port: resource(PORTS, &port),
                primary,
                set_team_mac_address: set_mac,
            };
            let team = service.attach_team_member(request).await?.into_inner();
            out.message("Team", &team, || {
                format!("Attaching adapter {port} to team {name}\n")
            })
        }
        Wish::Detach { name, port } => {
            let request = v1::DetachTeamMemberRequest {
                name: team::team_name(&name),
                port: resource(PORTS, &port),
            };
            let team = service.detach_team_member(request).await?.into_inner();
            out.message("Team", &team, || {
                format!("Detaching adapter {port} from team {name}\n")
            })
        }
        Wish::Remove(name) => {
            let request = v1::DeleteTeamRequest {
                name: team::team_name(&name),
                etag: String::new(),
            };
            let team = service.delete_team(request).await?.into_inner();
            out.message("Team", &team, || {
                let mut text = format!("Delete team {name}\n");
                for member in &team.members {
                    let _ = writeln!(text, "Deleting member {}", names::last(&member.port));
                }
                text
            })
        }
        Wish::Query(name) => {
            let request = v1::GetTeamRequest {
                name: team::team_name(&name),
            };
            let team = service.get_team(request).await?.into_inner();
            let ports = port::list(client).await?.ports;
            out.message("Team", &team, || query(&team, &ports))
        }
    }
}

/// Parses the tool's command line.
fn parse(words: &[String]) -> Result<Wish, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
    let adapter = |text: &str| {
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        inner.unwrap_or(text).to_owned()
    };
    // Flags at the end, each once, in any order.
    let flags = |given: &[&str], known: [&str; 2]| -> Result<[bool; 2], String> {
        let mut on = [false; 2];
        for word in given {
            let i = known.iter().position(|k| is(word, k));
            let flag = i.and_then(|i| on.get_mut(i));
            match flag {
                Some(flag) if !*flag => *flag = true,
                Some(_) => return Err(format!("{word} is given twice")),
                None => return Err(format!("{word}; allowed: {}", known.join(", "))),
            }
        }
        Ok(on)
    };
    match words.as_slice() {
        [] => Err(format!("what shall be done is missing\n\n{HELP}")),
        [verb] if is(verb, "showlist") => Ok(Wish::ShowList),
        [verb, name] if is(verb, "removeteam") => Ok(Wish::Remove((*name).to_owned())),
        [verb, name] if is(verb, "queryteam") => Ok(Wish::Query((*name).to_owned())),
        [verb, team, kind, name, rest @ ..] if is(verb, "create") && is(team, "team") => {
            let kind = match kind.to_ascii_lowercase().as_str() {
                "aggregate" => v1::team::Type::Aggregate,
                "failover" => v1::team::Type::Failover,
                _ => return Err(format!("{kind}; allowed: Aggregate, Failover")),
            };
            let [no_failback, ipoib] = flags(rest, ["NoFailBackToPrimary", "IPoIB"])?;
            Ok(Wish::Create {
                kind,
                name: (*name).to_owned(),
                no_failback,
                ipoib,
            })
        }
        [verb, team, name, port, rest @ ..] if is(verb, "attach") && is(team, "team") => {
            let [primary, set_mac] = flags(rest, ["primary", "SetTeamMacAddress"])?;
            Ok(Wish::Attach {
                name: (*name).to_owned(),
                port: adapter(port),
                primary,
                set_mac,
            })
        }
        [verb, team, name, port] if is(verb, "detach") && is(team, "team") => Ok(Wish::Detach {
            name: (*name).to_owned(),
            port: adapter(port),
        }),
        _ => Err(format!(
            "{}: not a command of the tool\n\n{HELP}",
            words.join(" ")
        )),
    }
}

/// Device of a port in words.
fn described(ports: &[v1::Port], name: &str) -> String {
    let port = ports.iter().find(|p| names::last(&p.name) == names::last(name));
    port.map_or_else(|| "not there".to_owned(), port::uplink)
}

fn list(all: &v1::ListTeamsResponse, ports: &[v1::Port]) -> String {
    let mut text = String::new();
    for team in &all.teams {
        let _ = writeln!(
            text,
            "{:<40}  Team {} ({})",
            team.guid,
            show::name(team),
            show::kind(team)
        );
    }
    for port in ports {
        let name = names::last(&port.name);
        let _ = writeln!(text, "{name:<40}  {} (Ethernet)", described(ports, name));
    }
    text
}

fn query(team: &v1::Team, ports: &[v1::Port]) -> String {
    let kind = match team.r#type() {
        v1::team::Type::Failover => "Failover",
        _ => "Aggregate",
    };
    let mut text = "Found 1 team(s)\n".to_owned();
    for (key, value) in [
        ("Name", show::name(team)),
        ("GUID", &team.guid),
        ("PortType", "Ethernet"),
        ("TeamType", kind),
        ("MemberCount", &team.members.len().to_string()),
    ] {
        let _ = writeln!(text, "{key:<18} : {value}");
    }
    for (i, member) in team.members.iter().enumerate() {
        let port = names::last(&member.port);
        let primary = if member.primary { " (Primary)" } else { "" };
        let key = format!("Member[{i}]");
        let _ = writeln!(text, "{key:<18} : {port}{primary} ({})", described(ports, port));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Result<Wish, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn command_lines_of_the_tool_are_read() {
        let ok = |line: &str| ask(line).expect("a command");
        assert_eq!(ok("showlist"), Wish::ShowList);
        assert_eq!(
            ok("create team Failover Team0 NoFailBackToPrimary"),
            Wish::Create {
                kind: v1::team::Type::Failover,
                name: "Team0".to_owned(),
                no_failback: true,
                ipoib: false,
            }
        );
        assert_eq!(
            ok("CREATE TEAM aggregate MyTeam ipoib"),
            Wish::Create {
                kind: v1::team::Type::Aggregate,
                name: "MyTeam".to_owned(),
                no_failback: false,
                ipoib: true,
            }
        );
        assert_eq!(
            ok("attach team Team0 {p0} SetTeamMacAddress primary"),
            Wish::Attach {
                name: "Team0".to_owned(),
                port: "p0".to_owned(),
                primary: true,
                set_mac: true,
            }
        );
        assert_eq!(
            ok("detach team Team0 p0"),
            Wish::Detach {
                name: "Team0".to_owned(),
                port: "p0".to_owned()
            }
        );
        assert_eq!(ok("removeteam Team0"), Wish::Remove("Team0".to_owned()));
        assert_eq!(ok("queryteam Team0"), Wish::Query("Team0".to_owned()));
    }

    #[test]
    fn wrong_command_lines_say_what_is_wrong() {
        for (line, problem) in [
            ("", "missing"),
            ("showlist x", "not a command"),
            ("create team Mirror T", "allowed: Aggregate, Failover"),
            ("create team Failover T Sometimes", "NoFailBackToPrimary, IPoIB"),
            ("create team Failover T IPoIB ipoib", "twice"),
            ("create Failover T", "not a command"),
            ("attach team T", "not a command"),
            ("attach team T p0 secondary", "primary, SetTeamMacAddress"),
            ("detach team T p0 now", "not a command"),
            ("removeteam", "not a command"),
        ] {
            let error = ask(line).expect_err(line);
            assert!(error.contains(problem), "{line}: {error}");
        }
    }
}
