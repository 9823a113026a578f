//! `vnicctl mlx5cmd`: verbs in the syntax of the Windows tool, with its single-dash options.

mod dcqcn;
mod zt_roce;

use std::fmt::Write as _;

use vnic_control::v1;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

use super::client::{Client, resource};
use super::output::Output;
use super::{Failure, adapter, adapter_mac, connection, qp, text};
use crate::names::{self, ADAPTERS};

/// Examples, for the help.
pub const HELP: &str = "\
Examples:
  vnicctl mlx5cmd -MacAddressList -Name vf0 -Query
  vnicctl mlx5cmd -MacAddressList -Name vf0 -Add -Entries 2 02-00-5E-00-01-01 02-00-5E-00-01-02
  vnicctl mlx5cmd -MacAddressList -Name vf0 -Delete -Entries 1 02-00-5E-00-01-01
  vnicctl mlx5cmd -RegKeys -Name vf0
  vnicctl mlx5cmd -QosConfig -DefaultUntaggedPriority -Name vf0 -Get
  vnicctl mlx5cmd -QosConfig -DefaultUntaggedPriority -Name vf0 -Set 3
  vnicctl mlx5cmd -QosConfig -Dcqcn -Name vf0 -Get
  vnicctl mlx5cmd -QosConfig -Dcqcn -Name vf0 -Enable 3
  vnicctl mlx5cmd -QosConfig -Dcqcn -Name vf0 -Set -DcqcnClampTgtRate 1 -DcqcnCnpDscp 3
  vnicctl mlx5cmd -QosConfig -Dcqcn -Name vf0 -Defaults
  vnicctl mlx5cmd -Dcqcn -Name vf0 -Restore
  vnicctl mlx5cmd -ZtRoce -Name vf0 -Get
  vnicctl mlx5cmd -ZtRoce -Name vf0 -Set -AdpRetrans 0 -TxWindow 1 -SlowStart 1
  vnicctl mlx5cmd -Features
  vnicctl mlx5cmd -Stat
  vnicctl mlx5cmd -NdStat -ece

Options may be written in small or capital letters. Verbs of the tool whose feature this NIC does not have yet are \
refused.";

/// Output of the tool after success.
const DONE: &str = "The command was executed successfully\n";

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    MacQuery(String),
    MacAdd(String, Vec<String>),
    MacDelete(String, Vec<String>),
    RegKeys(String),
    PriorityGet(String),
    PrioritySet(String, String),
    Dcqcn(String, dcqcn::Act),
    ZtRoce(String, zt_roce::Act),
    /// Of one adapter, or of all.
    Features(Option<String>),
    Stat,
    /// Connections; whether with their ECE.
    NdStat(bool),
}

/// Runs a command.
pub async fn run(words: &[String], client: &Client, out: &Output) -> Result<(), Failure> {
    match parse(words).map_err(Failure::Usage)? {
        Wish::MacQuery(name) => {
            let adapter = adapter_mac::list(client, &name).await?;
            out.message("Adapter", &adapter, || mac_list(&adapter))
        }
        Wish::MacAdd(name, macs) => {
            let adapter = adapter_mac::add(client, &name, macs).await?;
            out.message("Adapter", &adapter, || DONE.to_owned())
        }
        Wish::MacDelete(name, macs) => {
            let adapter = adapter_mac::delete(client, &name, macs).await?;
            out.message("Adapter", &adapter, || DONE.to_owned())
        }
        Wish::RegKeys(name) => {
            let mut service = RegistryServiceClient::new(client.channel().await?);
            let request = v1::ListEntriesRequest {
                scope: resource(ADAPTERS, &name),
                page_size: 10_000,
                ..v1::ListEntriesRequest::default()
            };
            let list = service.list_entries(request).await?.into_inner();
            out.message("ListEntriesResponse", &list, || reg_keys(&name, &list.entries))
        }
        Wish::PriorityGet(name) => {
            let qos = qos(client, &name).await?;
            out.message("Qos", &qos, || {
                format!("Default untagged priority: {}\n{DONE}", qos.default_priority)
            })
        }
        Wish::PrioritySet(name, value) => {
            let request = v1::SetEntryRequest {
                scope: resource(ADAPTERS, &name),
                key: "DefaultUntaggedPriority".to_owned(),
                value,
                if_match: None,
            };
            let done = client.registry().await?.set_entry(request).await?.into_inner();
            out.message("SetEntryResponse", &done, || {
                let said = done.warnings.iter().map(|w| format!("Warning: {}\n", w.message));
                said.collect::<String>() + DONE
            })
        }
        Wish::Dcqcn(name, act) => dcqcn::run(&name, act, client, out).await,
        Wish::ZtRoce(name, act) => zt_roce::run(&name, act, client, out).await,
        Wish::Features(Some(name)) => {
            let adapter = adapter_mac::list(client, &name).await?;
            let (qos, text) = features_of(client, &adapter).await?;
            out.message("Qos", &qos, || text + DONE)
        }
        Wish::Features(None) => {
            let (mut all, mut text) = (v1::ListQosResponse::default(), String::new());
            for adapter in adapter::list(client).await?.adapters {
                let (qos, of) = features_of(client, &adapter).await?;
                all.qos.push(qos);
                text += &of;
                text.push('\n');
            }
            out.message("ListQosResponse", &all, || text + DONE)
        }
        Wish::Stat => {
            let all = adapter::list(client).await?;
            out.message("ListAdaptersResponse", &all, || stat(&all.adapters))
        }
        Wish::NdStat(ece) => {
            let all = connection::all(client, String::new()).await?;
            out.message("ListRdmaConnectionsResponse", &all, || {
                nd_stat(&all.connections, ece)
            })
        }
    }
}

/// Quality of service of an adapter, and its features in words.
async fn features_of(client: &Client, adapter: &v1::Adapter) -> Result<(v1::Qos, String), Failure> {
    let mut registry = client.registry().await?;
    let mut keys = [None, None];
    for (key, value) in ["*QoSOffload", "EceSupportEnabled"].into_iter().zip(&mut keys) {
        let request = v1::GetEntryRequest {
            scope: adapter.name.clone(),
            key: key.to_owned(),
        };
        *value = registry.get_entry(request).await?.into_inner().effective;
    }
    let qos = qos(client, names::last(&adapter.name)).await?;
    let [offload, ece] = keys.each_ref().map(Option::as_deref);
    let text = features(adapter, &qos, offload, ece);
    Ok((qos, text))
}

async fn qos(client: &Client, adapter: &str) -> Result<v1::Qos, Failure> {
    let request = v1::GetQosRequest {
        name: names::qos(&resource(ADAPTERS, adapter)),
    };
    Ok(client.qos().await?.get_qos(request).await?.into_inner())
}

/// Parses the tool's command line.
fn parse(words: &[String]) -> Result<Wish, String> {
    let is = |word: &String, option: &str| word.eq_ignore_ascii_case(option);
    let Some((verb, mut rest)) = words.split_first() else {
        return Err(format!("what shall be done is missing\n\n{HELP}"));
    };
    if is(verb, "-NdStat") || is(verb, "-NdkStat") {
        // The document's second form has another dash.
        return match rest {
            [] => Ok(Wish::NdStat(false)),
            [option] if is(option, "-ece") || is(option, "–ece") => Ok(Wish::NdStat(true)),
            _ => Err(format!("{verb} has the option -ece only")),
        };
    }
    if let Some(wish) = dcqcn::parse(words) {
        return wish.map(|(name, act)| Wish::Dcqcn(name, act));
    }
    if let Some(wish) = zt_roce::parse(words) {
        return wish.map(|(name, act)| Wish::ZtRoce(name, act));
    }
    let (mut name, mut query, mut edit) = (None, false, None);
    let (mut priority, mut get, mut set) = (false, false, None);
    while let Some((option, behind)) = rest.split_first() {
        rest = behind;
        if is(option, "-Name") {
            let (value, behind) = rest.split_first().ok_or("-Name: the adapter's name is missing")?;
            name = Some(value.clone());
            rest = behind;
        } else if is(option, "-Query") {
            query = true;
        } else if is(option, "-DefaultUntaggedPriority") {
            priority = true;
        } else if is(option, "-Get") {
            get = true;
        } else if is(option, "-Set") {
            let (value, behind) = rest.split_first().ok_or("-Set: the priority is missing")?;
            set = Some(value.clone());
            rest = behind;
        } else if is(option, "-Add") || is(option, "-Delete") {
            if edit.is_some() {
                return Err(
                    "-Add and -Delete are given together, or twice; one of them is allowed".to_owned(),
                );
            }
            edit = Some((is(option, "-Add"), Vec::new()));
        } else if is(option, "-Entries") {
            let Some((_, macs)) = &mut edit else {
                return Err("-Entries stands behind -Add or -Delete".to_owned());
            };
            let (count, behind) = rest.split_first().ok_or("-Entries: how many is missing")?;
            let n: usize = count
                .parse()
                .map_err(|_| format!("-Entries: {count:?} is no number of addresses"))?;
            let (given, behind) = behind.split_at(behind.iter().take_while(|w| !w.starts_with('-')).count());
            if n == 0 || given.len() != n {
                return Err(format!("-Entries: {n} announced, {} given", given.len()));
            }
            macs.extend_from_slice(given);
            rest = behind;
        } else {
            return Err(format!("{option} is not an option that is known here\n\n{HELP}"));
        }
    }
    let named = |name: Option<String>| name.ok_or_else(|| format!("{verb} needs -Name and an adapter"));
    if is(verb, "-QosConfig") && priority && !query && edit.is_none() {
        let name = named(name)?;
        return match (get, set) {
            (true, None) => Ok(Wish::PriorityGet(name)),
            (false, Some(value)) => Ok(Wish::PrioritySet(name, value)),
            _ => Err("one of -Get and -Set is needed".to_owned()),
        };
    }
    let other = query || edit.is_some() || priority || get || set.is_some();
    if is(verb, "-MacAddressList") && !(priority || get || set.is_some()) {
        let name = named(name)?;
        return match (query, edit) {
            (true, None) => Ok(Wish::MacQuery(name)),
            (false, Some((_, macs))) if macs.is_empty() => {
                Err("-Entries and addresses are missing".to_owned())
            }
            (false, Some((true, macs))) => Ok(Wish::MacAdd(name, macs)),
            (false, Some((false, macs))) => Ok(Wish::MacDelete(name, macs)),
            _ => Err("one of -Query, -Add and -Delete is needed".to_owned()),
        };
    }
    if is(verb, "-Features") && !other {
        return Ok(Wish::Features(name));
    }
    if is(verb, "-RegKeys") && !other {
        return Ok(Wish::RegKeys(named(name)?));
    }
    if is(verb, "-Stat") && !other && name.is_none() {
        return Ok(Wish::Stat);
    }
    Err(format!("{} is not implemented\n\n{HELP}", words.join(" ")))
}

/// Address in the tool's format.
fn dashed(mac: &str) -> String {
    mac.replace(':', "-").to_uppercase()
}

fn mac_list(adapter: &v1::Adapter) -> String {
    let mut text = format!("MAC address list for adapter '{}':\n", names::last(&adapter.name));
    for mac in &adapter.additional_macs {
        let _ = writeln!(text, "{}", dashed(mac));
    }
    let _ = writeln!(text, "Number of entries: {}", adapter.additional_macs.len());
    text + DONE
}

fn reg_keys(name: &str, entries: &[v1::RegistryEntry]) -> String {
    let mut text = format!("Registry keys for adapter '{name}':\n");
    for entry in entries.iter().filter(|e| e.built) {
        let effective = entry.effective.as_deref().unwrap_or_default();
        let _ = match &entry.pending {
            Some(pending) => writeln!(text, "{}: {effective} (after a restart: {pending})", entry.key),
            None => writeln!(text, "{}: {effective}", entry.key),
        };
    }
    text + DONE
}

/// Features of the adapter that this NIC has.
fn features(adapter: &v1::Adapter, qos: &v1::Qos, offload: Option<&str>, ece: Option<&str>) -> String {
    let mut text = format!("Features of adapter '{}':\n", names::last(&adapter.name));
    let rdma = match &adapter.rdma {
        Some(r) if r.off.is_empty() => "Enabled".to_owned(),
        Some(r) => format!("Disabled ({})", r.off),
        None => "Disabled (the adapter has no RDMA function)".to_owned(),
    };
    let offload = match offload {
        Some("0") => "Disabled (*QoSOffload is 0)",
        _ => "Enabled",
    };
    let ece = match (&adapter.rdma, ece) {
        (Some(r), Some("0")) if r.off.is_empty() => "Disabled (EceSupportEnabled is 0)".to_owned(),
        (Some(r), _) if r.off.is_empty() => "Enabled".to_owned(),
        _ => rdma.clone(),
    };
    let queue = match &qos.schedule_queue {
        Some(_) => "Configured",
        None => "None",
    };
    let per_priority = match qos.send_queue_per_priority {
        true => "Enabled",
        false => "Disabled (SendQueuePerPrio is 0)",
    };
    let _ = writeln!(text, "RoCE: {rdma}");
    let _ = writeln!(text, "Enhanced connection establishment: {ece}");
    let _ = writeln!(text, "QoS offload: {offload}");
    let _ = writeln!(text, "Schedule queue: {queue}");
    let _ = writeln!(text, "Send queue per priority: {per_priority}");
    text
}

/// Connections, one a line; at its end the ECE if it is asked for. (Programs and virtual machines alike: the tool tells those of
/// programs from those of Windows' kernel, and here is no Windows.)
fn nd_stat(connections: &[v1::RdmaConnection], ece: bool) -> String {
    let mut out = String::new();
    for c in connections {
        let peer = c.peer.clone().unwrap_or_default();
        let _ = write!(
            out,
            "{} {} {} {} QP {} peer {} QP {}",
            names::last(&c.adapter),
            connection::service(c),
            if c.passive { "passive" } else { "active" },
            text::word(c.state().as_str_name(), "STATE_"),
            c.queue_pair,
            qp::address(&peer),
            peer.queue_pair
        );
        if ece {
            let _ = write!(out, " ECE {}", connection::ece(c));
        }
        out.push('\n');
    }
    let _ = writeln!(out, "Number of connections: {}", connections.len());
    out + DONE
}

fn stat(adapters: &[v1::Adapter]) -> String {
    let mut text = String::new();
    for a in adapters {
        let link = match a.state() {
            v1::adapter::State::Up => "up",
            _ => "down",
        };
        let rdma = match &a.rdma {
            Some(r) if r.off.is_empty() => "Enabled",
            _ => "Disabled",
        };
        let _ = writeln!(text, "Adapter name: {}", names::last(&a.name));
        let mac = a.macs.first().map(|m| dashed(m)).unwrap_or_default();
        let _ = writeln!(text, "MAC address: {mac}");
        let _ = writeln!(text, "MTU: {}", a.mtu);
        let _ = writeln!(text, "Link: {link}");
        let _ = writeln!(text, "RoCE: {rdma}\n");
    }
    text + DONE
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
        let macs = vec!["AB-CD-EF-AB-CD-E0".to_owned(), "AB-CD-EF-AB-CD-E1".to_owned()];
        let ok = |line: &str| ask(line).expect("a command");
        assert_eq!(
            ok("-MacAddressList -Name vf0 -Query"),
            Wish::MacQuery("vf0".to_owned())
        );
        assert_eq!(
            ok("-macaddresslist -name vf0 -add -entries 2 AB-CD-EF-AB-CD-E0 AB-CD-EF-AB-CD-E1"),
            Wish::MacAdd("vf0".to_owned(), macs.clone())
        );
        assert_eq!(
            ok("-MacAddressList -Delete -Entries 2 AB-CD-EF-AB-CD-E0 AB-CD-EF-AB-CD-E1 -Name vf0"),
            Wish::MacDelete("vf0".to_owned(), macs)
        );
        assert_eq!(ok("-RegKeys -Name vf0"), Wish::RegKeys("vf0".to_owned()));
        assert_eq!(ok("-Stat"), Wish::Stat);
        assert_eq!(ok("-ndstat"), Wish::NdStat(false));
        assert_eq!(
            [ok("-ndstat -ece"), ok("-ndkstat –ece")],
            [Wish::NdStat(true), Wish::NdStat(true)]
        );
        assert_eq!(
            ok("-QosConfig -DefaultUntaggedPriority -Name vf0 -Get"),
            Wish::PriorityGet("vf0".to_owned())
        );
        assert_eq!(
            ok("-qosconfig -defaultuntaggedpriority -name vf0 -set 3"),
            Wish::PrioritySet("vf0".to_owned(), "3".to_owned())
        );
        assert_eq!(
            [ok("-Features -Name vf0"), ok("-features")],
            [Wish::Features(Some("vf0".to_owned())), Wish::Features(None)]
        );
    }

    #[test]
    fn wrong_command_lines_say_what_is_wrong() {
        for (line, problem) in [
            ("", "missing"),
            ("-MacAddressList -Query", "-Name"),
            ("-NdStat -all", "-ece only"),
            ("-MacAddressList -Name", "name is missing"),
            ("-MacAddressList -Name vf0", "one of -Query, -Add and -Delete"),
            ("-MacAddressList -Name vf0 -Query -Add -Entries 1 A", "one of"),
            ("-MacAddressList -Name vf0 -Add -Delete", "together"),
            ("-MacAddressList -Name vf0 -Add", "-Entries"),
            ("-MacAddressList -Name vf0 -Entries 1 A", "behind"),
            ("-MacAddressList -Name vf0 -Add -Entries x A", "no number"),
            (
                "-MacAddressList -Name vf0 -Add -Entries 2 A",
                "2 announced, 1 given",
            ),
            (
                "-MacAddressList -Name vf0 -Add -Entries 1 A B",
                "1 announced, 2 given",
            ),
            ("-MacAddressList -Name vf0 -Frob", "-Frob"),
            ("-Sniffer", "not implemented"),
            ("-Stat -Query", "not implemented"),
            (
                "-QosConfig -DefaultUntaggedPriority -Name vf0",
                "one of -Get and -Set",
            ),
            (
                "-QosConfig -DefaultUntaggedPriority -Name vf0 -Set",
                "priority is missing",
            ),
            ("-QosConfig -DefaultUntaggedPriority -Get", "-Name"),
            ("-QosConfig -Name vf0 -Get", "not implemented"),
            ("-MacAddressList -Name vf0 -Get", "not implemented"),
        ] {
            let error = ask(line).expect_err(line);
            assert!(error.contains(problem), "{line}: {error}");
        }
    }
}
