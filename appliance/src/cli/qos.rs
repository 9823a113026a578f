//! `vnicctl qos`.

mod args;
mod mlxreg;
mod show;

use prost_types::FieldMask;
use vnic_control::v1;
use vnic_control::v1::qos::Algorithm;
use vnic_control::v1::qos_policy::{DestinationPorts, Kind};

use super::Failure;
use super::client::{Client, resource};
use super::congestion;
use super::output::{self, Output};
use super::paging;
use crate::check::qos as check;
use crate::names::{self, ADAPTERS};
use args::{Mlxreg, PolicyAdd, Protocol, QosLimit, QosSet, Register};
pub use args::{PolicyVerb, QosVerb};

/// Runs a command.
pub async fn run(verb: QosVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let done = match verb {
        QosVerb::Show { name } => get(client, &client.present(&name).await?).await?,
        QosVerb::List => {
            let mut service = client.qos().await?;
            let all = paging::list(&mut service, v1::ListQosRequest::default()).await?;
            return out.message("ListQosResponse", &all, || show::table(&all.qos));
        }
        QosVerb::Set(set) => {
            let owner = client.present(&set.name).await?;
            let mut now = get(client, &owner).await?;
            let fields = changes(&set, &mut now)?;
            update(client, now, fields).await?
        }
        QosVerb::Limit(limit) => {
            let mut now = get(client, &resource(ADAPTERS, &limit.name)).await?;
            now.schedule_queue = queue(client, &limit, &now).await?;
            update(client, now, vec!["schedule_queue"]).await?
        }
        QosVerb::Policy(verb) => return policy(verb, client, out).await,
        QosVerb::Pacing {
            adapter,
            queue_pair,
            rate,
        } => {
            let adapter = resource(ADAPTERS, &adapter);
            let mut service = client.qos().await?;
            let Some((queue_pair, rate_bps)) = queue_pair.zip(rate) else {
                let request = v1::ListQueuePairRatesRequest {
                    adapter,
                    ..Default::default()
                };
                let all = paging::list(&mut service, request).await?;
                return out.message("ListQueuePairRatesResponse", &all, || show::rates(&all.rates));
            };
            let request = v1::SetQueuePairRateRequest {
                adapter,
                queue_pair,
                rate_bps,
            };
            service.set_queue_pair_rate(request).await?;
            return Ok(());
        }
        QosVerb::Mlxreg(access) => return registers(access, client, out).await,
        QosVerb::Enable { name } => switch(client, &name, false).await?,
        QosVerb::Disable { name } => switch(client, &name, true).await?,
        QosVerb::Reset { name } => {
            let name = names::qos(&client.present(&name).await?);
            let request = v1::ResetQosRequest { name };
            client.qos().await?.reset_qos(request).await?.into_inner()
        }
    };
    out.message("Qos", &done, || show::text(&done))
}

/// Reads or writes a register, or shows its fields.
async fn registers(access: Mlxreg, client: &Client, out: &Output) -> Result<(), Failure> {
    let Some(register) = access.register.filter(|_| access.layout.is_none()) else {
        let shown = access.layout.map_or_else(String::new, mlxreg::layout);
        return output::print(&shown);
    };
    let indexes = access.indexes.as_deref().map_or(&[][..], Vec::as_slice);
    let indexes = mlxreg::Indexes::of(register, indexes)?;
    if register == Register::RoceAccl {
        let now = match &access.set {
            Some(fields) => {
                let wanted = congestion::parameters(&access.name, mlxreg::roce_accl::parameters(fields)?);
                congestion::set(client, wanted).await?
            }
            None => congestion::get(client, &access.name).await?,
        };
        return out.message("Congestion", &now, || mlxreg::roce_accl::text(&now));
    }
    let mut now = get(client, &client.present(&access.name).await?).await?;
    if let Some(fields) = &access.set {
        let changed = mlxreg::write(register, &indexes, fields, &mut now)?;
        now = update(client, now, changed).await?;
    }
    let mut seen = now.clone();
    if register == Register::Pfcc
        && let Some(pfc) = exchanged(client, &now, indexes.operation_type()).await?
    {
        seen.pfc = pfc;
    }
    out.message("Qos", &now, || mlxreg::text(register, &indexes, &seen))
}

/// Flow control of a port with data center bridging exchange, by `dcbx_operation_type`; nothing: that which the operator wants.
async fn exchanged(client: &Client, now: &v1::Qos, kind: u32) -> Result<Option<Vec<bool>>, Failure> {
    let Some(port) = now
        .name
        .strip_suffix("/qos")
        .filter(|name| names::id(names::PORTS, name).is_some())
    else {
        return Ok(None);
    };
    let request = v1::GetPortRequest {
        name: port.to_owned(),
    };
    let port = client.ports().await?.get_port(request).await?.into_inner();
    let Some(state) = port.dcbx_state else {
        return Ok(None);
    };
    let said = match kind {
        mlxreg::OPERATIVE => state.operational,
        mlxreg::REMOTE => Some(state.peer.unwrap_or_default()),
        _ => None,
    };
    Ok(said.map(|said| (0..8).map(|p| said.pfc_priorities.contains(&p)).collect()))
}

/// Gets the quality of service of `adapters/{adapter}` or `ports/{port}`.
async fn get(client: &Client, owner: &str) -> Result<v1::Qos, Failure> {
    let request = v1::GetQosRequest {
        name: names::qos(owner),
    };
    Ok(client.qos().await?.get_qos(request).await?.into_inner())
}

/// Lets all of it act, or sets it aside.
async fn switch(client: &Client, name: &str, disabled: bool) -> Result<v1::Qos, Failure> {
    let now = get(client, &client.present(name).await?).await?;
    update(client, v1::Qos { disabled, ..now }, vec!["disabled"]).await
}

/// Changes fields; the etag of the read settings is sent with them, so that no change by another client is overwritten.
async fn update(client: &Client, qos: v1::Qos, fields: Vec<&'static str>) -> Result<v1::Qos, Failure> {
    let request = v1::UpdateQosRequest {
        qos: Some(qos),
        update_mask: Some(FieldMask {
            paths: fields.into_iter().map(str::to_owned).collect(),
        }),
    };
    Ok(client.qos().await?.update_qos(request).await?.into_inner())
}

/// Writes the options into the settings; returns the names of the fields.
fn changes(set: &QosSet, now: &mut v1::Qos) -> Result<Vec<&'static str>, Failure> {
    let mut fields = set.put(now).map_err(Failure::Usage)?;
    // (Two options write one field.)
    fields.dedup();
    if set.tsa.is_some() || set.tcbw.is_some() {
        let ets: Vec<bool> = now.tc_algorithm().map(|a| a == Algorithm::Ets).collect();
        check::shares(&ets, &now.tc_bandwidth_percent, set.weights).map_err(Failure::Usage)?;
    }
    if fields.is_empty() {
        return Err(Failure::Usage(
            "nothing to change: `vnicctl qos set --help` lists the options".to_owned(),
        ));
    }
    Ok(fields)
}

/// Schedule queue that the options describe.
async fn queue(
    client: &Client,
    limit: &QosLimit,
    now: &v1::Qos,
) -> Result<Option<v1::ScheduleQueue>, Failure> {
    if limit.none {
        return Ok(None);
    }
    let none = || v1::ScheduleQueue {
        max_bps: vec![0; 8],
        min_bps: vec![0; 8],
    };
    let mut queue = now.schedule_queue.clone().unwrap_or_else(none);
    let supported = supported(client, &limit.name).await?;
    let each = |list: &mut [u64], rate| {
        for (tc, place) in list.iter_mut().enumerate() {
            *place = if supported & (1 << tc) != 0 { rate } else { 0 };
        }
    };
    if let Some(max) = limit.max {
        each(&mut queue.max_bps, max);
    }
    if let Some(min) = limit.min {
        each(&mut queue.min_bps, min);
    }
    for one in &limit.tc {
        if let Some(place) = queue.max_bps.get_mut(one.class) {
            *place = one.max;
        }
        if let (Some(place), Some(min)) = (queue.min_bps.get_mut(one.class), one.min) {
            *place = min;
        }
    }
    Ok(Some(queue))
}

/// Traffic classes that a schedule queue may have, a bit each.
async fn supported(client: &Client, adapter: &str) -> Result<u32, Failure> {
    let request = v1::GetEntryRequest {
        scope: resource(ADAPTERS, adapter),
        key: "*QosOffloadSupportedTCs".to_owned(),
    };
    let entry = client.registry().await?.get_entry(request).await?.into_inner();
    Ok(entry.effective.and_then(|v| v.parse().ok()).unwrap_or(0xff))
}

async fn policy(verb: PolicyVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let done = match verb {
        PolicyVerb::List { adapter } => get(client, &resource(ADAPTERS, &adapter)).await?,
        PolicyVerb::Add(add) => {
            let mut now = get(client, &resource(ADAPTERS, &add.adapter)).await?;
            now.policies.push(rule(&add));
            update(client, now, vec!["policies"]).await?
        }
        PolicyVerb::Remove {
            adapter,
            policies,
            all,
        } => {
            let mut now = get(client, &resource(ADAPTERS, &adapter)).await?;
            for name in &policies {
                if !now.policies.iter().any(|p| p.name.eq_ignore_ascii_case(name)) {
                    return Err(Failure::Failed(format!("{adapter} has no policy {name:?}")));
                }
            }
            now.policies
                .retain(|p| !all && !policies.iter().any(|name| p.name.eq_ignore_ascii_case(name)));
            update(client, now, vec!["policies"]).await?
        }
    };
    out.message("Qos", &done, || show::policies(&done.policies))
}

fn rule(add: &PolicyAdd) -> v1::QosPolicy {
    let kind = if add.default {
        Kind::Default
    } else if add.tcp {
        Kind::Tcp
    } else if add.udp {
        Kind::Udp
    } else if add.smb {
        Kind::Smb
    } else if add.ports.is_some() {
        Kind::DestinationPorts
    } else {
        Kind::NetDirect
    };
    v1::QosPolicy {
        name: add.policy.clone(),
        kind: kind.into(),
        destination_ports: add.ports.map(|(first, last)| DestinationPorts {
            protocol: match add.protocol {
                Some(Protocol::Tcp) => 6,
                Some(Protocol::Udp) => 17,
                Some(Protocol::Both) | None => 0,
            },
            first,
            last,
        }),
        net_direct_port: add.net_direct_port,
        priority: add.priority,
        dscp: add.dscp,
    }
}
