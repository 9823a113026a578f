//! Connections by addresses and ports, in safe Rust: `vnic_verbs::connection` against the RDMA function of an in-process NIC.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vnic_backend::{
    AdapterSpec, ConnectionOutcome, ConnectionState, Match, NicEventKind, PkeyTable, Policy, QosSpec, subnet,
};
use vnic_tests::driver::rig::{PATIENCE, Rig, wait_for};
use vnic_verbs::connection::{
    Connection, ConnectionManager, ConnectionOptions, Connector, Ece, Ending, Listener, Rejection,
};
use vnic_verbs::{
    Access, CompletionQueue, Context, Data, Device, DeviceAddress, Error, MemoryRegion, ProtectionDomain,
    QpState, QueuePair, Rc, RecvWr, SendWr, WorkCompletion,
};
use vnic_wire::cm::{Reason, ip};

const PORT: u16 = 20000;

/// An adapter's driver.
struct Side {
    context: Context,
    manager: ConnectionManager,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

fn socket(rig: &Rig, name: &str) -> PathBuf {
    rig.dir().join(format!("{name}-rdma.sock"))
}

impl Side {
    fn new(rig: &mut Rig, name: &str) -> Result<Side> {
        let path = socket(rig, name);
        rig.add_with(name, |spec| spec.rdma_socket = Some(path))?;
        Side::open(rig, name)
    }

    fn open(rig: &Rig, name: &str) -> Result<Side> {
        let context = Device::open(&DeviceAddress::Socket(socket(rig, name)))?;
        let pd = context.alloc_pd()?;
        Ok(Side {
            manager: ConnectionManager::new(&context)?,
            cq: context.create_cq(256)?,
            region: pd.allocate(4096, Access::REMOTE_ALL)?,
            pd,
            context,
        })
    }

    fn qp(&self) -> Result<QueuePair<Rc>> {
        Ok(self.pd.qp::<Rc>(&self.cq, &self.cq).max_inline(64).build()?)
    }

    /// An address of the adapter: that of GID 1, which every adapter has.
    fn ip(&self) -> Result<IpAddr> {
        let gids = self.context.gids()?;
        let entry = gids.iter().find(|entry| entry.index == 1).context("GID 1")?;
        Ok(entry.gid.ip())
    }

    fn connector(&self, to: &Side) -> Result<Connector> {
        Ok(self.manager.connector(SocketAddr::new(to.ip()?, PORT)))
    }

    fn completion(&self) -> Result<WorkCompletion> {
        let mut one = [WorkCompletion::default()];
        let mut taken = Ok(0);
        let came = wait_for(|| {
            taken = self.cq.poll(&mut one);
            !matches!(taken, Ok(0))
        });
        taken?;
        ensure!(came, "no completion");
        one[0].ok()?;
        Ok(one[0])
    }

    /// How much there is of what connections need.
    fn used(&self) -> Result<BTreeMap<String, u32>> {
        let resources = self.context.resources()?;
        Ok(resources.into_iter().map(|one| (one.name, one.used)).collect())
    }
}

fn pair() -> Result<(Rig, Side, Side)> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (Side::new(&mut rig, "a")?, Side::new(&mut rig, "b")?);
    Ok((rig, a, b))
}

/// Connects `a` to the listener of `b`, one thread for both ends.
fn connected(a: &Side, b: &Side, listener: &Listener) -> Result<(Connection, Connection)> {
    let asking = a.connector(b)?.connect(&a.qp()?)?;
    let request = listener.wait(Some(PATIENCE))?.context("a request")?;
    let accepting = request.accept(&b.qp()?, &ConnectionOptions::default())?;
    Ok((asking.wait()?, accepting.wait()?))
}

fn readable(fd: BorrowedFd<'_>, patience: Duration) -> Result<bool> {
    let patience = Timespec::try_from(patience)?;
    Ok(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience))? == 1)
}

#[test]
fn programs_find_one_another_by_address_and_port() -> Result<()> {
    let (_rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 4)?;
    ensure!(listener.port() == PORT && listener.try_next()?.is_none());
    let options = ConnectionOptions {
        responder_resources: Some(3),
        initiator_depth: Some(9),
        ..ConnectionOptions::default()
    };
    let qa = a.qp()?;
    let connector = a.connector(&b)?.options(options).private_data(b"who is there?");
    let mut asking = connector.connect(&qa)?;
    ensure!(asking.try_finish()?.is_none(), "nobody has answered");

    ensure!(readable(listener.as_fd(), PATIENCE)?);
    let request = listener.try_next()?.context("a request")?;
    ensure!(request.peer().ip() == a.ip()? && request.local() == SocketAddr::new(b.ip()?, PORT));
    ensure!(request.private_data().starts_with(b"who is there?\0") && request.private_data().len() == 56);
    ensure!(
        (
            request.message().responder_resources,
            request.message().initiator_depth
        ) == (3, 9)
    );
    let qb = b.qp()?;
    qb.to_init(Access::REMOTE_ALL)?;
    qb.post_recv(&[RecvWr::new(b.region.slice(..64)).id(7)])?;
    let answer = ConnectionOptions {
        private_data: b"it is me".to_vec(),
        responder_resources: Some(5),
        ..ConnectionOptions::default()
    };
    let accepting = request.accept(&qb, &answer)?;

    ensure!(readable(asking.descriptor()?, PATIENCE)?);
    let at_a = asking.try_finish()?.context("the answer")?;
    ensure!(at_a.private_data().starts_with(b"it is me\0") && at_a.private_data().len() == 196);
    ensure!(at_a.peer() == SocketAddr::new(b.ip()?, PORT));
    ensure!(asking.try_finish().is_err(), "it was given out");
    let at_b = accepting.wait()?;
    ensure!(at_b.peer() == at_a.local() && at_b.local() == at_a.peer());

    // Each has as many outstanding as the other has resources for.
    let (has_a, has_b) = (qa.query()?.attributes, qb.query()?.attributes);
    ensure!(
        (has_a.max_rd_atomic, has_a.max_dest_rd_atomic) == (5, 3),
        "{has_a:?}"
    );
    ensure!(
        (has_b.max_rd_atomic, has_b.max_dest_rd_atomic) == (3, 5),
        "{has_b:?}"
    );
    qa.post_send(&[SendWr::send(Data::inline(b"hello")).signaled()])?;
    a.completion()?;
    let got = b.completion()?;
    ensure!(got.id() == 7 && b.region.read_vec(0, 5) == b"hello");

    // One end ends it, the other hears of it, and both are over.
    ensure!(at_b.try_next()?.is_none());
    at_a.disconnect()?;
    at_a.disconnect()?;
    ensure!(at_b.wait(Some(PATIENCE))? == Some(Ending::Disconnected));
    ensure!(at_a.wait(Some(PATIENCE))? == Some(Ending::Disconnected));
    ensure!(qa.query()?.state() == QpState::Err && qb.query()?.state() == QpState::Err);
    ensure!(at_a.wait(Some(PATIENCE))? == Some(Ending::Over));
    ensure!(at_b.wait(Some(PATIENCE))? == Some(Ending::Over));
    Ok(())
}

#[test]
fn rejections_say_why() -> Result<()> {
    let (_rig, a, b) = pair()?;
    let refused = |connector: Connector| -> Result<Rejection> {
        match connector.connect(&a.qp()?)?.wait() {
            Err(Error::Rejected { rejection, .. }) => Ok(rejection),
            other => bail!("{other:?}"),
        }
    };
    let nobody = refused(a.connector(&b)?)?;
    ensure!(nobody.reason == Rejection::INVALID_SERVICE, "{nobody}");
    let listener = b.manager.listen(PORT, 1)?;
    let asking = a.connector(&b)?.connect(&a.qp()?)?;
    let request = listener.accept()?;
    // Its backlog is this one.
    let full = refused(a.connector(&b)?)?;
    ensure!(full.reason == Rejection::NO_RESOURCES, "{full}");
    request.reject(b"not today")?;
    match asking.wait() {
        Err(e @ Error::Rejected { .. }) => {
            ensure!(
                e.to_string().contains("rejected by the program (reason 28)"),
                "{e}"
            );
            ensure!(e.errno() == 111, "ECONNREFUSED");
            let Error::Rejected { rejection, peer } = e else {
                unreachable!()
            };
            ensure!(rejection.private_data.starts_with(b"not today\0") && peer.port() == PORT);
        }
        other => bail!("{other:?}"),
    }
    // Requests that nobody has taken go with their listener, and those that are dropped with their value.
    let asking = a.connector(&b)?.connect(&a.qp()?)?;
    ensure!(readable(listener.as_fd(), PATIENCE)?);
    drop(listener);
    ensure!(matches!(asking.wait(), Err(Error::Rejected { .. })));
    let listener = b.manager.listen(PORT, 1)?;
    let asking = a.connector(&b)?.connect(&a.qp()?)?;
    drop(listener.accept()?);
    ensure!(matches!(asking.wait(), Err(Error::Rejected { .. })));
    Ok(())
}

#[test]
fn arguments_that_cannot_be_are_refused() -> Result<()> {
    let (_rig, a, b) = pair()?;
    let _listener = b.manager.listen(PORT, 4)?;
    ensure!(b.manager.listen(PORT, 4).is_err(), "the port is taken");
    let too_long = a.connector(&b)?.private_data(&[1; 57]).connect(&a.qp()?);
    ensure!(too_long.is_err_and(|e| e.to_string().contains("room for 56")));
    let foreign = a.connector(&b)?.source([192, 0, 2, 1].into()).connect(&a.qp()?);
    ensure!(foreign.is_err_and(|e| e.to_string().contains("192.0.2.1")));
    Ok(())
}

#[test]
fn nothing_is_left_of_connections_that_are_dropped() -> Result<()> {
    let (rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 16)?;
    // The manager keeps what it asks for paths with: a queue pair, and what that needs.
    drop(connected(&a, &b, &listener)?);
    let alone = |side: &Side, qps: u32, ids: u32| {
        let used = side.used().unwrap_or_default();
        (used.get("qp"), used.get("cm_id")) == (Some(&qps), Some(&ids))
    };
    ensure!(wait_for(|| alone(&a, 1, 0) && alone(&b, 0, 1)));
    let before = (a.used()?, b.used()?);
    for round in 0..20 {
        let (at_a, at_b) = connected(&a, &b, &listener)?;
        if round % 2 == 0 {
            drop(at_a);
            ensure!(at_b.wait(Some(PATIENCE))? == Some(Ending::Disconnected));
        } else {
            drop(at_b);
            ensure!(at_a.wait(Some(PATIENCE))? == Some(Ending::Disconnected));
        }
    }
    drop(a.connector(&b)?.connect(&a.qp()?)?);
    // The listener has the request for as long as nobody takes it.
    drop(listener.accept()?);
    let mut after = (a.used()?, b.used()?);
    wait_for(|| {
        if let (Ok(a), Ok(b)) = (a.used(), b.used()) {
            after = (a, b);
        }
        after == before
    });
    ensure!(after == before, "{before:?}, then {after:?}");
    // A driver that goes takes what it has with it, and the next one may listen.
    drop((listener, b));
    let mut next = Side::open(&rig, "b");
    ensure!(wait_for(|| {
        if next.is_err() {
            next = Side::open(&rig, "b");
        }
        next.is_ok()
    }));
    let next = next?;
    let listener = next.manager.listen(PORT, 16)?;
    connected(&a, &next, &listener)?;
    Ok(())
}

#[test]
fn listeners_end_with_the_device() -> Result<()> {
    let (_rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 16)?;
    let (at_a, at_b) = connected(&a, &b, &listener)?;
    b.context.reset()?;
    ensure!(matches!(listener.accept(), Err(Error::Gone(_))));
    ensure!(matches!(at_b.wait(Some(PATIENCE)), Err(Error::Gone(_))));
    ensure!(
        b.manager
            .listen(PORT, 16)
            .is_ok_and(|again| again.try_next().is_err())
    );
    // The peer's queue pair finds out by its retries; its manager goes on.
    ensure!(at_a.try_next()?.is_none());
    drop((listener, at_b));
    let manager = ConnectionManager::new(&b.context)?;
    ensure!(manager.listen(PORT + 1, 16)?.try_next()?.is_none());
    Ok(())
}

#[test]
fn offers_of_ece_reach_the_peer() -> Result<()> {
    let (_rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 4)?;
    let ece = Ece {
        vendor: 0x15b3,
        options: 0x3000_0002,
    };
    let options = ConnectionOptions {
        ece,
        ..ConnectionOptions::default()
    };
    let _asking = a.connector(&b)?.options(options).connect(&a.qp()?)?;
    ensure!(listener.accept()?.ece() == ece);
    Ok(())
}

#[test]
fn operators_see_connections_and_hear_what_becomes_of_them() -> Result<()> {
    let (mut rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 16)?;
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let (one, other) = connected(&a, &b, &listener)?;
        at_a.push(one);
        at_b.push(other);
    }
    // By pages, each once.
    let mut seen = Vec::new();
    let mut behind = None;
    loop {
        let page = rig.nic.connections("a", behind, 2)?;
        ensure!(page.rows.len() <= 2);
        seen.extend(page.rows);
        behind = page.next;
        if behind.is_none() {
            break;
        }
    }
    ensure!(seen.len() == 5, "{seen:?}");
    for (row, connection) in seen.iter().zip(&at_a) {
        ensure!(row.of.state == ConnectionState::Established && !row.of.passive);
        ensure!(row.of.qp == connection.qp().number() && row.of.terms.service_id.0 == 0x0106_4e20);
        ensure!(at_b.iter().any(|other| other.qp().number() == row.of.remote_qp));
    }
    let passive = rig.nic.connections("b", None, 100)?;
    ensure!(passive.next.is_none() && passive.rows.iter().all(|row| row.of.passive));
    for name in ["a", "b"] {
        rig.wait_event(name, |kind| {
            matches!(kind, NicEventKind::RdmaConnections(report)
                if report.outcome == ConnectionOutcome::Established && report.service.0 == 0x0106_4e20)
        })?;
    }
    drop(at_a.pop());
    let mut ended = Ok(false);
    ensure!(wait_for(|| {
        ended = at_b
            .iter()
            .try_fold(false, |any, one| Ok(any || one.try_next()?.is_some()));
        !matches!(ended, Ok::<_, Error>(false))
    }));
    ensure!(ended?);
    rig.wait_event("b", |kind| {
        matches!(kind, NicEventKind::RdmaConnections(report) if report.outcome == ConnectionOutcome::Disconnected)
    })?;
    let nobody = a
        .manager
        .connector(SocketAddr::new(b.ip()?, PORT + 1))
        .connect(&a.qp()?)?;
    ensure!(matches!(nobody.wait(), Err(Error::Rejected { .. })));
    rig.wait_event("a", |kind| {
        matches!(kind, NicEventKind::RdmaConnections(report)
            if report.outcome == ConnectionOutcome::Rejected && report.reason.contains("invalid service ID (8)"))
    })?;
    // Messages are counted by the names of Linux.
    let count = |side: &Side, name: &str| -> Result<u64> {
        let all = side.context.counters()?;
        Ok(all
            .into_iter()
            .find(|c| c.name == name)
            .context("a counter")?
            .value)
    };
    ensure!(count(&a, "cm_tx_msgs_req")? >= 6 && count(&b, "cm_rx_msgs_req")? >= 6);
    ensure!(count(&b, "cm_tx_msgs_rep")? >= 5 && count(&a, "cm_tx_msgs_rtu")? >= 5);
    ensure!(count(&a, "cm_rx_msgs_rej")? >= 1 && count(&a, "cm_tx_msgs_sidr_req")? == 0);
    Ok(())
}

#[test]
fn policies_by_port_follow_connections_at_once() -> Result<()> {
    let (rig, a, b) = pair()?;
    let policies = |priority| QosSpec {
        policies: vec![Policy {
            name: "nd".to_owned(),
            matches: Match::NetDirectPort(PORT),
            priority: Some(priority),
            dscp: None,
        }],
        ..QosSpec::default()
    };
    rig.nic.set_qos("a", policies(3))?;
    rig.nic.set_qos("b", policies(4))?;
    let listener = b.manager.listen(PORT, 16)?;
    let (at_a, at_b) = connected(&a, &b, &listener)?;
    let priority =
        |name, qp: &QueuePair<Rc>| -> Result<u8> { Ok(rig.nic.queue_pair(name, qp.number())?.priority) };
    ensure!(priority("a", at_a.qp())? == 3, "who has asked");
    ensure!(priority("b", at_b.qp())? == 4, "who has accepted");
    // Other rules reach connections that there are, and none of another port.
    rig.nic.set_qos("a", policies(6))?;
    ensure!(priority("a", at_a.qp())? == 6);
    let listener = b.manager.listen(PORT + 1, 16)?;
    let connector = a.manager.connector(SocketAddr::new(b.ip()?, PORT + 1));
    let other = a.qp()?;
    let asking = connector.connect(&other)?;
    let accepting = listener
        .accept()?
        .accept(&b.qp()?, &ConnectionOptions::default())?;
    let _both = (asking.wait()?, accepting.wait()?);
    ensure!(priority("a", &other)? == 0);
    Ok(())
}

/// The library has its own words of the standard's; here they are beside those of the wire.
#[test]
fn reasons_and_headers_are_those_of_the_wire() -> Result<()> {
    for number in 0..=u16::from(u8::MAX) {
        let rejection = Rejection {
            reason: number,
            private_data: Vec::new(),
        };
        assert_eq!(rejection.text(), Reason(number).text(), "reason {number}");
    }
    let (_rig, a, b) = pair()?;
    let listener = b.manager.listen(PORT, 4)?;
    let _asking = a.connector(&b)?.connect(&a.qp()?)?;
    let request = listener.accept()?;
    let header = ip::Header::parse(&request.message().private_data)?;
    ensure!(header.source == a.ip()? && header.destination == b.ip()?);
    ensure!(header.source_port == request.peer().port());
    ensure!(header.emit()[..] == request.message().private_data[..ip::HEADER_LEN]);
    Ok(())
}

/// Both ends get the service level and the partition that a policy has for the service, unless the program names one.
#[test]
fn a_connection_has_the_path_of_a_policy() -> Result<()> {
    const POLICY: &str = "
qos-levels
    qos-level
        name: DEFAULT
        sl: 0
    end-qos-level
    qos-level
        name: storage
        sl: 11
        mtu-limit: 2
        pkey: 0x8002
    end-qos-level
    qos-level
        name: nowhere
        sl: 1
        pkey: 0x9000
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        qos-class: 8
        qos-level-name: nowhere
    end-qos-match-rule
    qos-match-rule
        service-id: 0x1064e20
        qos-level-name: storage
    end-qos-match-rule
end-qos-match-rules
";
    let (rig, a, b) = pair()?;
    for name in ["a", "b"] {
        let spec = AdapterSpec {
            pkeys: PkeyTable::new(&[0x8001, 0x8002])?,
            ..rig.nic.adapter(name)?.wanted
        };
        rig.nic.update_adapter(spec)?;
    }
    let policy = subnet::parse(POLICY).map_err(|error| anyhow::anyhow!("{error}"))?;
    rig.nic.set_subnet_policy(Some(std::sync::Arc::new(policy)));
    let listener = b.manager.listen(PORT, 4)?;
    for (named, level) in [(None, 11), (Some(2), 2)] {
        let (qa, qb) = (a.qp()?, b.qp()?);
        let options = ConnectionOptions {
            service_level: named,
            ..ConnectionOptions::default()
        };
        let asking = a.connector(&b)?.options(options).connect(&qa)?;
        let request = listener.wait(Some(PATIENCE))?.context("a request")?;
        let accepting = request.accept(&qb, &ConnectionOptions::default())?;
        let _both = (asking.wait()?, accepting.wait()?);
        for qp in [&qa, &qb] {
            let said = qp.query()?;
            let way = said.address().context("connected")?;
            ensure!(
                (
                    way.service_level,
                    said.attributes.pkey_index,
                    said.attributes.path_mtu
                ) == (level, 1, 2),
                "{said:?}"
            );
        }
        let data = Data::inline(b"by a path");
        qa.post_send(&[SendWr::write(data, b.region.addr(), b.region.rkey()).signaled()])?;
        a.completion()?;
    }
    let options = ConnectionOptions {
        traffic_class: 8,
        ..ConnectionOptions::default()
    };
    let refused = a.connector(&b)?.options(options).connect(&a.qp()?).err();
    let said = refused.context("there is no path")?.to_string();
    ensure!(said.contains("policy has no path"), "{said}");
    Ok(())
}

/// Both ends get the P_Key of the partition that the request names.
#[test]
fn a_connection_is_in_the_partition_of_who_asks() -> Result<()> {
    let (rig, a, b) = pair()?;
    let set = |name: &str, pkeys: &[u16]| -> Result<()> {
        let spec = AdapterSpec {
            pkeys: PkeyTable::new(pkeys)?,
            ..rig.nic.adapter(name)?.wanted
        };
        rig.nic.update_adapter(spec)?;
        Ok(())
    };
    set("a", &[0x0001])?;
    set("b", &[0xffff, 0x8001])?;
    let listener = b.manager.listen(PORT, 4)?;
    let (qa, qb) = (a.qp()?, b.qp()?);
    let asking = a.connector(&b)?.connect(&qa)?;
    let request = listener.wait(Some(PATIENCE))?.context("a request")?;
    ensure!(request.message().pkey == 0x0001);
    let accepting = request.accept(&qb, &ConnectionOptions::default())?;
    let _both = (asking.wait()?, accepting.wait()?);
    let at = [&qa, &qb].map(|qp| qp.query().map(|said| said.attributes.pkey_index));
    ensure!(matches!(at, [Ok(0), Ok(1)]), "{at:?}");
    let data = Data::inline(b"together");
    qa.post_send(&[SendWr::write(data, b.region.addr(), b.region.rkey()).signaled()])?;
    a.completion()?;
    // One that is no member hears nothing.
    set("b", &[0xffff])?;
    let lost = a.connector(&b)?.connect(&a.qp()?)?;
    ensure!(wait_for(|| b
        .context
        .query_port()
        .is_ok_and(|port| port.bad_pkeys > 0)));
    ensure!(listener.try_next()?.is_none());
    drop(lost);
    Ok(())
}
