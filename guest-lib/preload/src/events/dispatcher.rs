//! Delivery of asynchronous events.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io;
use vnic_verbs::sysfs::Files;
use vnic_verbs::{AsyncEvent, NoFork, block_signals};

use super::mailbox::{Letter, Mailbox, Subject};
use crate::abi::*;
use crate::errno::{Errno, complain};
use crate::sync::lock;

/// Kinds of objects that events are about. Each kind has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Cq,
    Qp,
    Srq,
    /// A work queue; the device has it as a queue pair.
    Wq,
}

/// Takes the events of a device and puts each into the mailboxes that it concerns.
pub struct Dispatcher {
    lists: Arc<Lists>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// An object, and where its events go.
type Registered = (Subject, Weak<Mailbox>);

#[derive(Debug, Default)]
struct Lists(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Objects by kind and number. There may be several: a target of XRC may have been opened more than
    /// once.
    objects: HashMap<(Kind, u32), Vec<Registered>>,
    /// All mailboxes, for events of the port and the device.
    all: Vec<Weak<Mailbox>>,
    /// Whether the device has gone for good.
    closed: bool,
}

/// Files of a device.
pub struct Kept {
    /// The files.
    pub files: Files,
    /// What becomes of them when the device is gone for good.
    pub gone: Box<dyn FnOnce(Files) + Send>,
}

impl Dispatcher {
    /// A dispatcher for a device that was opened, which also keeps the device's files.
    pub fn new(device: &vnic_verbs::Context, files: Option<Kept>) -> Result<Dispatcher, Errno> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let theirs = stop.try_clone().map_err(|_| Errno::NO_MEMORY)?;
        let lists = Arc::new(Lists::default());
        let thread = std::thread::Builder::new().name("vnic-async".into()).spawn({
            let (device, lists) = (device.clone(), Arc::clone(&lists));
            move || {
                block_signals();
                run(&device, &lists, &theirs, files);
            }
        });
        Ok(Dispatcher {
            lists,
            stop,
            thread: Some(thread.map_err(|_| Errno::AGAIN)?),
        })
    }

    /// Adds a mailbox, which gets events of the port and the device.
    pub fn add(&self, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.lists.0);
        state.all.retain(|m| m.strong_count() > 0);
        state.all.push(Arc::downgrade(mailbox));
        if state.closed {
            mailbox.close();
        }
    }

    /// Sends events about an object of this kind and number to a mailbox from now on.
    pub fn register(&self, kind: Kind, number: u32, subject: Subject, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.lists.0);
        let subjects = state.objects.entry((kind, number)).or_default();
        subjects.push((subject, Arc::downgrade(mailbox)));
    }

    /// Stops sending events about an object, and drops those that wait.
    pub fn forget(&self, kind: Kind, number: u32, pointer: usize) {
        let mut state = lock(&self.lists.0);
        let Some(subjects) = state.objects.get_mut(&(kind, number)) else {
            return;
        };
        subjects.retain(|(subject, mailbox)| {
            let ends = subject.pointer == pointer;
            if let (true, Some(mailbox)) = (ends, mailbox.upgrade()) {
                mailbox.forget(pointer);
            }
            !ends
        });
        if subjects.is_empty() {
            state.objects.remove(&(kind, number));
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let _ = io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Time between two looks at what the device's files say.
const EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Delivers events until `stop` is readable, or the device is gone for good.
fn run(device: &vnic_verbs::Context, lists: &Lists, stop: &OwnedFd, mut files: Option<Kept>) {
    loop {
        {
            // A forked child would wait for ever for what this thread has locked.
            let _no_fork = NoFork::hold();
            match device.async_event() {
                Ok(Some(event)) => {
                    lists.dispatch(event);
                    continue;
                }
                Ok(None) => {}
                Err(_) => {
                    if let Some(Kept { files, gone }) = files {
                        gone(files);
                    }
                    return lists.close();
                }
            }
        }
        let events = device.async_fd();
        let mut fds = [
            PollFd::new(&events, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        let patience = files.is_some().then_some(&EVERY);
        match poll(&mut fds, patience) {
            Ok(0) => {
                let _no_fork = NoFork::hold();
                let failed = files
                    .as_mut()
                    .and_then(|kept| kept.files.keep(device).inspect_err(|e| complain(e)).err());
                if matches!(failed, Some(vnic_verbs::Error::Os { .. })) {
                    files = None;
                }
            }
            Ok(_) | Err(io::Errno::INTR) => {}
            Err(_) => return lists.close(),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            return;
        }
    }
}

/// Destination of an event, and its kind.
enum To {
    Object(Kind, u32, u32),
    Everybody(u32),
    /// There is no such event in the interface.
    Nobody,
}

fn address(event: AsyncEvent) -> To {
    use AsyncEvent as A;
    match event {
        A::CqError { cq, .. } => To::Object(Kind::Cq, cq, IBV_EVENT_CQ_ERR),
        A::QpFatal { qp, .. } => To::Object(Kind::Qp, qp, IBV_EVENT_QP_FATAL),
        A::QpRequestError { qp } => To::Object(Kind::Qp, qp, IBV_EVENT_QP_REQ_ERR),
        A::QpAccessError { qp } => To::Object(Kind::Qp, qp, IBV_EVENT_QP_ACCESS_ERR),
        A::CommunicationEstablished { qp } => To::Object(Kind::Qp, qp, IBV_EVENT_COMM_EST),
        A::SendQueueDrained { qp } => To::Object(Kind::Qp, qp, IBV_EVENT_SQ_DRAINED),
        A::LastWqeReached { qp } => To::Object(Kind::Qp, qp, IBV_EVENT_QP_LAST_WQE_REACHED),
        A::SrqError { srq, .. } => To::Object(Kind::Srq, srq, IBV_EVENT_SRQ_ERR),
        A::SrqLimitReached { srq } => To::Object(Kind::Srq, srq, IBV_EVENT_SRQ_LIMIT_REACHED),
        A::DeviceFatal => To::Everybody(IBV_EVENT_DEVICE_FATAL),
        A::PortActive => To::Everybody(IBV_EVENT_PORT_ACTIVE),
        A::PortError => To::Everybody(IBV_EVENT_PORT_ERR),
        A::LidChange => To::Everybody(IBV_EVENT_LID_CHANGE),
        A::PkeyChange => To::Everybody(IBV_EVENT_PKEY_CHANGE),
        A::GidChange { .. } => To::Everybody(IBV_EVENT_GID_CHANGE),
        // MrLost: work that names the region fails, which the program sees. EventsLost: nobody knows whose
        // events they were.
        _ => To::Nobody,
    }
}

impl Lists {
    fn dispatch(&self, event: AsyncEvent) {
        let state = lock(&self.0);
        match address(event) {
            To::Object(kind, number, event) => {
                let is_work_queue = kind == Kind::Qp && state.objects.contains_key(&(Kind::Wq, number));
                let (kind, event) = match event {
                    _ if !is_work_queue => (kind, event),
                    IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                        (Kind::Wq, IBV_EVENT_WQ_FATAL)
                    }
                    _ => return,
                };
                for (subject, mailbox) in state.objects.get(&(kind, number)).into_iter().flatten() {
                    if let Some(mailbox) = mailbox.upgrade() {
                        mailbox.put(Letter {
                            kind: event,
                            about: Some(subject.clone()),
                        });
                    }
                }
            }
            To::Everybody(event) => {
                for mailbox in state.all.iter().filter_map(Weak::upgrade) {
                    mailbox.put(Letter {
                        kind: event,
                        about: None,
                    });
                }
            }
            To::Nobody => complain(&format_args!("{event:?}: programs have no word for it")),
        }
    }

    fn close(&self) {
        let mut state = lock(&self.0);
        state.closed = true;
        for mailbox in state.all.iter().filter_map(Weak::upgrade) {
            mailbox.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Unacknowledged;

    fn subject(pointer: usize) -> Subject {
        Subject {
            pointer,
            unacknowledged: Unacknowledged::default(),
        }
    }

    fn taken(mailbox: &Mailbox) -> Vec<(u32, Option<usize>)> {
        std::iter::from_fn(|| mailbox.take().ok().flatten())
            .map(|letter| (letter.kind, letter.about.map(|s| s.pointer)))
            .collect()
    }

    fn with_two() -> (Dispatcher, [Arc<Mailbox>; 2]) {
        let dispatcher = Dispatcher {
            lists: Arc::default(),
            stop: eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
            thread: None,
        };
        let boxes = [(); 2].map(|()| Arc::new(Mailbox::new().expect("an eventfd")));
        for mailbox in &boxes {
            dispatcher.add(mailbox);
        }
        (dispatcher, boxes)
    }

    #[test]
    fn an_event_goes_to_whom_it_concerns() {
        let (dispatcher, [first, second]) = with_two();
        dispatcher.register(Kind::Qp, 7, subject(64), &first);
        dispatcher.register(Kind::Cq, 7, subject(128), &second);
        dispatcher
            .lists
            .dispatch(AsyncEvent::CommunicationEstablished { qp: 7 });
        dispatcher.lists.dispatch(AsyncEvent::QpAccessError { qp: 8 });
        dispatcher.lists.dispatch(AsyncEvent::PortError);
        dispatcher
            .lists
            .dispatch(AsyncEvent::CqError { cq: 7, fault: None });
        let established = (IBV_EVENT_COMM_EST, Some(64));
        let port = (IBV_EVENT_PORT_ERR, None);
        assert_eq!(taken(&first), [established, port]);
        assert_eq!(taken(&second), [port, (IBV_EVENT_CQ_ERR, Some(128))]);
    }

    #[test]
    fn of_a_work_queue_only_its_end_is_told() {
        let (dispatcher, [first, _second]) = with_two();
        dispatcher.register(Kind::Wq, 7, subject(64), &first);
        let lists = &dispatcher.lists;
        lists.dispatch(AsyncEvent::CommunicationEstablished { qp: 7 });
        lists.dispatch(AsyncEvent::QpFatal { qp: 7, fault: None });
        assert_eq!(taken(&first), [(IBV_EVENT_WQ_FATAL, Some(64))]);
    }

    #[test]
    fn what_has_ended_hears_nothing() {
        let (dispatcher, [first, _second]) = with_two();
        dispatcher.register(Kind::Srq, 1, subject(64), &first);
        let event = AsyncEvent::SrqLimitReached { srq: 1 };
        dispatcher.lists.dispatch(event);
        dispatcher.forget(Kind::Srq, 1, 64);
        dispatcher.lists.dispatch(event);
        assert_eq!(taken(&first), []);
    }

    #[test]
    fn one_that_comes_after_the_end_hears_of_it() {
        let (dispatcher, [first, _second]) = with_two();
        dispatcher.lists.close();
        assert!(first.take().is_err());
        let late = Arc::new(Mailbox::new().expect("an eventfd"));
        dispatcher.add(&late);
        assert!(late.take().is_err());
    }
}
