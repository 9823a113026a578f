//! The agent of subnet administration: answers to datagrams (IBTA volume 1, chapter 15) of ports whose adapters are known. Paths are those
//! of [`resolve`]; groups are the operator's.

use alloc::vec;
use alloc::vec::Vec;

use vnic_wire::gid::Gid;
use vnic_wire::pkey::{admits, partition};
use vnic_wire::sa::{
    Bound, CLASS_VERSION, ClassPortInfo, McMemberRecord as Mc, MultiPathRecord as Multi, PathRecord as Pr,
    RmppType, SaMad, attribute, method, status,
};

use super::bounds::Wanted;
use super::group::{Group, Groups, Member};
use super::path::{Port, Query, resolve};
use super::policy::Policy;
use super::rate::rate_mbps;

/// Longest time until an answer: 2^18 × 4.096 µs.
const RESPONSE_TIME: u8 = 18;
/// Prefix of link-local GIDs, the subnet's.
const PREFIX: u64 = 0xfe80 << 48;
/// Components of a join and of a leave without which there is neither (IBTA volume 1, 15.2.5.17).
const JOIN: [u64; 3] = [Mc::MGID, Mc::PORT_GID, Mc::JOIN_STATE];
/// Join states that there are.
const JOIN_STATES: u8 = Mc::FULL_MEMBER | Mc::NON_MEMBER | Mc::SEND_ONLY;

/// A status that is not good.
type Status = u16;
/// An end of a path, and the GID by which it is called.
type End<'a> = (&'a Port<'a>, Gid);

/// What the agent knows when it answers.
pub struct Agent<'a> {
    /// The policy of paths.
    pub policy: Option<&'a Policy>,
    /// All ports.
    pub ports: &'a [Port<'a>],
    /// Port GUID of whoever has a GID where the one who asks is.
    pub find: &'a dyn Fn(Gid) -> Option<u64>,
    /// Multicast groups.
    pub groups: &'a mut Groups,
}

/// What is asked of paths, whichever ends they have.
struct Sought {
    /// The fields, as in a PathRecord.
    of: Pr,
    /// The components that are named, as in a PathRecord.
    mask: u64,
    wanted: Wanted,
}

impl Sought {
    fn new(of: Pr, mask: u64) -> Result<Sought, Status> {
        // All but the reserved bits between RawTraffic and FlowLabel.
        known(mask, ((Pr::PREFERENCE << 1) - 1) & !(1 << 7))?;
        let both = |components: u64| mask & components == components;
        let wanted = Wanted {
            mtu: both(Pr::MTU | Pr::MTU_SELECTOR).then_some(of.mtu),
            rate: both(Pr::RATE | Pr::RATE_SELECTOR).then_some(of.rate),
            packet_life: both(Pr::PACKET_LIFE | Pr::PACKET_LIFE_SELECTOR).then_some(of.packet_life),
        };
        wanted.check()?;
        // One half of a Service-ID names none.
        match mask & Pr::SERVICE_ID {
            0 | Pr::SERVICE_ID => Ok(Sought { of, mask, wanted }),
            _ => Err(status::REQ_INVALID),
        }
    }

    /// The value of a component that is named.
    fn named<T>(&self, component: u64, value: T) -> Option<T> {
        (self.mask & component != 0).then_some(value)
    }

    /// Whether something is named that no path here has: RoCE has no LIDs and no raw packets, and one path is as good as the other.
    fn is_of_no_path(&self) -> bool {
        let of = &self.of;
        let lids = [self.named(Pr::SLID, of.slid), self.named(Pr::DLID, of.dlid)];
        lids.iter().any(|lid| lid.unwrap_or_default() != 0)
            || self.named(Pr::RAW_TRAFFIC, of.raw_traffic) == Some(true)
            || self.named(Pr::PREFERENCE, of.preference).unwrap_or_default() != 0
    }
}

/// The default GID of a port.
fn default_gid(port: &Port<'_>) -> Gid {
    Gid((u128::from(PREFIX) << 64 | u128::from(port.guid)).to_be_bytes())
}

/// Whether two ports may speak with each other in some partition.
fn meet(one: &Port<'_>, other: &Port<'_>) -> bool {
    let speaks = |key: &u16| other.pkeys.iter().any(|theirs| admits(*key, *theirs));
    one.guid == other.guid || one.pkeys.iter().any(speaks)
}

/// Refuses components that are not of the mask.
fn known(mask: u64, components: u64) -> Result<(), Status> {
    match mask & !components {
        0 => Ok(()),
        _ => Err(status::REQ_INVALID),
    }
}

impl Agent<'_> {
    /// Answers a question of the port at this index by one datagram, or by the segments of a table in order. `None`: it is no question,
    /// or comes from somebody who says to be a manager.
    pub fn answer(&mut self, asker: usize, question: &SaMad) -> Option<Vec<SaMad>> {
        let response = question.method & method::RESPONSE != 0;
        let data = matches!(question.rmpp.kind, RmppType::DATA | RmppType(0));
        if response || !data || question.sm_key != 0 {
            return None;
        }
        if question.class_version != CLASS_VERSION {
            return Some(vec![question.response(status::BAD_VERSION)]);
        }
        if !question.rmpp.is_alone() {
            return Some(vec![question.response(status::NO_RESOURCES)]);
        }
        let ports = self.ports;
        let asker = ports.get(asker)?;
        let answered = self.dispatch(asker, question);
        Some(answered.unwrap_or_else(|refusal| vec![question.response(refusal)]))
    }

    fn dispatch(&mut self, asker: &Port<'_>, question: &SaMad) -> Result<Vec<SaMad>, Status> {
        let one = |answer: SaMad| Ok(vec![answer]);
        match (question.attribute, question.method) {
            (attribute::CLASS_PORT_INFO, method::GET) => {
                let info = ClassPortInfo {
                    base_version: 1,
                    class_version: CLASS_VERSION,
                    capabilities: ClassPortInfo::UD_MULTICAST | ClassPortInfo::MULTI_PATH,
                    capabilities2: if self.policy.is_some() {
                        ClassPortInfo::QOS
                    } else {
                        0
                    },
                    response_time: RESPONSE_TIME,
                };
                one(question.response(status::OK).with(info.emit()))
            }
            (attribute::PATH_RECORD, method::GET | method::GET_TABLE) => {
                let paths = self.paths(asker, question)?;
                records(question, &paths, Pr::emit)
            }
            (attribute::MULTI_PATH_RECORD, method::GET_MULTI) => {
                let paths = self.paths_between(asker, question)?;
                records(question, &paths, Pr::emit)
            }
            (attribute::MCMEMBER_RECORD, method::GET | method::GET_TABLE) => {
                let groups = self.memberships(asker, question)?;
                records(question, &groups, Mc::emit)
            }
            (attribute::MCMEMBER_RECORD, method::SET | method::DELETE) => {
                let record = self.change(asker, question)?;
                one(question.response(status::OK).with(record.emit()))
            }
            (_, method::GET | method::SET | method::GET_TABLE | method::GET_MULTI | method::DELETE) => {
                Err(status::BAD_METHOD_FOR_ATTRIBUTE)
            }
            _ => Err(status::BAD_METHOD),
        }
    }

    /// The port that has a GID, if the one who asks may know of it.
    fn port(&self, asker: &Port<'_>, gid: Gid) -> Option<&Port<'_>> {
        let guid = (self.find)(gid)?;
        self.ports
            .iter()
            .find(|port| port.guid == guid && meet(asker, port))
    }

    /// Answers a PathRecord. Without a source the paths are those of the one who asks, without a destination they go everywhere.
    fn paths(&self, asker: &Port<'_>, question: &SaMad) -> Result<Vec<Pr>, Status> {
        let asked = Pr::parse(&question.data).map_err(|_| status::REQ_INVALID)?;
        let sought = Sought::new(asked, question.component_mask)?;
        let end = |gid| self.port(asker, gid).map(|port| (port, gid));
        let source = match sought.named(Pr::SGID, asked.sgid) {
            Some(gid) => end(gid),
            None => Some((asker, default_gid(asker))),
        };
        let destinations: Vec<_> = match sought.named(Pr::DGID, asked.dgid) {
            Some(gid) => end(gid).into_iter().collect(),
            None => {
                let there = self.ports.iter().filter(|port| meet(asker, port));
                there.map(|port| (port, default_gid(port))).collect()
            }
        };
        Ok(self.between(source.as_slice(), &destinations, &sought))
    }

    /// Answers a MultiPathRecord.
    fn paths_between(&self, asker: &Port<'_>, question: &SaMad) -> Result<Vec<Pr>, Status> {
        let mask = question.component_mask;
        // All but the reserved bits behind IndependenceSelector.
        known(mask, ((1 << 22) - 1) & !(1 << 18) | Multi::GIDS)?;
        let asked = Multi::parse(&question.data).map_err(|_| status::REQ_INVALID)?;
        let counts = Multi::SOURCES | Multi::DESTINATIONS;
        if mask & counts != counts {
            return Err(status::INSUFFICIENT_COMPONENTS);
        }
        let ends = asked
            .ends()
            .filter(|ends| ends.iter().all(|gids| !gids.is_empty()));
        let ends = ends.ok_or(status::REQ_INVALID)?;
        let (of, mask) = asked.each(mask);
        let sought = Sought::new(of, mask)?;
        let find = |gid: &Gid| Ok((self.port(asker, *gid).ok_or(status::REQ_INVALID_GID)?, *gid));
        let find = |gids: &[Gid]| gids.iter().map(find).collect::<Result<Vec<_>, Status>>();
        let [sources, destinations] = ends.map(find);
        Ok(self.between(&sources?, &destinations?, &sought))
    }

    /// The paths from each source to each destination that have what is sought.
    fn between(&self, sources: &[End<'_>], destinations: &[End<'_>], sought: &Sought) -> Vec<Pr> {
        if sought.is_of_no_path() {
            return Vec::new();
        }
        let pairs = sources
            .iter()
            .flat_map(|from| destinations.iter().map(move |to| (from, to)));
        pairs
            .filter_map(|(from, to)| self.path(from, to, sought))
            .collect()
    }

    /// The path from one port to another, if it has what is sought. As OpenSM's, the record has what the path is, not what was asked for.
    fn path(&self, (source, sgid): &End<'_>, (destination, dgid): &End<'_>, sought: &Sought) -> Option<Pr> {
        let of = &sought.of;
        let query = Query {
            source,
            destination,
            service_id: sought.named(Pr::SERVICE_ID, of.service_id),
            qos_class: sought.named(Pr::QOS_CLASS, of.qos_class),
            pkey: sought.named(Pr::PKEY, of.pkey),
            sl: sought.named(Pr::SL, of.sl),
        };
        let path = resolve(self.policy, &query).ok()?;
        let [mtu, rate, packet_life] = sought.wanted.cut(&path)?.map(Bound::exactly);
        Some(Pr {
            dgid: *dgid,
            sgid: *sgid,
            reversible: true,
            pkey: path.pkey,
            sl: path.sl,
            mtu,
            rate,
            packet_life,
            ..Pr::default()
        })
    }

    /// Answers an MCMemberRecord: the groups of which the one who asks may be a member; with its PortGID those of which it is one. Who
    /// else is a member is only for managers.
    fn memberships(&self, asker: &Port<'_>, question: &SaMad) -> Result<Vec<Mc>, Status> {
        known(question.component_mask, (Mc::PROXY_JOIN << 1) - 1)?;
        let asked = Mc::parse(&question.data).map_err(|_| status::REQ_INVALID)?;
        let own = question.names(Mc::PORT_GID);
        if own && (self.find)(asked.port_gid) != Some(asker.guid) {
            return Err(status::REQ_INVALID_GID);
        }
        let states = if question.names(Mc::JOIN_STATE) {
            asked.join_state
        } else {
            JOIN_STATES
        };
        let mut found = Vec::new();
        for (_, group) in self.groups.iter().filter(|(_, group)| may_join(asker, group)) {
            let member = group.members.get(&asker.guid).copied().filter(|_| own);
            let there = !own || member.is_some_and(|member| member.join_state & states != 0);
            let wanted = !question.names(Mc::MGID) || asked.mgid == group.spec.mgid;
            if there && wanted && fits(question, &asked, group)? {
                found.push(record(group, member));
            }
        }
        Ok(found)
    }

    /// Lets the port join a group, or leave it.
    fn change(&mut self, asker: &Port<'_>, question: &SaMad) -> Result<Mc, Status> {
        known(question.component_mask, (Mc::PROXY_JOIN << 1) - 1)?;
        let asked = Mc::parse(&question.data).map_err(|_| status::REQ_INVALID)?;
        if JOIN.iter().any(|component| !question.names(*component)) {
            return Err(status::INSUFFICIENT_COMPONENTS);
        }
        match (self.find)(asked.port_gid) {
            None => return Err(status::REQ_INVALID_GID),
            // Nobody joins for others.
            Some(guid) if guid != asker.guid || question.names(Mc::PROXY_JOIN) && asked.proxy_join => {
                return Err(status::REQ_DENIED);
            }
            Some(_) => {}
        }
        if asked.join_state == 0 || asked.join_state & !JOIN_STATES != 0 {
            return Err(status::REQ_INVALID);
        }
        // Groups are the operator's: a join makes none.
        let group = self.groups.by_gid(asked.mgid).ok_or(status::REQ_DENIED)?;
        if question.method == method::DELETE {
            let member = group.members.get_mut(&asker.guid).ok_or(status::REQ_INVALID)?;
            if member.join_state & asked.join_state != asked.join_state {
                return Err(status::REQ_INVALID);
            }
            member.join_state &= !asked.join_state;
            let left = *member;
            if left.join_state == 0 {
                group.members.remove(&asker.guid);
            }
            let join_state = asked.join_state;
            return Ok(record(group, Some(Member { join_state, ..left })));
        }
        if !may_join(asker, group) {
            return Err(status::REQ_DENIED);
        }
        let reaches = asker.mtu >= group.spec.mtu && rate_mbps(asker.rate) >= rate_mbps(group.spec.rate);
        if !reaches || !fits(question, &asked, group)? {
            return Err(status::REQ_INVALID);
        }
        let before = group
            .members
            .get(&asker.guid)
            .map_or(0, |member| member.join_state);
        let member = Member {
            gid: asked.port_gid,
            join_state: before | asked.join_state,
        };
        group.members.insert(asker.guid, member);
        Ok(record(group, Some(member)))
    }
}

/// Whether a port has a P_Key of the group's partition that speaks with the group's.
fn may_join(port: &Port<'_>, group: &Group) -> bool {
    port.pkeys.iter().any(|key| admits(*key, group.spec.pkey))
}

/// Whether a group has what a question names of it, besides its GID and its members.
fn fits(question: &SaMad, asked: &Mc, group: &Group) -> Result<bool, Status> {
    let spec = &group.spec;
    let both = |components: u64| question.component_mask & components == components;
    let wanted = Wanted {
        mtu: both(Mc::MTU | Mc::MTU_SELECTOR).then_some(asked.mtu),
        rate: both(Mc::RATE | Mc::RATE_SELECTOR).then_some(asked.rate),
        packet_life: both(Mc::PACKET_LIFE | Mc::PACKET_LIFE_SELECTOR).then_some(asked.packet_life),
    };
    wanted.check()?;
    let alike = [
        (Mc::QKEY, asked.qkey == spec.qkey),
        (Mc::MLID, matches!(asked.mlid, 0) || asked.mlid == group.mlid),
        (Mc::TRAFFIC_CLASS, asked.traffic_class == 0),
        (Mc::PKEY, partition(asked.pkey) == partition(spec.pkey)),
        (Mc::SL, asked.sl == spec.sl),
        (Mc::FLOW_LABEL, asked.flow_label == 0),
        (Mc::HOP_LIMIT, asked.hop_limit == 0),
        (Mc::SCOPE, asked.scope == spec.scope()),
    ];
    let all = alike
        .iter()
        .all(|(component, alike)| *alike || !question.names(*component));
    Ok(all && wanted.holds(spec.mtu, spec.rate, spec.packet_life))
}

/// The record of a group, and of a member.
fn record(group: &Group, member: Option<Member>) -> Mc {
    let spec = &group.spec;
    Mc {
        mgid: spec.mgid,
        port_gid: member.map_or(Gid::UNSPECIFIED, |member| member.gid),
        qkey: spec.qkey,
        mlid: group.mlid,
        mtu: Bound::exactly(spec.mtu),
        pkey: spec.pkey,
        rate: Bound::exactly(spec.rate),
        packet_life: Bound::exactly(spec.packet_life),
        sl: spec.sl,
        scope: spec.scope(),
        join_state: member.map_or(0, |member| member.join_state),
        ..Mc::default()
    }
}

/// The answer with the records that were found: exactly one to Get, and otherwise all, which may be none.
fn records<R, const N: usize>(
    question: &SaMad,
    found: &[R],
    emit: impl Fn(&R) -> [u8; N],
) -> Result<Vec<SaMad>, Status> {
    let response = question.response(status::OK);
    match (question.method, found) {
        (method::GET, []) => Err(status::NO_RECORDS),
        (method::GET, [one]) => Ok(vec![response.with(emit(one))]),
        (method::GET, _) => Err(status::TOO_MANY_RECORDS),
        _ => {
            let records: Vec<_> = found.iter().map(emit).collect();
            Ok(response.segments(&records))
        }
    }
}
