//! `vnic.v1.SubnetService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::SubnetPort;
use vnic_backend::subnet::{self, Group, Note};
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::{id, invalid};
use super::paging::page;
use crate::access::{blocking, who};
use crate::check::Violations;
use crate::control::{Control, Found, Loaded, Sought, Subnet, SubnetGroups};
use crate::names::{self, ADAPTERS, SUBNET_GROUPS};
use crate::stored;

/// The service.
pub struct Subnets(pub Arc<Control>);

/// Resource name of the only policy.
const NAME: &str = "subnetPolicy";
/// Most paths of a query.
const PATHS_MAX: usize = 1024;

fn bytes(mtu: u8) -> u32 {
    subnet::mtu_bytes(mtu).unwrap_or_default()
}

fn mbps(rate: u8) -> u32 {
    subnet::rate_mbps(rate).unwrap_or_default()
}

fn notes(notes: Vec<Note>) -> Vec<v1::SubnetPolicyNote> {
    let message = |Note { line, text }| v1::SubnetPolicyNote { line, text };
    notes.into_iter().map(message).collect()
}

fn port(port: &SubnetPort) -> v1::SubnetPort {
    v1::SubnetPort {
        adapter: names::of(ADAPTERS, &port.adapter),
        guid: port.guid,
        mtu_bytes: bytes(port.mtu),
        rate_mbps: mbps(port.rate),
        pkeys: port.pkeys.as_slice().iter().map(|key| u32::from(*key)).collect(),
    }
}

fn policy(control: &Control, loaded: &Loaded) -> v1::SubnetPolicy {
    let ports = control.nic.subnet_ports();
    v1::SubnetPolicy {
        name: NAME.to_owned(),
        text: loaded.text.to_string(),
        configured: loaded.configured,
        notes: notes(loaded.notes(&ports)),
        ports: ports.iter().map(port).collect(),
        etag: loaded.etag(),
    }
}

fn path((source, destination, answer): Found<'_>) -> v1::SubnetPath {
    let ends = v1::SubnetPath {
        source: names::of(ADAPTERS, source),
        destination: names::of(ADAPTERS, destination),
        ..v1::SubnetPath::default()
    };
    match answer {
        Err(refusal) => v1::SubnetPath {
            refusal: refusal.to_string(),
            ..ends
        },
        Ok(record) => v1::SubnetPath {
            service_level: record.sl.into(),
            mtu_bytes: bytes(record.mtu),
            rate_mbps: mbps(record.rate),
            packet_lifetime: record.packet_life.into(),
            pkey: record.pkey.into(),
            level: record.level.map(|level| level.name.clone()).unwrap_or_default(),
            rule_line: record.rule.map(|rule| rule.line).unwrap_or_default(),
            rule: record
                .rule
                .map(|rule| rule.description.clone())
                .unwrap_or_default(),
            ..ends
        },
    }
}

/// Message of a multicast group; `ports` are those of the subnet.
fn group(ports: &[SubnetPort], name: &str, group: &Group) -> v1::SubnetGroup {
    let member = |(guid, member): (&u64, &subnet::Member)| {
        let port = ports.iter().find(|port| port.guid == *guid)?;
        Some(v1::SubnetGroupMember {
            adapter: names::of(ADAPTERS, &port.adapter),
            gid: member.gid.to_string(),
            join_state: member.join_state.into(),
        })
    };
    v1::SubnetGroup {
        name: names::of(SUBNET_GROUPS, name),
        mlid: group.mlid.into(),
        members: group.members.iter().filter_map(member).collect(),
        lifetime: v1::Lifetime::Stored.into(),
        ..stored::subnet_groups::message(&group.spec)
    }
}

fn check_name(field: &str, name: &str) -> Result<(), Status> {
    match name.is_empty() || name == NAME {
        true => Ok(()),
        false => Err(invalid(field, format!("{name:?}: {NAME:?} is allowed"))),
    }
}

/// Names of adapters.
fn adapters(field: &str, names: &[String]) -> Result<Vec<String>, Status> {
    if names.is_empty() {
        return Err(invalid(field, "required: at least one adapter"));
    }
    let one = |(i, name): (usize, &String)| id(ADAPTERS, &format!("{field}[{i}]"), name);
    names.iter().enumerate().map(one).collect()
}

/// What the query says of its paths.
fn sought(request: &v1::ResolvePathsRequest) -> Result<Sought, Violations> {
    let mut wrong = Violations::default();
    let within = |lo: u32, hi: u32| {
        move |n: u32| match (lo..=hi).contains(&n) {
            true => Ok(n),
            false => Err(format!("{n} is out of range: {lo} to {hi}")),
        }
    };
    let qos_class = wrong.optional("qos_class", request.qos_class, within(0, 0xfff));
    let pkey = wrong.optional("pkey", request.pkey, within(1, 0xffff));
    let sl = wrong.optional("service_level", request.service_level, within(0, 15));
    let short = |n: Option<Option<u32>>| n.flatten().and_then(|n| u16::try_from(n).ok());
    wrong.finish(Some(Sought {
        service_id: request.service_id,
        qos_class: short(qos_class),
        pkey: short(pkey),
        sl: sl.flatten().and_then(|n| u8::try_from(n).ok()),
    }))
}

#[tonic::async_trait]
impl v1::subnet_service_server::SubnetService for Subnets {
    async fn get_subnet_policy(
        &self,
        request: Request<v1::GetSubnetPolicyRequest>,
    ) -> Answer<v1::SubnetPolicy> {
        check_name("name", &request.into_inner().name)?;
        answer(&self.0, |control| Ok(policy(control, &Subnet(control).get()))).await
    }

    async fn set_subnet_policy(
        &self,
        request: Request<v1::SetSubnetPolicyRequest>,
    ) -> Answer<v1::SubnetPolicy> {
        let by = who(&request);
        let wanted = request.into_inner().policy.unwrap_or_default();
        check_name("policy.name", &wanted.name)?;
        answer(&self.0, move |control| {
            let loaded = Subnet(control).set(&by, &wanted.text, &wanted.etag)?;
            Ok(policy(control, &loaded))
        })
        .await
    }

    async fn check_subnet_policy(
        &self,
        request: Request<v1::CheckSubnetPolicyRequest>,
    ) -> Answer<v1::CheckSubnetPolicyResponse> {
        let text = request.into_inner().text;
        answer(&self.0, move |control| {
            let notes = notes(Subnet(control).check(&text)?);
            Ok(v1::CheckSubnetPolicyResponse { notes })
        })
        .await
    }

    async fn resolve_paths(
        &self,
        request: Request<v1::ResolvePathsRequest>,
    ) -> Answer<v1::ResolvePathsResponse> {
        let request = request.into_inner();
        let sources = adapters("sources", &request.sources)?;
        let destinations = adapters("destinations", &request.destinations)?;
        let count = sources.len().saturating_mul(destinations.len());
        if count > PATHS_MAX {
            let problem = format!("{count} paths; at most {PATHS_MAX} are allowed");
            return Err(invalid("destinations", problem));
        }
        let sought = sought(&request)?;
        answer(&self.0, move |control| {
            let paths = Subnet(control).paths([&sources, &destinations], &sought, path)?;
            Ok(v1::ResolvePathsResponse { paths })
        })
        .await
    }

    async fn list_subnet_groups(
        &self,
        request: Request<v1::ListSubnetGroupsRequest>,
    ) -> Answer<v1::ListSubnetGroupsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListSubnetGroups", [100, 1000])?;
        let control = self.0.clone();
        let all: Vec<v1::SubnetGroup> = blocking(move || {
            let (ports, all) = (control.nic.subnet_ports(), control.nic.groups());
            all.iter().map(|(name, of)| group(&ports, name, of)).collect()
        })
        .await?;
        let (groups, next_page_token) = page.cut(all, |group| group.name.clone());
        Ok(Response::new(v1::ListSubnetGroupsResponse {
            groups,
            next_page_token,
        }))
    }

    async fn get_subnet_group(&self, request: Request<v1::GetSubnetGroupRequest>) -> Answer<v1::SubnetGroup> {
        let id = id(SUBNET_GROUPS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let found = SubnetGroups(control).get(&id)?;
            Ok(group(&control.nic.subnet_ports(), &id, &found))
        })
        .await
    }

    async fn create_subnet_group(
        &self,
        request: Request<v1::CreateSubnetGroupRequest>,
    ) -> Answer<v1::SubnetGroup> {
        let by = who(&request);
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let mut wrong = Violations::default();
            let wanted = request.subnet_group.unwrap_or_default();
            let read = stored::subnet_groups::read(&request.subnet_group_id, &wanted, &mut wrong);
            let (name, spec) = wrong.finish(read)?;
            let made = SubnetGroups(control).create(&by, &name, spec)?;
            Ok(group(&[], &name, &made))
        })
        .await
    }

    async fn delete_subnet_group(
        &self,
        request: Request<v1::DeleteSubnetGroupRequest>,
    ) -> Answer<v1::SubnetGroup> {
        let by = who(&request);
        let id = id(SUBNET_GROUPS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let last = SubnetGroups(control).remove(&by, &id)?;
            Ok(group(&control.nic.subnet_ports(), &id, &last))
        })
        .await
    }
}
