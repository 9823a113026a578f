//! Subnet administration, as a program asks it: datagrams from its queue pair to queue pair 1 of its own adapter.

use std::cell::Cell;

use vnic_backend::subnet::{self, GroupSpec, mtu_code};
use vnic_backend::{PkeyTable, QosSpec};
use vnic_verbs::AddressHandle;
use vnic_wire::mad::{GSI_QKEY, GSI_QP, LEN as MAD};
use vnic_wire::sa::{
    ClassPortInfo, DATA_LEN, McMemberRecord as Mc, PathRecord as Pr, Rmpp, RmppType, SaMad, attribute,
    method, rmpp_status, status,
};

use super::*;

const POLICY: &str = "qos-ulps\n default: 1\n any, service-id 0x1060cbc: 3\nend-qos-ulps\n";

/// A program's way to subnet administration.
struct Asker<'a> {
    side: &'a Side,
    qp: QueuePair<Ud>,
    to: AddressHandle,
    gid: vnic_wire::gid::Gid,
    /// Completions of receives, and how many receives were posted.
    came: CompletionQueue,
    posted: Cell<usize>,
}

/// Receives of an asker: bytes of each, and how many there are.
const SLOT: usize = 512;
const SLOTS: usize = 16;

impl<'a> Asker<'a> {
    fn new(side: &'a Side) -> Result<Asker<'a>> {
        let came = side.context.create_cq(64)?;
        let qp = side.pd.qp::<Ud>(&side.cq, &came).max_inline(64).build()?;
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
            came,
            posted: Cell::new(0),
        })
    }

    /// Sends a datagram, and waits until it is sent.
    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.side.region.write_at(0, bytes);
        let from = self.side.region.slice(..bytes.len());
        self.qp
            .post_send(&[SendWr::send(from).to(&self.to, GSI_QP, GSI_QKEY).id(1).signaled()])?;
        ensure!(self.side.done()?.id() == 1);
        Ok(())
    }

    /// Has room for so many datagrams more.
    fn receive(&self, datagrams: usize) -> Result<()> {
        for _ in 0..datagrams {
            let slot = self.posted.replace(self.posted.get() + 1) % SLOTS;
            let at = 4096 + slot * SLOT;
            let into = self.side.region.slice(at..at + 40 + MAD);
            self.qp.post_recv(&[RecvWr::new(into).id(at as u64)])?;
        }
        Ok(())
    }

    /// The datagram that comes next.
    fn hear(&self) -> Result<SaMad> {
        let wc = take(&self.came)?;
        wc.ok()?;
        let at = wc.id() as usize;
        Ok(SaMad::parse(&self.side.region.read_vec(at + 40, MAD))?)
    }

    /// The answer to a question, or its first segment.
    fn ask(&self, question: &SaMad) -> Result<SaMad> {
        self.receive(1)?;
        self.send(&question.emit())?;
        let answer = self.hear()?;
        ensure!(answer.transaction == question.transaction);
        Ok(answer)
    }
}

/// A counter of a program's device.
fn counter(side: &Side, name: &str) -> Option<u64> {
    let all = side.context.counters().unwrap_or_default();
    let found = all.iter().find(|counter| counter.name == name);
    found.map(|counter| counter.value)
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

/// A table of more records than a datagram takes, put together as Linux does it: an acknowledgement has the headers of a segment and the
/// question's method.
#[test]
fn a_program_puts_a_table_of_many_segments_together() -> Result<()> {
    const GROUPS: usize = 40;
    const RECORD: usize = 56;
    let Pair { rig, a, b: _b } = pair()?;
    for n in 1..=GROUPS {
        let spec = GroupSpec {
            mgid: GroupSpec::broadcast_gid(n as u16),
            pkey: 0xffff,
            qkey: n as u32,
            mtu: mtu_code(1024),
            rate: 3,
            packet_life: 18,
            sl: 0,
        };
        rig.nic.create_group(&format!("group{n}"), spec)?;
    }
    let asker = Asker::new(&a)?;
    let question = SaMad::new(method::GET_TABLE, attribute::MCMEMBER_RECORD, 9);
    let mut segments = vec![asker.ask(&question)?];
    let all = (GROUPS * RECORD).div_ceil(DATA_LEN);
    ensure!(segments[0].rmpp.payload_len as usize == 20 * all + GROUPS * RECORD);
    while segments.len() < all {
        let have = segments.len();
        let window = (have + 3).min(all);
        // Once the last of a window finds no receive: it comes again, with those before it.
        let lost = usize::from(have == 7);
        asker.receive(window - have - lost)?;
        let mut ack = segments[have - 1];
        ack.method ^= method::RESPONSE;
        ack.rmpp = Rmpp {
            // The receiver says that it is quick.
            response_time: 0,
            ..Rmpp::ack(have as u32, window as u32)
        };
        asker.send(&ack.emit())?;
        for _ in have..window - lost {
            segments.push(asker.hear()?);
        }
        if lost == 1 {
            wait_for(|| counter(&a, "out_of_buffer").is_some_and(|lost| lost > 0));
            asker.receive(window - have)?;
            for again in &segments[have..] {
                ensure!(asker.hear()? == *again);
            }
            segments.push(asker.hear()?);
        }
    }
    for (segment, number) in segments.iter().zip(1..) {
        ensure!(segment.status == status::OK && segment.method == 0x92);
        ensure!(segment.rmpp.segment == number && segment.transaction == 9);
        let ends = (segment.rmpp.flags & Rmpp::FIRST, segment.rmpp.flags & Rmpp::LAST);
        ensure!((ends.0 != 0, ends.1 != 0) == (number == 1, number as usize == all));
    }
    let mut ack = segments[all - 1];
    ack.method ^= method::RESPONSE;
    ack.rmpp = Rmpp::ack(all as u32, all as u32);
    asker.send(&ack.emit())?;

    let payload: Vec<_> = segments.iter().flat_map(SaMad::payload).copied().collect();
    let keys = segments[0]
        .records::<52>(&payload)
        .map(|record| Mc::parse(record));
    let mut keys = keys.map(|record| Ok(record?.qkey)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    ensure!(keys == (1..=GROUPS as u32).collect::<Vec<_>>(), "{keys:?}");
    // The transfer is over: the question begins another one, which the program stops.
    ensure!(asker.ask(&question)? == segments[0]);
    let stop = SaMad {
        rmpp: Rmpp::control(RmppType::STOP, rmpp_status::NO_ROOM),
        ..question
    };
    asker.send(&stop.emit())?;
    ensure!(asker.ask(&question)? == segments[0]);
    ensure!((counter(&a, "sa_questions"), counter(&a, "sa_dropped")) == (Some(3), Some(0)));
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
    }
    // Who says to be a manager.
    let manager = SaMad {
        sm_key: 1,
        ..question
    };
    asker.send(&manager.emit())?;
    ensure!(asker.ask(&question)?.status == status::OK);
    let told = || ["drop_malformed", "sa_questions", "sa_dropped"].map(|name| counter(&a, name));
    ensure!(
        told() == [Some(wrong.len() as u64), Some(2), Some(1)],
        "{:?}",
        told()
    );
    Ok(())
}
