//! As many objects as there may be (`proto/device/SPEC.md`, sections 5.2 and 5.4): the next one is LIMIT_REACHED, nothing is
//! disturbed, all can be ended at once, and the daemon has its memory back.

use anyhow::{Result, ensure};
use vnic_device::command::memory::{AllocDm, AllocMw, RegisterDmMr};
use vnic_device::command::qp::{CreateAh, CreateQp};
use vnic_device::command::{NONE, Object, Opcode};
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::QpType;
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::rdma::{World, Wr, fill};

#[test]
fn everything_has_a_limit() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let device = a.d.device();
    let dm: Object = a.d.ask(
        Opcode::AllocDm,
        &AllocDm {
            len: 4096,
            ..AllocDm::default()
        },
        &[],
    )?;
    let pd = a.pd;
    let address = a.d.own_address();
    let ah = CreateAh {
        pd,
        reserved: 0,
        address,
    };
    let mw = AllocMw { pd, mw_type: 2 };
    let mr = RegisterDmMr {
        pd,
        access: 0x21,
        dm: dm.handle,
        len: 64,
        ..RegisterDmMr::default()
    };
    let qp = CreateQp {
        qp_type: QpType::Rc.number(),
        pd,
        send_cq: a.cq.handle,
        recv_cq: a.cq.handle,
        srq: NONE,
        xrcd: NONE,
        ..CreateQp::default()
    };
    // Object, what makes it, how many there may be and are.
    let rows: [(&str, Opcode, &[u8], u32); 5] = [
        ("pd", Opcode::AllocPd, &[], device.max_pd),
        ("ah", Opcode::CreateAh, ah.as_bytes(), device.max_ah),
        ("mw", Opcode::AllocMw, mw.as_bytes(), device.max_mw),
        ("mr", Opcode::RegisterDmMr, mr.as_bytes(), device.max_mr),
        ("qp", Opcode::CreateQp, qp.as_bytes(), device.max_qp),
    ];
    let used = |name: &str| {
        let objects = world.objects("a");
        objects.iter().find(|o| o.0 == name).map_or(0, |o| o.1)
    };
    for (round, (name, opcode, body, most)) in rows.into_iter().enumerate() {
        let before = used(name);
        let mut last = 0;
        let (good, end) = a.d.exhaust(opcode, body, |handle| last = handle);
        println!("{good} {name}, then {end:?}");
        ensure!(
            (before + good, end) == (most, S::LimitReached),
            "{before} {name} and {good}"
        );
        ensure!(used(name) == most);
        // One less, one more.
        let destroy = match opcode {
            Opcode::AllocPd => Opcode::DeallocPd,
            Opcode::CreateAh => Opcode::DestroyAh,
            Opcode::AllocMw => Opcode::DeallocMw,
            Opcode::RegisterDmMr => Opcode::DeregisterMr,
            _ => Opcode::DestroyQp,
        };
        a.d.end(destroy, last)?;
        ensure!(a.d.status(opcode, body, &[]) == S::Ok);
        ensure!(a.d.status(opcode, body, &[]) == S::LimitReached);
        // Traffic does not mind.
        let bytes = fill(round as u64, 30_000);
        a.mr.area.write(0, &bytes);
        b.receive(&mut qb, 1, &[b.at(0, 30_000)]);
        a.done(&mut qa, &Wr::send(2, &[a.at(0, 30_000)]));
        b.cq.good(1);
        ensure!(b.mr.area.bytes(0, 30_000) == bytes);
        let wr = Wr::new(3, Operation::Read, &[b.at(40_000, 30_000)]).remote(a.mr.iova, a.mr.rkey);
        b.done(&mut qb, &wr);
        ensure!(b.mr.area.bytes(40_000, 30_000) == bytes);
    }
    a.d.ask::<_, [u8; 0]>(Opcode::Reset, &[0u8; 0], &[])?;
    ensure!(world.objects("a").is_empty(), "{:?}", world.objects("a"));
    a.d.hello();
    // The neighbour has its own limits.
    ensure!(b.d.status(Opcode::AllocPd, &[0u8; 0], &[]) == S::Ok);
    world.finish()
}
