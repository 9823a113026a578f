//! `vnicctl acl`.

mod args;

use vnic_control::v1;

use super::client::Client;
use super::output::Output;
use super::{Failure, paging, text};
use crate::names;
pub use args::AclVerb;
use args::Default;

/// Change of a list.
type Change = Box<dyn FnOnce(&mut v1::AccessList) -> Result<(), Failure>>;

/// Runs a command.
pub async fn run(verb: AclVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.access_lists().await?;
    let (name, change): (String, Change) = match verb {
        AclVerb::List => {
            let all = paging::list(&mut service, v1::ListAccessListsRequest::default()).await?;
            return out.message("ListAccessListsResponse", &all, || table(&all.access_lists));
        }
        AclVerb::Show { name } => {
            let name = names::access_list(names::last(&name));
            let answer = service.get_access_list(v1::GetAccessListRequest { name }).await?;
            return out.answer("AccessList", answer, shown);
        }
        AclVerb::Add(add) => {
            let rule = add.rule();
            let place = move |list: &mut v1::AccessList| {
                let behind = list.rules.len() + 1;
                let at = add.at.unwrap_or(behind);
                if !(1..=behind).contains(&at) {
                    return Err(Failure::Usage(format!("--at {at}: 1 to {behind}")));
                }
                list.rules.insert(at - 1, rule);
                Ok(())
            };
            (add.name, Box::new(place))
        }
        AclVerb::Remove { name, mut rules } => {
            rules.sort_unstable();
            rules.dedup();
            let remove = move |list: &mut v1::AccessList| {
                for rule in rules.into_iter().rev() {
                    if !(1..=list.rules.len()).contains(&rule) {
                        let count = list.rules.len();
                        return Err(Failure::Usage(format!(
                            "there is no rule {rule}: the list has {count}"
                        )));
                    }
                    list.rules.remove(rule - 1);
                }
                Ok(())
            };
            (name, Box::new(remove))
        }
        AclVerb::Set { name, rx, tx } => {
            let set = move |list: &mut v1::AccessList| {
                list.deny_rx = rx.map_or(list.deny_rx, |rx| rx == Default::Deny);
                list.deny_tx = tx.map_or(list.deny_tx, |tx| tx == Default::Deny);
                Ok(())
            };
            (name, Box::new(set))
        }
        AclVerb::Reset { name } => {
            let clear = |list: &mut v1::AccessList| {
                list.rules.clear();
                (list.deny_rx, list.deny_tx) = (false, false);
                Ok(())
            };
            (name, Box::new(clear))
        }
    };
    let name = names::access_list(names::last(&name));
    let list = service.get_access_list(v1::GetAccessListRequest { name }).await?;
    let mut list = list.into_inner();
    // The etag says that nobody has changed the list meanwhile.
    change(&mut list)?;
    let request = v1::SetAccessListRequest {
        access_list: Some(list),
    };
    out.answer("AccessList", service.set_access_list(request).await?, shown)
}

fn default(deny: bool) -> &'static str {
    if deny { "deny" } else { "permit" }
}

fn table(lists: &[v1::AccessList]) -> String {
    text::table! { l in lists, "no adapters";
        "ADAPTER": l.name.split('/').nth(1).unwrap_or_default(),
        ">RULES": l.rules.len(),
        "RX DEFAULT": default(l.deny_rx),
        "TX DEFAULT": default(l.deny_tx),
    }
}

/// Conditions of a rule, in words.
fn conditions(rule: &v1::AccessRule) -> String {
    let range = |p: v1::PortRange| match p.first == p.last {
        true => p.first.to_string(),
        false => format!("{}-{}", p.first, p.last),
    };
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let all = [
        ("from", given(&rule.source)),
        ("to", given(&rule.destination)),
        ("protocol", rule.protocol.map(|n| n.to_string())),
        ("from-port", rule.source_ports.map(range)),
        ("to-port", rule.destination_ports.map(range)),
        ("ethertype", rule.ethertype.map(|n| format!("{n:#06x}"))),
        ("vlan", rule.vlan.map(|n| n.to_string())),
        ("from-mac", given(&rule.source_mac)),
        ("to-mac", given(&rule.destination_mac)),
    ];
    let all: Vec<String> = all
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
        .collect();
    if all.is_empty() {
        "any".to_owned()
    } else {
        all.join(" ")
    }
}

fn shown(list: &v1::AccessList) -> String {
    let numbered: Vec<(usize, &v1::AccessRule)> = (1..).zip(&list.rules).collect();
    let rules = text::table! { r in &numbered, "no rules";
        ">RULE": r.0,
        "WAY": match r.1.way() {
            v1::access_rule::Way::Rx => "rx",
            v1::access_rule::Way::Tx => "tx",
            v1::access_rule::Way::Unspecified => "",
        },
        "ACTION": match r.1.action() {
            v1::access_rule::Action::Permit => "permit",
            v1::access_rule::Action::Deny => "deny",
            v1::access_rule::Action::Unspecified => "",
        },
        "FRAMES": conditions(r.1),
        ">HITS": text::count(r.1.hits),
    };
    let rest = [
        ("rx", list.deny_rx, list.unmatched_rx_frames),
        ("tx", list.deny_tx, list.unmatched_tx_frames),
    ];
    let rest =
        rest.map(|(way, deny, n)| format!("{way}: others {}, {} frames\n", default(deny), text::count(n)));
    format!("{rules}{}", rest.concat())
}
