//! What a driver writes into its rings: work requests, receives, doorbells, consumer indices. Its own queue pairs may end for
//! it; the device goes on to answer commands, and another pair's WRITEs arrive.

use std::cell::RefCell;

use arbitrary::{Result, Unstructured};
use vnic_device::command::Opcode;
use vnic_device::command::qp::QpAttributes;
use vnic_device::doorbell::Kind;
use vnic_device::queue::{AtomicOperands, Bind, Element, Operation};
use vnic_device::status::CommandStatus;
use vnic_device::verbs::{QpState, QpType, qp_mask};
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::rdma::{Area, FULL, Qp, Side, World, Wr, connect};

/// Steps of an input, at most.
const STEPS: usize = 64;
const TYPES: [QpType; 7] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcInitiator,
    QpType::XrcTarget,
    QpType::DcInitiator,
    QpType::DcTarget,
];

/// Two who are driven by the input, two who talk, and where these are.
struct Stage {
    world: World,
    liars: [Side; 2],
    marks: [u64; 2],
    honest: [Side; 2],
    pair: (Qp, Qp),
    turn: u64,
}

fn index(u: &mut Unstructured<'_>, near: u32) -> Result<u32> {
    Ok(match u.int_in_range(0..=7)? {
        0 => u.arbitrary()?,
        1 => 1 << u.int_in_range(0..=31)?,
        _ => near.wrapping_add(u.int_in_range(0..=130)?).wrapping_sub(65),
    })
}

fn element(u: &mut Unstructured<'_>, side: &Side) -> Result<Element> {
    let mut element = side.at(u.int_in_range(0..=4096)?, u.int_in_range(0..=9000)?);
    match u.int_in_range(0..=15)? {
        0 => element.lkey = u.arbitrary()?,
        1 => element.len = u.arbitrary()?,
        2 => element.addr = u.arbitrary()?,
        3 => element.addr = side.mr.iova + (256 << 10) - u.int_in_range(0..=64)?,
        _ => {}
    }
    Ok(element)
}

fn request(u: &mut Unstructured<'_>, side: &Side, other: &Side, to: u32) -> Result<Wr> {
    let mut elements = Vec::new();
    for _ in 0..u.int_in_range(0..=6)? {
        elements.push(element(u, side)?);
    }
    let operation = *u.choose(&Operation::ALL)?;
    let mut wr = Wr::new(u.arbitrary()?, operation, &elements)
        .remote(
            other.mr.iova + u.int_in_range(0..=(256 << 10) + 8)?,
            other.mr.rkey,
        )
        .imm(if u.arbitrary()? {
            u.arbitrary()?
        } else {
            side.mr.rkey
        });
    match u.int_in_range(0..=7)? {
        0 => wr = wr.inline(u.bytes(u.len().min(64))?),
        1 => wr = wr.operands(u.arbitrary()?, u.arbitrary()?),
        2 => {
            let bind = Bind {
                addr: side.mr.iova + u.int_in_range(0..=(256 << 10) + 8)?,
                len: u.arbitrary()?,
                ..Bind::default()
            };
            wr.behind = bind.as_bytes().to_vec();
        }
        3 => wr.behind.extend_from_slice(AtomicOperands::default().as_bytes()),
        4 => wr = wr.to(u.int_in_range(0..=3)?, to),
        5 => wr = wr.to_target(u.int_in_range(0..=3)?, to, u.int_in_range(0..=1)?),
        _ => {}
    }
    if u.ratio(1, 4)? {
        wr.head.flags = u.arbitrary()?;
    }
    match u.int_in_range(0..=15)? {
        0 => wr.head.count = u.arbitrary()?,
        1 => wr.head.operation = u.arbitrary()?,
        2 => wr.head.rkey = u.arbitrary()?,
        3 => wr.head.remote = u.arbitrary()?,
        4 => wr.head.remote_srq = u.arbitrary()?,
        _ => {}
    }
    wr.behind.truncate(192);
    Ok(wr)
}

fn scribble(u: &mut Unstructured<'_>, area: &Area) -> Result<()> {
    let word: u64 = u.arbitrary()?;
    let at = 8 * u.int_in_range(0..=area.len() / 8 - 1)?;
    area.store(at, word);
    Ok(())
}

impl Stage {
    fn new() -> Stage {
        let world = World::new(1, &["a", "b", "c", "d"]).expect("a NIC");
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| world.driver(name).expect("a driver"));
        let marks = [a.mark(), b.mark()];
        let liars = [Side::new(a), Side::new(b)];
        let mut honest = [Side::new(c), Side::new(d)];
        let [c, d] = &mut honest;
        let pair = c.pair(d, QpType::Rc);
        Stage {
            world,
            liars,
            marks,
            honest,
            pair,
            turn: 0,
        }
    }

    /// Both liars begin anew, with a pair of queue pairs that is connected.
    fn again(&mut self, qp_type: QpType) -> [Qp; 2] {
        for (side, mark) in self.liars.iter_mut().zip(self.marks) {
            let reset = side.d.status(Opcode::Reset, &[0_u8; 0], &[]);
            assert_eq!(reset, CommandStatus::Ok);
            side.d.release(mark);
            side.d.hello();
            side.pd = side.d.pd();
            side.cq = side.d.cq(256);
            side.bells = side.d.bells(64);
            let area = side.d.area(256 << 10);
            side.mr = side.d.mr_of(side.pd, area, 0x7f00_0000_0000, FULL);
        }
        let [a, b] = &mut self.liars;
        let other = match qp_type {
            QpType::XrcInitiator => QpType::XrcTarget,
            QpType::XrcTarget => QpType::XrcInitiator,
            QpType::DcInitiator => QpType::DcTarget,
            QpType::DcTarget => QpType::DcInitiator,
            same => same,
        };
        let (mut spec, mut theirs) = (a.spec(qp_type), b.spec(other));
        if qp_type == QpType::XrcTarget {
            spec.xrcd = a.d.xrcd();
        }
        if other == QpType::XrcTarget {
            theirs.xrcd = b.d.xrcd();
        }
        for (spec, side) in [(&mut spec, &mut *a), (&mut theirs, &mut *b)] {
            if spec.qp_type == QpType::DcTarget {
                let mut srq = side.d.srq(side.pd, 16, 4, None);
                for n in 0..8 {
                    let index = srq.ring.write(n, &[side.at(0, 4096)]);
                    side.bells.write(bell(Kind::SharedReceive, srq.handle, index));
                }
                spec.srq = srq.handle;
            }
        }
        let (qa, qb) = (a.d.qp(&spec), b.d.qp(&theirs));
        let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        // (Initiators name one of these.)
        let _ = (a.d.ah(a.pd, to_b), b.d.ah(b.pd, to_a));
        connect(&mut a.d, &qa, &mut b.d, &qb);
        [qa, qb]
    }

    fn step(&mut self, u: &mut Unstructured<'_>, qps: &mut [Qp; 2]) -> Result<()> {
        let of = usize::from(u.arbitrary::<bool>()?);
        let [a, b] = &mut self.liars;
        let (side, other) = if of == 0 { (a, b) } else { (b, a) };
        let to = qps[1 - of].number;
        let qp = &mut qps[of];
        match u.int_in_range(0..=15)? {
            0..=4 => {
                if qp.send.is_some() {
                    let wr = request(u, side, other, to)?;
                    let at = qp.sends().write(&wr);
                    let at = if u.ratio(1, 8)? { index(u, at)? } else { at };
                    side.bells.write(bell(Kind::Send, qp.number, at));
                }
            }
            5..=7 => {
                if qp.receive.is_some() {
                    let mut elements = Vec::new();
                    for _ in 0..u.int_in_range(0..=3)? {
                        elements.push(element(u, side)?);
                    }
                    let at = qp.receives().write(u.arbitrary()?, &elements);
                    let at = if u.ratio(1, 8)? { index(u, at)? } else { at };
                    side.bells.write(bell(Kind::Receive, qp.number, at));
                }
            }
            8 => {
                if let Some(ring) = &qp.send {
                    scribble(u, &ring.area)?;
                }
            }
            9 => {
                if let Some(ring) = &qp.receive {
                    scribble(u, &ring.area)?;
                }
            }
            10 => scribble(u, &side.cq.area)?,
            11 => scribble(u, &side.bells.area)?,
            12 => side.cq.set_consumer(index(u, side.cq.consumer)?),
            13 => {
                let kind = *u.choose(&Kind::ALL)?;
                let number = match kind {
                    Kind::ArmNext | Kind::ArmSolicited => side.cq.handle,
                    _ => qp.number,
                };
                let number = if u.ratio(1, 8)? { u.arbitrary()? } else { number };
                side.bells.write(bell(kind, number, index(u, side.cq.consumer)?));
            }
            14 => side.bells.write(u.arbitrary()?),
            _ => {
                let attributes = QpAttributes {
                    state: u.choose(&QpState::ALL)?.number(),
                    ..QpAttributes::default()
                };
                // (It may refuse.)
                let _ = side.d.modify(qp.number, qp_mask::STATE, attributes);
            }
        }
        side.bells.kick_if_wanted();
        Ok(())
    }

    fn honest_write(&mut self) {
        self.turn += 1;
        let [c, d] = &mut self.honest;
        let at = 8 * (self.turn % 1000);
        c.mr.area.store(at, self.turn);
        let wr = Wr::new(self.turn, Operation::Write, &[c.at(at, 8)]).remote(d.mr.iova + at, d.mr.rkey);
        c.done(&mut self.pair.0, &wr);
        assert_eq!(
            d.mr.area.load::<u64>(at),
            self.turn,
            "a WRITE of others is not where it should be"
        );
    }

    fn input(&mut self, bytes: &[u8]) {
        let mut u = Unstructured::new(bytes);
        let qp_type = *u.choose(&TYPES).unwrap_or(&QpType::Rc);
        let mut qps = self.again(qp_type);
        for _ in 0..STEPS {
            if u.is_empty() || self.step(&mut u, &mut qps).is_err() {
                break;
            }
        }
        self.honest_write();
        for side in &mut self.liars {
            // (By a command: it is answered behind the doorbells of its turn.)
            side.d.device();
        }
        assert_eq!(self.world.rig.core_counter("panics"), 0);
    }
}

fn bell(kind: Kind, number: u32, index: u32) -> u64 {
    vnic_device::doorbell::Doorbell { kind, number, index }.to_bits(false)
}

/// See the module.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }
    STAGE.with_borrow_mut(|stage| stage.get_or_insert_with(Stage::new).input(bytes));
}
