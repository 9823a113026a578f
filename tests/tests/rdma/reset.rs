//! What ends everything (`proto/device/SPEC.md`, section 4.3): RESET, the stop of virtqueue 0, a device reset, the end of the
//! connection. No object is left, peers get no answer, the next driver begins at once, neighbours notice nothing.

use anyhow::Result;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vnic_device::command::device::GidRecord;
use vnic_device::command::memory::{AllocDm, AllocMw};
use vnic_device::command::qp::Multicast;
use vnic_device::command::{Object, Opcode};
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_tests::driver::rdma::{Driver, Link, QpSpec, Side, World, Wr, connect, fill, link};
use vnic_tests::driver::rig::wait_for;

/// How a driver leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Command,
    StopControl,
    StopAll,
    DeviceReset,
    HangUp,
}

const ENDS: [End; 5] = [
    End::Command,
    End::StopControl,
    End::StopAll,
    End::DeviceReset,
    End::HangUp,
];

impl End {
    fn of(self, d: &mut Driver) -> Result<()> {
        match self {
            End::Command => {
                d.ask::<_, [u8; 0]>(Opcode::Reset, &[0u8; 0], &[])?;
            }
            End::StopControl => {
                d.frontend()?.get_vring_base(0)?;
            }
            End::StopAll => {
                d.stop_rings()?;
            }
            End::DeviceReset => d.frontend()?.reset_device()?,
            End::HangUp => d.hang_up(),
        }
        Ok(())
    }

    /// The same driver, ready for HELLO again.
    fn again(self, d: &mut Driver, socket: &std::path::Path) -> Result<()> {
        match self {
            End::Command => {}
            End::StopControl => d.start_ring(0)?,
            End::StopAll => {
                d.control.reset()?;
                d.event_ring.reset()?;
                d.start_rings()?;
            }
            End::DeviceReset => {
                let features = d.options.features;
                d.frontend()?.set_features(features)?;
                d.control.reset()?;
                d.event_ring.reset()?;
                d.start_rings()?;
            }
            End::HangUp => d.connect(socket)?,
        }
        Ok(())
    }
}

/// One object of each kind at least.
fn everything(s: &mut Side) {
    let xrcd = s.d.xrcd();
    let srq = s.d.srq(s.pd, 16, 2, None);
    s.d.srq(s.pd, 16, 2, Some((xrcd, s.cq.handle)));
    let own = s.d.own_address();
    s.d.ah(s.pd, own);
    let pd = s.pd;
    for mw_type in [1, 2] {
        assert_eq!(s.d.status(Opcode::AllocMw, &AllocMw { pd, mw_type }, &[]), S::Ok);
    }
    let dm = AllocDm {
        len: 4096,
        ..AllocDm::default()
    };
    assert_eq!(s.d.status(Opcode::AllocDm, &dm, &[]), S::Ok);
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcInitiator] {
        s.qp(qp_type);
    }
    let spec = QpSpec {
        xrcd,
        ..s.spec(QpType::XrcTarget)
    };
    s.d.qp(&spec);
    let spec = s.spec(QpType::Rc).shared(&srq);
    s.d.qp(&spec);
    let gid = GidRecord {
        gid: [0xfd; 16],
        index: 90,
        kind: 2,
        ..GidRecord::default()
    };
    assert_eq!(s.d.status(Opcode::SetGid, &gid, &[]), S::Ok);
    let qp = s.qp(QpType::Ud);
    let mut body = Multicast {
        qp: qp.number,
        ..Multicast::default()
    };
    body.gid[0] = 0xff;
    assert_eq!(s.d.status(Opcode::AttachMulticast, &body, &[]), S::Ok);
}

#[test]
fn every_end_ends_everything() -> Result<()> {
    let world = World::new(1, &["a", "b", "c"])?;
    let (mut a, mut c) = (world.side("a")?, world.side("c")?);
    // Two neighbours go on all the time.
    let (mut qc, mut qa_c) = c.pair(&mut a, QpType::Rc);
    let mut d = world.driver("b")?;
    for (round, end) in ENDS.into_iter().cycle().take(15).enumerate() {
        println!("{round} {end:?}");
        let mut b = Side::new(d);
        everything(&mut b);
        let names: Vec<_> = world.objects("b").into_iter().map(|r| r.0).collect();
        for name in [
            "pd",
            "cq",
            "qp",
            "mr",
            "mw",
            "srq",
            "ah",
            "xrcd",
            "dm",
            "doorbells",
            "ring_extents",
        ] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        // A peer in the middle of messages, both ways, and with something to receive.
        let (qa, mut qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
        let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        a.d.up(
            &qa,
            &Link {
                retry: 2,
                timeout: 10,
                ..link(to_b, qb.number)
            },
        );
        b.d.up(&qb, &link(to_a, qa.number));
        let mut qa = qa;
        b.cq.arm(&mut b.bells, false);
        for id in 0..20 {
            let wr =
                Wr::new(id, Operation::Write, &[b.at(0, 100_000)]).remote(a.mr.iova + 100_000, a.mr.rkey);
            b.post(&mut qb, &wr);
            let wr = Wr::new(id, Operation::Write, &[a.at(0, 90_000)]).remote(b.mr.iova, b.mr.rkey);
            a.post(&mut qa, &wr);
        }
        end.of(&mut b.d)?;
        // Gone when the transport has acknowledged; a connection that broke is noticed soon.
        if end == End::HangUp {
            assert!(
                wait_for(|| world.objects("b").is_empty()),
                "{:?}",
                world.objects("b")
            );
        }
        assert_eq!(world.objects("b"), []);
        // It touches nothing of that memory any more.
        let before = b.mr.area.bytes(0, 256 << 10);
        let cq = b.cq.area.bytes(0, 64 * 256);
        let mut ends = Vec::new();
        while ends.len() < 20 {
            let e = a.cq.wait();
            assert_eq!((e.qp, e.wr_id), (qa.number, ends.len() as u64));
            ends.push(e.status());
        }
        let good = ends.iter().take_while(|s| **s == Status::Success).count();
        if good < 20 {
            assert_eq!(ends[good], Status::RetryExceeded);
            assert!(
                ends[good + 1..].iter().all(|s| *s == Status::FlushError),
                "{ends:?}"
            );
        }
        assert!(before == b.mr.area.bytes(0, 256 << 10) && cq == b.cq.area.bytes(0, 64 * 256));
        a.d.end(Opcode::DestroyQp, qa.number)?;
        // The neighbours.
        let bytes = fill(round as u64, 20_000);
        c.mr.area.write(0, &bytes);
        a.receive(&mut qa_c, 5, &[a.at(0, 20_000)]);
        c.done(&mut qc, &Wr::send(6, &[c.at(0, 20_000)]));
        a.cq.good(5);
        assert_eq!(a.mr.area.bytes(0, 20_000), bytes);
        // The next driver: HELLO, and nothing of the past.
        d = b.d;
        end.again(&mut d, &world.socket("b"))?;
        let mark = vnic_tests::driver::rdma::HEAP_AT;
        d.release(mark);
        d.events.clear();
        assert_eq!(d.status(Opcode::AllocPd, &[0u8; 0], &[]), S::NotReady);
        d.hello();
        let gids = d.gids();
        assert!(gids.len() >= 2 && gids.iter().all(|g| g.index != 90), "{gids:?}");
        assert!(
            d.resources().iter().all(|r| r.1 == 0 || r.0 == "gid"),
            "{:?}",
            d.resources()
        );
        d.mem.check_canaries()?;
    }
    drop(d);
    world.finish()
}

/// A driver that comes back under the same addresses talks to peers that made a new connection, at once.
#[test]
fn drivers_come_and_go() -> Result<()> {
    let world = World::new(2, &["a", "b"])?;
    let mut a = world.side("a")?;
    for round in 0..40u64 {
        let mut b = world.side("b")?;
        let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
        b.receive(&mut qb, round, &[b.at(0, 5000)]);
        let bytes = fill(round, 5000);
        a.mr.area.write(0, &bytes);
        a.done(&mut qa, &Wr::send(round, &[a.at(0, 5000)]));
        b.cq.good(round);
        assert_eq!(b.mr.area.bytes(0, 5000), bytes);
        if round.is_multiple_of(2) {
            b.d.hang_up();
        } else {
            b.d.stop_rings()?;
        }
        a.d.end(Opcode::DestroyQp, qa.number)?;
    }
    assert!(wait_for(|| world.objects("b").is_empty()));
    world.finish()
}

/// RESET leaves the virtqueues as they are: commands behind it are carried out, events come.
#[test]
fn commands_behind_a_reset_are_carried_out() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut d = world.driver("a")?;
    let hello = vnic_device::command::device::Hello {
        abi_major: 1,
        ..Default::default()
    };
    let hello = vnic_device::zerocopy::IntoBytes::as_bytes(&hello).to_vec();
    let mut commands = Vec::new();
    for _ in 0..200 {
        let none = Vec::new;
        commands.extend([
            (Opcode::AllocPd, none()),
            (Opcode::Reset, none()),
            (Opcode::QueryClock, none()),
        ]);
        commands.push((Opcode::Hello, hello.clone()));
    }
    let mut statuses = Vec::new();
    d.burst(commands.into_iter(), |reply| statuses.push(reply.status));
    for four in statuses.chunks(4) {
        assert_eq!(four, [S::Ok, S::Ok, S::NotReady, S::Ok]);
    }
    assert_eq!(world.objects("a"), []);
    let mut s = Side::new(d);
    let qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    s.d.up(&qp, &link(own, qp.number));
    let mut qp = qp;
    s.cq.arm(&mut s.bells, false);
    s.done(
        &mut qp,
        &Wr::new(1, Operation::Write, &[]).remote(s.mr.iova, s.mr.rkey),
    );
    s.d.event(EventKind::Completion);
    // Handles of before are not those of after.
    let before = [s.pd, s.cq.handle, qp.number];
    s.d.ask::<_, [u8; 0]>(Opcode::Reset, &[0u8; 0], &[])?;
    s.d.hello();
    for (opcode, handle) in [
        (Opcode::DeallocPd, before[0]),
        (Opcode::DestroyCq, before[1]),
        (Opcode::QueryQp, before[2]),
    ] {
        assert_eq!(
            s.d.status(opcode, &Object { handle, reserved: 0 }, &[]),
            S::NoSuchObject
        );
    }
    world.finish()
}

/// A stopped event or wake-up queue stops the function's driver; started again, it begins anew. Interrupts may change at
/// any time.
#[test]
fn interrupts_change_under_way() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    for id in 0..20 {
        b.receive(&mut qb, id, &[b.at(0, 100)]);
        for i in 0..2 {
            let call = vmm_sys_util::eventfd::EventFd::new(vmm_sys_util::eventfd::EFD_NONBLOCK)?;
            b.d.frontend()?.set_vring_call(i, &call)?;
        }
        a.done(&mut qa, &Wr::send(id, &[a.at(0, 100)]));
        b.cq.good(id);
    }
    assert_eq!(b.d.state(&qb), QpState::Rts);
    let (mut q1, q2) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&mut a.d, &q1, &mut b.d, &q2);
    a.done(
        &mut q1,
        &Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey),
    );
    world.finish()
}
