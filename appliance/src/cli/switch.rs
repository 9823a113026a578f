//! `vnicctl switch`.

use vnic_control::v1;

use super::args::SwitchVerb;
use super::client::Client;
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::names;

/// Runs a command.
pub async fn run(verb: SwitchVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.switch().await?;
    match verb {
        SwitchVerb::Show => {
            let request = v1::GetSwitchRequest { name: String::new() };
            out.answer("Switch", service.get_switch(request).await?, facts)
        }
        SwitchVerb::Fdb { owner, vlan } => {
            let owner = match owner {
                None => String::new(),
                Some(name) => client.owner(&name).await?,
            };
            let request = v1::ListFdbEntriesRequest {
                owner,
                vlan: vlan.unwrap_or(0),
                ..Default::default()
            };
            let all = paging::list(&mut service, request).await?;
            out.message("ListFdbEntriesResponse", &all, || table(&all.fdb_entries))
        }
    }
}

fn facts(s: &v1::Switch) -> String {
    let mut facts = Facts::default();
    text::facts! { facts;
        "ageing": text::span(s.mac_ageing),
        "learn limit": format!("{} addresses a port", s.learn_limit_per_port),
        "ports": s.ports,
        "addresses": format!("{} static, {} learned", s.static_entries, s.learned_entries),
    }
    facts.finish()
}

fn table(entries: &[v1::FdbEntry]) -> String {
    text::table! { e in entries, "no addresses";
        ">VLAN": e.vlan,
        "MAC": e.mac,
        "BEHIND": names::last(&e.owner),
        "KIND": if e.r#static { "static" } else { "learned" },
        "AGE": if e.r#static { String::new() } else { text::span(e.age) },
    }
}
