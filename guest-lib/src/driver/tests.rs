//! The driver half against a little device.

pub(super) mod fake;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use vnic_device::command::Opcode;
use vnic_device::event::{EventKind, EventRecord, FaultQueue, FaultReason, fault_detail};

use crate::sync::lock;
use crate::{Access, AsyncEvent, CommandStatus, Context, CqBuilder, Device, Error, PostReason, Rc, RecvWr};
use fake::Fake;

fn open(fake: &Arc<Fake>) -> Context {
    Device::with_transport(Arc::clone(fake) as _).expect("it starts")
}

fn event(kind: EventKind, object: u32, detail: u64) -> EventRecord {
    EventRecord {
        kind: kind.number(),
        object,
        detail,
        ..EventRecord::default()
    }
}

const SOME_TIME: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn a_device_of_the_first_version_says_less() {
    let fake = Fake::shared(4096);
    assert_eq!(open(&fake).query_device().qp_rates(), Some(1..=7));
    let fake = Fake::shared(4096);
    fake.old.store(true, SeqCst);
    let context = open(&fake);
    assert_eq!(context.query_device().max_command_len, 65536);
    assert_eq!(context.query_device().qp_rates(), None);
}

#[test]
fn it_says_hello_and_stops_at_the_end() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    assert_eq!(
        *lock(&fake.commands),
        [Opcode::Hello, Opcode::QueryDevice, Opcode::CreateDoorbells]
    );
    let pd = context.alloc_pd().expect("a PD");
    let region = pd.allocate(10_000, Access::LOCAL_WRITE).expect("a region");
    drop(context);
    drop(pd);
    assert!(!fake.stopped.load(SeqCst), "a region needs the device");
    drop(region);
    assert!(fake.stopped.load(SeqCst));
    let commands = lock(&fake.commands);
    assert_eq!(
        commands[3..],
        [
            Opcode::AllocPd,
            Opcode::RegisterMr,
            Opcode::DeregisterMr,
            Opcode::DeallocPd
        ]
    );
}

#[test]
fn errors_of_commands_say_what_and_why() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    lock(&fake.statuses).push_back((CommandStatus::LimitReached, "no more than 7"));
    let e = context.alloc_pd().expect_err("refused");
    assert_eq!(e.status(), Some(CommandStatus::LimitReached));
    assert_eq!(e.errno(), 12);
    assert_eq!(
        e.to_string(),
        "the device refused AllocPd: LimitReached: no more than 7"
    );
    // The reply of an object's body is too short here: the fake does not know the command.
    assert!(matches!(context.clock(), Err(Error::Protocol(_))));
}

#[test]
fn another_version_is_refused_by_name() {
    let fake = Fake::shared(4096);
    lock(&fake.statuses).push_back((CommandStatus::NotSupported, "only 1.7"));
    let e = Device::with_transport(fake.clone() as _).expect_err("refused");
    assert!(
        matches!(&e, Error::Version(text) if text.contains("only 1.7")),
        "{e}"
    );
    assert!(fake.stopped.load(SeqCst), "what was started is stopped");
}

#[test]
fn events_find_their_way() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let channel = context.create_completion_channel().expect("a channel");
    let cq = context
        .create_cq_with(CqBuilder::new(10).channel(&channel).context(5))
        .expect("a CQ");
    assert_eq!(cq.entries(), 16);
    assert!(channel.try_event().expect("alive").is_none());
    // Many more than there are buffers.
    for i in 0..1000 {
        fake.raise(event(EventKind::Completion, cq.number(), i));
        let heard = channel.get_event().expect("an event");
        assert_eq!((heard.number(), heard.context()), (cq.number(), 5));
    }
    fake.raise(event(EventKind::Completion, 0x777, 0));
    let detail = fault_detail(FaultQueue::Receive, FaultReason::Length, 9);
    fake.raise(event(EventKind::QueueFault, 3, detail));
    fake.raise(EventRecord {
        kind: 4711,
        ..EventRecord::default()
    });
    fake.raise(event(EventKind::GidChange, 2, 0));
    let fault = crate::Fault {
        queue: FaultQueue::Receive,
        reason: FaultReason::Length,
        index: 9,
    };
    let next = || context.wait_async_event(SOME_TIME).expect("alive");
    assert_eq!(
        next(),
        Some(AsyncEvent::QpFatal {
            qp: 3,
            fault: Some(fault)
        })
    );
    assert_eq!(next(), Some(AsyncEvent::GidChange { index: 2 }));
    assert_eq!(context.async_event().expect("alive"), None);
    // An event of a queue that is gone is nobody's.
    fake.raise(event(EventKind::Completion, cq.number(), 0));
    drop(cq);
    fake.raise(event(EventKind::PortError, 1, 0));
    assert_eq!(next(), Some(AsyncEvent::PortError));
    assert!(channel.try_event().expect("alive").is_none());
}

/// The table is asked for once, and again after each word that it has changed.
#[test]
fn the_gid_table_is_known_until_it_changes() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let asked = || {
        for _ in 0..3 {
            assert_eq!(context.known_gids().expect("alive"), []);
        }
        let commands = lock(&fake.commands);
        commands.iter().filter(|c| **c == Opcode::QueryGids).count()
    };
    let heard = || {
        context
            .wait_async_event(SOME_TIME)
            .expect("alive")
            .expect("an event")
    };
    assert_eq!(asked(), 1);
    for (number, kind) in [EventKind::GidChange, EventKind::EventsLost]
        .into_iter()
        .enumerate()
    {
        fake.raise(event(kind, 2, 1));
        heard();
        assert_eq!(asked(), 2 + number);
    }
    fake.raise(event(EventKind::PortError, 1, 0));
    heard();
    assert_eq!(asked(), 3);
    context.reset().expect("alive");
    assert_eq!(asked(), 4);
}

#[test]
fn when_the_daemon_ends_everything_ends() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let channel = context.create_completion_channel().expect("a channel");
    let cq = context.create_cq(4).expect("a CQ");
    let pd = context.alloc_pd().expect("a PD");
    let region = pd.allocate(4096, Access::LOCAL_WRITE).expect("a region");
    let qp = pd.qp::<Rc>(&cq, &cq).build().expect("a QP");
    qp.to_init(Access::empty()).expect("INIT");
    assert_eq!(qp.post_recv(&[RecvWr::new(region.slice(..))]), Ok(1));
    let waiter = std::thread::spawn(move || channel.get_event().err());
    // A command that is never answered.
    fake.deaf.store(true, SeqCst);
    let asking = context.clone();
    let asker = std::thread::spawn(move || asking.alloc_pd().err());
    fake.hang_up();
    for thread in [waiter, asker] {
        let e = thread.join().expect("it ends");
        assert!(e.is_some_and(|e| e.is_gone()));
    }
    assert_eq!(
        context.wait_async_event(SOME_TIME).expect("the last"),
        Some(AsyncEvent::DeviceFatal)
    );
    assert!(context.wait_async_event(SOME_TIME).is_err_and(|e| e.is_gone()));
    assert_eq!(
        qp.post_recv(&[RecvWr::new(region.slice(..))])
            .map_err(|e| e.reason),
        Err(PostReason::Gone)
    );
    let mut ended = [crate::WorkCompletion::default(); 2];
    assert_eq!(cq.poll(&mut ended).ok(), Some(1), "the receive is flushed");
    assert_eq!(ended[0].status(), crate::CompletionStatus::FlushError);
    assert!(cq.poll(&mut ended).is_err_and(|e| e.is_gone()));
    assert!(context.reset().is_err_and(|e| e.is_gone()));
    assert!(context.query_port().is_err_and(|e| e.is_gone()));
    drop((context, qp, cq, region, pd));
    assert!(fake.stopped.load(SeqCst));
}

#[test]
fn a_device_that_does_not_answer_is_taken_for_dead() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    fake.deaf.store(true, SeqCst);
    let e = context.alloc_pd().expect_err("no answer");
    assert!(
        e.is_gone() && e.to_string().contains("AllocPd was not answered"),
        "{e}"
    );
    assert_eq!(
        context.wait_async_event(SOME_TIME).expect("the last"),
        Some(AsyncEvent::DeviceFatal)
    );
    assert!(context.create_completion_channel().is_err_and(|e| e.is_gone()));
}

#[test]
fn a_reset_ends_what_was_and_begins_anew() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let channel = context.create_completion_channel().expect("a channel");
    let old = context.alloc_pd().expect("a PD");
    let region = old.allocate(4096, Access::LOCAL_WRITE).expect("a region");
    context.reset().expect("reset");
    assert!(channel.get_event().is_err_and(|e| e.is_gone()));
    assert!(old.allocate(1, Access::LOCAL_WRITE).is_err_and(|e| e.is_gone()));
    assert_eq!(
        context.async_event().expect("alive"),
        Some(AsyncEvent::DeviceFatal)
    );
    assert_eq!(context.async_event().expect("alive"), None);
    let before = lock(&fake.commands).len();
    drop((region, old));
    assert_eq!(
        lock(&fake.commands).len(),
        before,
        "what is dead is not ended again"
    );
    context.alloc_pd().expect("a PD");
    assert_eq!(
        lock(&fake.commands)[before - 4..],
        [
            Opcode::Reset,
            Opcode::Hello,
            Opcode::QueryDevice,
            Opcode::CreateDoorbells,
            Opcode::AllocPd,
            Opcode::DeallocPd
        ]
    );
}

#[test]
fn a_device_that_failed_lives_again_after_a_reset() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    fake.raise(event(EventKind::DeviceFatal, 0, 0));
    assert_eq!(
        context.wait_async_event(SOME_TIME).expect("alive"),
        Some(AsyncEvent::DeviceFatal)
    );
    assert!(context.alloc_pd().is_err_and(|e| e.is_gone()));
    context.reset().expect("reset");
    context.alloc_pd().expect("a PD");
}

#[test]
fn memory_that_the_device_may_hold_is_kept() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("a PD");
    let region = pd.allocate(4096, Access::LOCAL_WRITE).expect("a region");
    let memory = Arc::downgrade(&region.buffer().expect("its buffer").0);
    lock(&fake.statuses).push_back((CommandStatus::InUse, "windows are bound"));
    drop(region);
    assert!(memory.upgrade().is_none(), "nobody can reach it");
    assert_eq!(lock(&context.core.kept.lingering).len(), 1, "but it is there");
    // It ends when something else has.
    lock(&fake.statuses).extend([(CommandStatus::InUse, "the region"), (CommandStatus::Ok, "")]);
    drop(pd);
    assert_eq!(lock(&context.core.kept.lingering).len(), 2);
    drop(context.alloc_pd().expect("a PD"));
    assert!(lock(&context.core.kept.lingering).is_empty());
    let last = lock(&fake.commands).split_off(8);
    assert_eq!(last, [Opcode::DeallocPd, Opcode::DeregisterMr, Opcode::DeallocPd]);
    // What ended in an error of the device is kept to the end.
    let pd = context.alloc_pd().expect("a PD");
    let region = pd.allocate(4096, Access::LOCAL_WRITE).expect("a region");
    lock(&fake.statuses).push_back((CommandStatus::Internal, ""));
    drop(region);
    assert_eq!(lock(&context.core.kept.graveyard).len(), 1);
    context.reset().expect("reset");
    assert!(lock(&context.core.kept.graveyard).is_empty());
}

#[test]
fn many_threads_give_commands_and_ring() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let cq = context.create_cq(4).expect("a CQ");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..20 {
                    context.alloc_pd().expect("a PD");
                    cq.req_notify(false).expect("alive");
                }
            });
        }
    });
    assert_eq!(fake.kicks.load(SeqCst), 240);
    let rings = |c: &[Opcode]| c.iter().filter(|o| **o == Opcode::CreateDoorbells).count();
    assert!((2..=8).contains(&rings(&lock(&fake.commands))));
}

#[test]
fn a_device_with_few_rings_shares_them() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let cq = context.create_cq(4).expect("a CQ");
    lock(&fake.statuses).extend([(CommandStatus::LimitReached, ""); 7]);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| cq.req_notify(true).expect("the first ring is there"));
        }
    });
    assert_eq!(fake.kicks.load(SeqCst), 16);
}

#[test]
fn a_full_ring_that_the_device_gave_up_ends_the_wait() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let cq = context.create_cq(4).expect("a CQ");
    let writing = cq.clone();
    // The fake never takes from a ring: when it is full, this waits.
    let poster = std::thread::spawn(move || {
        loop {
            if let Err(e) = writing.req_notify(false) {
                return e;
            }
        }
    });
    // Whichever of the rings it is.
    for ring in 1..10 {
        let detail = fault_detail(FaultQueue::Doorbells, FaultReason::Reserved, 0);
        fake.raise(event(EventKind::QueueFault, ring, detail));
    }
    let e = poster.join().expect("it ends");
    assert!(e.is_gone() && e.to_string().contains("doorbells"), "{e}");
    assert_eq!(
        context.wait_async_event(SOME_TIME).expect("alive"),
        Some(AsyncEvent::DeviceFatal)
    );
}

#[test]
fn a_full_ring_that_nobody_takes_from_is_an_end() {
    let fake = Fake::shared(4096);
    let context = open(&fake);
    let cq = context.create_cq(4).expect("a CQ");
    let e = loop {
        if let Err(e) = cq.req_notify(false) {
            break e;
        }
    };
    assert!(e.is_gone() && e.to_string().contains("not taken"), "{e}");
}
