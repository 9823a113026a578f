//! Subnet administration, as a program asks it: datagrams from its queue pair to queue pair 1 of its own adapter.

use vnic_backend::subnet::{self, GroupSpec, mtu_code};
use vnic_backend::{PkeyTable, QosSpec};
use vnic_verbs::AddressHandle;
use vnic_wire::mad::{GSI_QKEY, GSI_QP, LEN as MAD};
use vnic_wire::sa::{
    ClassPortInfo, McMemberRecord as Mc, PathRecord as Pr, SaMad, attribute, method, status,
};

use super::*;

const POLICY: &str = "qos-ulps\n default: 1\n any, service-id 0x1060cbc: 3\nend-qos-ulps\n";

/// A program's way to subnet administration.
struct Asker<'a> {
    side: &'a Side,
    qp: QueuePair<Ud>,
    to: AddressHandle,
    gid: vnic_wire::gid::Gid,
}

impl<'a> Asker<'a> {
    fn new(side: &'a Side) -> Result<Asker<'a>> {
        let qp = side.pd.qp::<Ud>(&side.cq, &side.cq).max_inline(64).build()?;
        qp.activate(GSI_QKEY)?;
        let own = qp.endpoint(1)?;
        let to = side.pd.create_ah(&AddressVector {
            dgid: own.gid,
            dmac: own.mac,
            sgid_index: 1,
            ..AddressVector::default()
        })?;
        Ok(Asker {
            side,
            qp,
            to,
            gid: vnic_wire::gid::Gid(own.gid.0),
        })
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.side.region.write_at(0, bytes);
        let from = self.side.region.slice(..bytes.len());
        self.qp
            .post_send(&[SendWr::send(from).to(&self.to, GSI_QP, GSI_QKEY).id(1).signaled()])?;
        Ok(())
    }

    /// The answer to a question.
    fn ask(&self, question: &SaMad) -> Result<SaMad> {
        let into = self.side.region.slice(4096..4096 + 40 + MAD);
        self.qp.post_recv(&[RecvWr::new(into).id(2)])?;
        self.send(&question.emit())?;
        let mut ids = [self.side.done()?.id(), self.side.done()?.id()];
        ids.sort_unstable();
        ensure!(ids == [1, 2], "{ids:?}");
        let answer = SaMad::parse(&self.side.region.read_vec(4096 + 40, MAD))?;
        ensure!(answer.transaction == question.transaction);
        Ok(answer)
    }
}

fn path_to(gid: vnic_wire::gid::Gid, components: u64, record: Pr) -> SaMad {
    let record = Pr { dgid: gid, ..record };
    SaMad {
        component_mask: Pr::DGID | components,
        ..SaMad::new(method::GET, attribute::PATH_RECORD, 7).with(record.emit())
    }
}

#[test]
fn a_program_asks_its_own_queue_pair_one_for_paths() -> Result<()> {
    let Pair { rig, a, b } = pair_on(2)?;
    let asker = Asker::new(&a)?;
    let info = asker.ask(&SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 1))?;
    ensure!(info.status == status::OK);
    ensure!(ClassPortInfo::parse(&info.data)?.capabilities2 == 0);

    // An address of the other adapter, in any form that it has.
    for entry in b.context.gids()? {
        let gid = vnic_wire::gid::Gid(entry.gid.0);
        let answer = asker.ask(&path_to(gid, 0, Pr::default()))?;
        ensure!(answer.status == status::OK, "{gid}: {:#x}", answer.status);
        let path = Pr::parse(&answer.data)?;
        ensure!((path.dgid, path.pkey, path.sl) == (gid, 0xffff, 0), "{path:?}");
    }
    let b_gid = vnic_wire::gid::Gid(b.context.gids()?[1].gid.0);
    // By the policy, as over gRPC.
    let policy = subnet::parse(POLICY).map_err(|error| anyhow::anyhow!("{error}"))?;
    rig.nic.set_subnet_policy(Some(std::sync::Arc::new(policy)));
    let info = asker.ask(&SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 1))?;
    ensure!(ClassPortInfo::parse(&info.data)?.capabilities2 == ClassPortInfo::QOS);
    let iser = Pr {
        service_id: 0x106_0cbc,
        ..Pr::default()
    };
    let sl = |answer: SaMad| Pr::parse(&answer.data).map(|path| path.sl);
    ensure!(sl(asker.ask(&path_to(b_gid, 0, iser))?) == Ok(1));
    ensure!(sl(asker.ask(&path_to(b_gid, Pr::SERVICE_ID, iser))?) == Ok(3));

    // A limited member, which speaks with no other one, asks as well.
    let limited = AdapterSpec {
        pkeys: PkeyTable::new(&[0x7fff])?,
        ..rig.nic.adapter("a")?.wanted
    };
    rig.nic.update_adapter(limited)?;
    ensure!(asker.ask(&path_to(b_gid, 0, Pr::default()))?.status == status::OK);

    // Partitions part the ports.
    let spec = AdapterSpec {
        pkeys: PkeyTable::new(&[0x8002])?,
        ..rig.nic.adapter("b")?.wanted
    };
    rig.nic.update_adapter(spec)?;
    ensure!(asker.ask(&path_to(b_gid, 0, Pr::default()))?.status == status::NO_RECORDS);
    ensure!(asker.ask(&SaMad::new(method::GET, 0x11, 2))?.status == status::BAD_METHOD_FOR_ATTRIBUTE);
    Ok(())
}

#[test]
fn a_program_joins_a_group_that_the_operator_has_made() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let spec = GroupSpec {
        mgid: GroupSpec::broadcast_gid(0xffff),
        pkey: 0xffff,
        qkey: 0xb1b,
        mtu: mtu_code(1024),
        rate: 3,
        packet_life: 18,
        sl: 0,
    };
    rig.nic.create_group("all", spec.clone())?;
    let asker = Asker::new(&a)?;
    let join = |method, port_gid| {
        let record = Mc {
            mgid: spec.mgid,
            port_gid,
            join_state: Mc::FULL_MEMBER,
            ..Mc::default()
        };
        SaMad {
            component_mask: Mc::MGID | Mc::PORT_GID | Mc::JOIN_STATE,
            ..SaMad::new(method, attribute::MCMEMBER_RECORD, 3).with(record.emit())
        }
    };
    // Nobody joins for a neighbour.
    let b_gid = vnic_wire::gid::Gid(b.context.gids()?[1].gid.0);
    ensure!(asker.ask(&join(method::SET, b_gid))?.status == status::REQ_DENIED);
    let joined = asker.ask(&join(method::SET, asker.gid))?;
    ensure!(joined.status == status::OK, "{:#x}", joined.status);
    let record = Mc::parse(&joined.data)?;
    let members = |n| {
        let groups = rig.nic.groups();
        groups.len() == 1 && groups.iter().all(|(_, group)| group.members.len() == n)
    };
    ensure!(members(1));

    // What is sent to the group comes to its members, by the record that each has.
    let group = std::net::IpAddr::from(record.mgid.0).to_string().parse()?;
    let receiver = a.pd.qp::<Ud>(&a.cq, &a.cq).build()?;
    receiver.activate(record.qkey)?;
    receiver.attach_multicast(group)?;
    receiver.post_recv(&[RecvWr::new(a.region.slice(8192..8392)).id(4)])?;
    let sender = b.pd.qp::<Ud>(&b.cq, &b.cq).max_inline(64).build()?;
    sender.activate(record.qkey)?;
    let to = b.pd.create_ah(&AddressVector {
        dgid: group,
        sgid_index: 1,
        ..AddressVector::default()
    })?;
    sender.post_send(&[SendWr::send(Data::inline(b"to all"))
        .to(&to, 0xff_ffff, record.qkey)
        .signaled()])?;
    b.done()?;
    ensure!(a.done()?.id() == 4);
    ensure!(a.region.read_vec(8192 + 40, 6) == b"to all");

    ensure!(asker.ask(&join(method::DELETE, asker.gid))?.status == status::OK);
    ensure!(members(0));
    ensure!(asker.ask(&join(method::SET, asker.gid))?.status == status::OK);
    // A slower link than the group's.
    let qos = QosSpec {
        rate: 1_000_000_000,
        ..QosSpec::default()
    };
    rig.nic.set_qos("b", qos)?;
    let slow = Asker::new(&b)?;
    ensure!(slow.ask(&join(method::SET, slow.gid))?.status == status::REQ_INVALID);
    rig.nic.remove_group("all")?;
    ensure!(asker.ask(&join(method::SET, asker.gid))?.status == status::REQ_DENIED);
    Ok(())
}

#[test]
fn what_is_no_question_is_dropped_and_an_honest_one_is_answered_afterwards() -> Result<()> {
    let Pair { rig: _rig, a, b: _b } = pair()?;
    let asker = Asker::new(&a)?;
    let question = SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 5);
    let good = question.emit();
    let mut wrong: Vec<Vec<u8>> = [2, 24, 56, 255, 257, 1000]
        .map(|len| {
            let mut bytes = good.to_vec();
            bytes.resize(len, 0);
            bytes
        })
        .into();
    for (at, byte) in [(0, 2), (0, 0xff)] {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        wrong.push(bytes);
    }
    for bytes in &wrong {
        asker.send(bytes)?;
        a.done()?;
    }
    // Who says to be a manager.
    let manager = SaMad {
        sm_key: 1,
        ..question
    };
    asker.send(&manager.emit())?;
    a.done()?;
    ensure!(asker.ask(&question)?.status == status::OK);
    let of = |name: &str| {
        let all = a.context.counters().unwrap_or_default();
        all.iter()
            .find(|counter| counter.name == name)
            .map(|counter| counter.value)
    };
    let told = || (of("drop_malformed"), of("sa_questions"), of("sa_dropped"));
    ensure!(
        told() == (Some(wrong.len() as u64), Some(2), Some(1)),
        "{:?}",
        told()
    );
    Ok(())
}
