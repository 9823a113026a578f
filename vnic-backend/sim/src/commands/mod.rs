//! Random verbs: handles that are valid, were valid or never were, attributes and work requests of any value. Nothing
//! panics, a refused verb changes nothing and names its reason, and what is in use is what a simple model says.

mod model;
mod shell;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use vnic_engine::rdma::{
    AttributeMask, Device, DeviceConfig, Incoming, Limits, Mtu, Object, Outgoing, QpState, RecvWr,
    Reregister, Resources, SendWr, Sink, SrqInit, VerbsError, state,
};
use vnic_wire::roce::{Frame, build};
use vnic_wire::time::Instant;

use crate::memory::SimMemory;
use crate::oracle::{Judgement, Rule, Violation};
use model::{Kind, Model};

/// Bytes of memory of each device.
const MEMORY: usize = 64 << 10;
/// Verbs of a run.
const VERBS: usize = 400;

/// A verb in words, and what came of it.
type Answer = (String, Result<(), VerbsError>);

/// Two devices, and what there should be in them.
struct Fuzz {
    rng: Rng,
    devices: [Device; 2],
    models: [Model; 2],
    memories: [SimMemory; 2],
    /// What waited in the completion queues when it was looked at last.
    waited: [shell::Waited; 2],
    now: u64,
    verbose: bool,
}

/// Packets between the two.
#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    unbuilt: usize,
}

impl Sink for Wire {
    fn open(&mut self) -> u8 {
        if self.frames.len() < 200 { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        let mut frame = Vec::new();
        let read = packet.payload.read(&mut payload);
        if read.is_ok() && build(packet.path, &packet.headers, &payload, &mut frame).is_ok() {
            self.frames.push(frame);
        } else {
            self.unbuilt += 1;
        }
    }
}

/// Runs a seed; the verb that broke a rule, if one did.
pub fn run(seed: u64, verbose: bool) -> Option<Violation> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut fuzz = Fuzz::new(seed, verbose);
        // Something to begin with.
        for i in 0..60 {
            let (what, result) = fuzz.create(i % 2)?;
            if verbose {
                println!("dev{} {what}: {result:?}", i % 2);
            }
        }
        for _ in 0..VERBS {
            fuzz.step()?;
        }
        Ok(())
    }));
    match result {
        Ok(judgement) => judgement.err(),
        Err(panic) => Some(Violation::panic(&*panic)),
    }
}

/// Limits that are soon reached.
fn limits(rng: &mut Rng) -> Limits {
    if rng.u32(0..4) == 0 {
        return Limits::default();
    }
    let mut few = || rng.u32(1..12);
    Limits {
        max_qp: few(),
        max_qp_wr: few() * 4,
        max_sge: few(),
        max_inline: few() * 16,
        max_cq: few(),
        max_cqe: few() * 100,
        max_mr: few(),
        max_mr_size: MEMORY as u64,
        max_mr_extents: few() * 4,
        max_mw: few(),
        max_pd: few(),
        max_srq: few(),
        max_srq_wr: few() * 4,
        max_srq_sge: few(),
        max_ah: few(),
        max_xrcd: few(),
        max_rd_atomic: 4,
        max_mcast_groups: few(),
        max_mcast_qp_per_group: few(),
        gid_table_len: 8,
        ..Limits::default()
    }
}

impl Fuzz {
    fn new(seed: u64, verbose: bool) -> Fuzz {
        let mut rng = Rng::with_seed(seed ^ 0x636f_6d6d);
        let mut devices = [0, 1].map(|dev| {
            let made = Device::new(DeviceConfig {
                mac: values::mac(dev),
                limits: limits(&mut rng),
                mtu: Mtu::ALL[rng.usize(2..5)],
                trailers: false,
                pin_source_port: rng.bool(),
                seed: 0,
                place: None,
            });
            made.expect("the limits are within those of all devices")
        });
        for (dev, device) in devices.iter_mut().enumerate() {
            for index in 0..2 {
                // Both indices are within every table.
                let _ = device.set_gid(index, Some(values::gid(dev, index)));
            }
        }
        Fuzz {
            rng,
            devices,
            models: Default::default(),
            memories: [SimMemory::new(MEMORY), SimMemory::new(MEMORY)],
            waited: Default::default(),
            now: 0,
            verbose,
        }
    }

    /// One verb, and time.
    fn step(&mut self) -> Judgement {
        let dev = self.rng.usize(0..2);
        let before = self.devices[dev].resources();
        let (what, result) = self.verb(dev)?;
        if self.verbose {
            println!("dev{dev} {what}: {result:?}");
        }
        let after = self.devices[dev].resources();
        if let Err(error) = result {
            if before != after {
                return Rule::Verb.broken(format!(
                    "{what} was refused ({error}) but changed what is in use: {before:?} {after:?}"
                ));
            }
            if error.to_string().trim().is_empty() {
                return Rule::Verb.broken(format!("{what}: {error:?} names no reason"));
            }
        }
        self.check_use(dev, &what, &after)?;
        self.check_held(dev, &what)?;
        if self.rng.u32(0..8) == 0 {
            self.check_named(dev, &what)?;
        }
        while self.devices[dev].poll_event().is_some() {}
        if self.rng.u32(0..4) == 0 {
            self.exchange();
        }
        Ok(())
    }

    /// Packets travel, timers run out.
    fn exchange(&mut self) {
        let longest = 1 << self.rng.u32(1..40);
        self.now += self.rng.u64(0..longest);
        let now = Instant(self.now);
        for dev in 0..2 {
            self.devices[dev].handle_timeout(now);
            let mut wire = Wire::default();
            self.devices[dev].transmit(now, &self.memories[dev], &mut wire);
            for frame in wire.frames {
                let Ok(frame) = Frame::parse(&frame) else { continue };
                let to = if self.rng.u32(0..8) == 0 { dev } else { 1 - dev };
                self.devices[to].receive(now, &Incoming::from(&frame), &self.memories[to]);
            }
            let mut trace = Vec::new();
            self.memories[dev].take(&mut trace);
        }
    }

    /// What is in use is what the model says.
    fn check_use(&self, dev: usize, what: &str, found: &Resources) -> Judgement {
        for (name, usage) in found.iter() {
            let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else {
                continue;
            };
            let expected = self.models[dev].count(kind);
            if usage.used as usize != expected || usage.used > usage.limit {
                return Rule::Verb.broken(format!(
                    "after {what}: {usage:?} of {name}, the model has {expected}"
                ));
            }
        }
        Ok(())
    }

    /// A handle of some kind: most live, some dead, some of the air; and whether it is live.
    fn pick(&mut self, dev: usize, kind: Kind) -> u32 {
        let list = match self.rng.u32(0..20) {
            0 => {
                let bits = self.rng.u32(0..32);
                return self.rng.u32(..) >> bits;
            }
            1 => self.models[dev].dead(kind),
            _ => self.models[dev].live(kind),
        };
        match self.rng.choice(list) {
            Some(handle) => *handle,
            None => self.rng.u32(0..100),
        }
    }

    fn verb(&mut self, dev: usize) -> Judgement<Answer> {
        match self.rng.u32(0..100) {
            0..=14 => self.create(dev),
            15..=22 => self.destroy(dev),
            23..=52 => self.modify(dev),
            53..=91 => Ok(self.work(dev)),
            _ => Ok(self.shell(dev)),
        }
    }

    /// Notes a new object, or looks whether it was refused for a limit that is not reached.
    fn made(
        &mut self,
        dev: usize,
        kind: Kind,
        what: &str,
        result: Result<u32, VerbsError>,
    ) -> Judgement<Result<(), VerbsError>> {
        match result {
            Ok(handle) => {
                if self.models[dev].live(kind).contains(&handle) {
                    return Rule::Verb.broken(format!("{what} gave {handle:#x}, which is in use"));
                }
                self.models[dev].add(kind, handle);
                Ok(Ok(()))
            }
            Err(VerbsError::LimitReached { object, limit }) => {
                let used = self.models[dev].count(kind);
                if used < limit as usize && object != Object::Multicast {
                    return Rule::Verb
                        .broken(format!("{what}: limit {limit} of {object}, but {used} are used"));
                }
                Ok(Err(VerbsError::LimitReached { object, limit }))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    fn create(&mut self, dev: usize) -> Judgement<Answer> {
        use Kind as K;
        let (pd, cq, other_cq) = (
            self.pick(dev, K::Pd),
            self.pick(dev, K::Cq),
            self.pick(dev, K::Cq),
        );
        let (srq, xrcd) = (self.pick(dev, K::Srq), self.pick(dev, K::Xrcd));
        let rng = &mut self.rng;
        let device = &mut self.devices[dev];
        let limits = *device.limits();
        let (kind, what, result) = match rng.u32(0..18) {
            0..=1 => (K::Pd, "alloc_pd".to_owned(), device.alloc_pd().map(|h| h.0)),
            2..=3 => {
                let entries = values::size(rng, limits.max_cqe.min(1000));
                let made = device.create_cq(entries).map(|h| h.0);
                (K::Cq, format!("create_cq {entries}"), made)
            }
            4..=5 => {
                let (iova, access, spans) = values::region(rng, MEMORY as u64);
                let what = format!("register pd {pd:#x} at {iova:#x} {access:?} {spans:x?}");
                let made = device.register(values::pd(pd), iova, access, spans);
                (K::Mr, what, made.map(|r| r.mr.0))
            }
            6 => {
                let kind = values::window(rng);
                let made = device.alloc_mw(values::pd(pd), kind).map(|(mw, _)| mw.0);
                (K::Mw, format!("alloc_mw pd {pd:#x} {kind:?}"), made)
            }
            7..=8 => {
                let xrc = rng.u32(0..3) == 0;
                let init = SrqInit {
                    pd: values::pd(pd),
                    xrcd: (xrc != (rng.u32(0..30) == 0)).then_some(values::xrcd(xrcd)),
                    cq: xrc.then_some(values::cq(cq)),
                    max_wr: values::size(rng, limits.max_srq_wr.min(50)),
                    max_sge: values::size(rng, limits.max_srq_sge.min(8)),
                };
                let made = device.create_srq(init).map(|h| h.0);
                (K::Srq, format!("create_srq {init:?}"), made)
            }
            9..=10 => {
                let vector = values::address(rng);
                let made = device.create_ah(values::pd(pd), vector).map(|h| h.0);
                (K::Ah, format!("create_ah pd {pd:#x} {vector:?}"), made)
            }
            11 => (K::Xrcd, "open_xrcd".to_owned(), device.open_xrcd().map(|h| h.0)),
            _ => {
                let init = values::qp_init(rng, &limits, pd, cq, other_cq, srq, xrcd);
                let made = device.create_qp(&init).map(|h| h.0);
                (K::Qp, format!("create_qp {init:?}"), made)
            }
        };
        let result = self.made(dev, kind, &what, result)?;
        Ok((what, result))
    }

    fn destroy(&mut self, dev: usize) -> Judgement<Answer> {
        let kind = Kind::ALL[self.rng.usize(0..Kind::ALL.len())];
        let handle = self.pick(dev, kind);
        let device = &mut self.devices[dev];
        let result = match kind {
            Kind::Pd => device.dealloc_pd(values::pd(handle)),
            Kind::Cq => device.destroy_cq(values::cq(handle)),
            Kind::Mr => device.deregister(vnic_engine::rdma::MrHandle(handle)),
            Kind::Mw => device.dealloc_mw(vnic_engine::rdma::MwHandle(handle)),
            Kind::Srq => device.destroy_srq(values::srq(handle)),
            Kind::Ah => device.destroy_ah(vnic_engine::rdma::AhHandle(handle)),
            Kind::Xrcd => device.close_xrcd(values::xrcd(handle)),
            Kind::Qp => device.destroy_qp(values::qp(handle)),
        };
        let what = format!("destroy {kind:?} {handle:#x}");
        let live = self.models[dev].live(kind).contains(&handle);
        match &result {
            Ok(()) if !live => return Rule::Verb.broken(format!("{what} succeeded, but it is not there")),
            Ok(()) => self.models[dev].remove(kind, handle),
            Err(VerbsError::NoSuch(_)) if live => {
                return Rule::Verb.broken(format!("{what}: {result:?}, but it is there"));
            }
            Err(VerbsError::NoSuch(_)) => {}
            Err(_) if !live => return Rule::Verb.broken(format!("{what}: {result:?}, and it is not there")),
            Err(VerbsError::InUse { users, .. }) if *users > 0 => {}
            Err(error) => return Rule::Verb.broken(format!("{what}: {error:?}")),
        }
        Ok((what, result))
    }

    fn modify(&mut self, dev: usize) -> Judgement<Answer> {
        if self.rng.u32(0..8) > 0 {
            return self.modify_qp(dev);
        }
        let cq = values::cq(self.pick(dev, Kind::Cq));
        let srq = values::srq(self.pick(dev, Kind::Srq));
        let (mr, pd) = (self.pick(dev, Kind::Mr), values::pd(self.pick(dev, Kind::Pd)));
        let qp = values::qp(self.pick(dev, Kind::Qp));
        let rng = &mut self.rng;
        let device = &mut self.devices[dev];
        Ok(match rng.u32(0..8) {
            6 | 7 => {
                let key = values::access_key(rng);
                let what = format!("set_access_key {qp:?} {key}");
                (what, device.set_access_key(qp, key))
            }
            0 => {
                let entries = values::size(rng, 1000);
                let what = format!("resize_cq {cq:?} {entries}");
                (what, device.resize_cq(cq, entries))
            }
            1 => (format!("arm_cq {cq:?}"), device.arm_cq(cq, values::arm(rng))),
            2 => {
                let (limit, max) = (values::maybe(rng, 100), values::maybe(rng, 100));
                let what = format!("modify_srq {srq:?} {limit:?} {max:?}");
                (what, device.modify_srq(srq, limit, max))
            }
            3 => {
                let (iova, access, spans) = values::region(rng, MEMORY as u64);
                let change = Reregister {
                    translation: rng.bool().then_some((iova, spans.into())),
                    pd: rng.bool().then_some(pd),
                    access: rng.bool().then_some(access),
                };
                let what = format!("reregister {mr:#x} {change:x?}");
                let done = device.reregister(vnic_engine::rdma::MrHandle(mr), change);
                (what, done.map(|_| ()))
            }
            4 => {
                let gid = values::any_gid(rng);
                let what = format!("attach_multicast {qp:?} {gid}");
                (what, device.attach_multicast(qp, gid))
            }
            _ => {
                let gid = values::any_gid(rng);
                let what = format!("detach_multicast {qp:?} {gid}");
                (what, device.detach_multicast(qp, gid))
            }
        })
    }

    /// Any attributes, with any mask; or, so that it comes somewhere, those that the next state needs.
    fn modify_qp(&mut self, dev: usize) -> Judgement<Answer> {
        let qp = values::qp(self.pick(dev, Kind::Qp));
        let peers = self.models[1 - dev].live(Kind::Qp).to_vec();
        let rng = &mut self.rng;
        let before = self.devices[dev].query_qp(qp);
        let mut attributes = values::attributes(rng, dev, &peers);
        let mut mask = AttributeMask::from_bits_truncate(rng.u32(..));
        let init = self.devices[dev].query_qp_init(qp);
        if let (Ok(now), Ok(init), true) = (&before, &init, rng.u32(0..4) > 0) {
            attributes.state = match now.state {
                QpState::Reset => QpState::Init,
                QpState::Init => QpState::Rtr,
                QpState::Rtr => QpState::Rts,
                _ if rng.u32(0..4) > 0 => QpState::Rts,
                _ => QpState::ALL[rng.usize(0..7)],
            };
            if let Some(row) = state::find(init.qp_type, now.state, attributes.state) {
                mask = row.required | AttributeMask::STATE;
                if rng.u32(0..4) == 0 {
                    mask |= row.optional & AttributeMask::from_bits_truncate(rng.u32(..));
                }
                attributes.current_state = now.state;
            }
        }
        let what = format!("modify_qp {qp:?} {mask:?} {attributes:?}");
        let result = self.devices[dev].modify_qp(qp, &attributes, mask, Instant(self.now));
        let after = self.devices[dev].query_qp(qp);
        let to = if mask.contains(AttributeMask::STATE) {
            Some(attributes.state)
        } else {
            before.as_ref().ok().map(|b| b.state)
        };
        let (Ok(before), Ok(after), Ok(init), Some(to)) = (before, after, init, to) else {
            return match result {
                Err(VerbsError::NoSuch(Object::Qp)) => Ok((what, result)),
                _ => Rule::Verb.broken(format!("{what}: {result:?} for a queue pair that is not there")),
            };
        };
        match &result {
            Err(_) if before != after => {
                Rule::Verb.broken(format!("{what}: {result:?}, but {before:?} became {after:?}"))
            }
            Ok(()) if after.state != to => {
                Rule::Verb.broken(format!("{what} succeeded, but it is in {:?}", after.state))
            }
            Ok(()) if state::transition(init.qp_type, before.state, to, mask).is_err() => {
                Rule::Verb.broken(format!("{what} succeeded against the table of states"))
            }
            _ => Ok((what, result)),
        }
    }

    fn work(&mut self, dev: usize) -> Answer {
        let qp = values::qp(self.pick(dev, Kind::Qp));
        let srq = values::srq(self.pick(dev, Kind::Srq));
        let cq = values::cq(self.pick(dev, Kind::Cq));
        let keys = [self.pick(dev, Kind::Mr), self.pick(1 - dev, Kind::Mr)];
        let objects = [
            self.pick(dev, Kind::Ah),
            self.pick(dev, Kind::Mw),
            self.pick(dev, Kind::Mr),
        ];
        let rng = &mut self.rng;
        let device = &mut self.devices[dev];
        match rng.u32(0..10) {
            0..=4 => {
                let kind = device.query_qp_init(qp).ok().map(|i| i.qp_type);
                let wr: SendWr = values::send(rng, kind, keys, objects);
                (format!("post_send {qp:?} {wr:?}"), device.post_send(qp, wr))
            }
            5..=6 => {
                let wr: RecvWr = values::recv(rng, keys[0]);
                (format!("post_recv {qp:?} {wr:?}"), device.post_recv(qp, wr))
            }
            7 => {
                let wr = values::recv(rng, keys[0]);
                let what = format!("post_srq_recv {srq:?} {wr:?}");
                (what, device.post_srq_recv(srq, wr))
            }
            _ => {
                let mut out = Vec::new();
                let polled = device.poll_cq(cq, &mut out, rng.usize(0..20));
                (format!("poll_cq {cq:?} gives {}", out.len()), polled.map(|_| ()))
            }
        }
    }
}
