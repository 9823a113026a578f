//! Interrupts to guests: sent at once, or owed for a while (`engine::moderation` decides).

mod signals;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SendFlags, send, sockopt};
use vnic_engine::moderation::{Decision, Method, Moderation};
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::core::Core;
use super::outputs::Slot;
use super::worker::Worker;
use crate::ring::SplitRing;

/// Interrupts that are due so soon are sent together: a look at all that are owed is not free.
const TOGETHER: Duration = Duration::from_micros(8);
/// A core that owes an interrupt so soon does not sleep: timers of a sleeping thread come late.
const AWAKE: Duration = Duration::from_micros(200);

pub use signals::Signals;

/// Is this an eventfd?
pub fn is_eventfd(file: &File) -> io::Result<bool> {
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    Ok(std::fs::read_link(link)?.as_os_str() == "anon_inode:[eventfd]")
}

/// A descriptor by which a guest is interrupted. It is the VMM's as well: what can be done to it must not make us wait.
#[derive(Debug)]
pub struct Call {
    file: File,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Eventfd(Arc<Signals>),
    /// User-Mode-Linux (6.1 at least) gives Unix sockets.
    Socket,
}

impl Call {
    /// For the data core that these signals are of.
    pub fn new(file: File, signals: Arc<Signals>) -> io::Result<Call> {
        let way = if is_eventfd(&file)? {
            Way::Eventfd(signals)
        } else if sockopt::socket_domain(&file).is_ok_and(|domain| domain == AddressFamily::UNIX) {
            Way::Socket
        } else {
            let what = "a call descriptor is neither an eventfd nor a Unix socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        Ok(Call { file, way })
    }

    fn ring(&self) {
        // A full one already says all there is to say; a closed one is the frontend's loss.
        match &self.way {
            Way::Eventfd(signals) => {
                let _ = signals.signal(self.file.as_fd());
            }
            Way::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = send(&self.file, &1u64.to_ne_bytes(), flags);
            }
        }
    }
}

/// Interrupts the guest.
pub fn notify(call: Option<&Call>) {
    if let Some(call) = call {
        call.ring();
    }
}

/// How the guest hears of one ring.
pub struct Calls {
    call: Option<Arc<Call>>,
    moderation: Moderation,
    /// What the guest saw before the first batch for which it is owed an interrupt.
    from: u16,
    /// Buffers that it had made available when that was last looked at.
    available: u16,
}

impl Calls {
    /// Through this descriptor.
    pub fn new(call: Option<Arc<Call>>, method: Method) -> Calls {
        Calls {
            call,
            moderation: Moderation::new(method),
            from: 0,
            available: 0,
        }
    }

    /// Is an interrupt owed?
    #[inline]
    pub fn owes(&self) -> bool {
        self.moderation.due().is_some()
    }

    /// Until when.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.moderation.due()
    }

    /// The ring has shown what is behind `before`; `frames` is how many frames ever.
    #[inline(never)]
    pub fn shown(
        &mut self,
        ring: &SplitRing,
        before: u16,
        wanted: bool,
        now: Instant,
        frames: u64,
    ) -> Decision {
        let owed = self.owes();
        let from = if owed { self.from } else { before };
        let unseen = ring.published().wrapping_sub(from);
        if owed && unseen > ring.size() {
            // A ring shows no more than it holds: what is older was taken.
            self.from = ring.published().wrapping_sub(ring.size());
        }
        let decision = self
            .moderation
            .shown(now, wanted, frames, unseen >= ring.size() / 4);
        match decision {
            Decision::Interrupt => notify(self.call.as_deref()),
            Decision::Later if !owed => (self.from, self.available) = (before, ring.available()),
            Decision::Later | Decision::Nothing => {}
        }
        decision
    }

    /// An interrupt may be due. True if it was sent.
    fn expire(&mut self, ring: &SplitRing, now: Instant) -> bool {
        if self.due().is_none_or(|due| due > now + TOGETHER) {
            return false;
        }
        let available = ring.available();
        let progress = std::mem::replace(&mut self.available, available) != available;
        let wanted = ring.wants_interrupt(self.from);
        let sent = self.moderation.expire(now, wanted, progress) == Decision::Interrupt;
        if sent {
            notify(self.call.as_deref());
        }
        sent
    }

    /// Sends what is owed now, because the ring stops. True if that was something.
    pub fn settle(&mut self) -> bool {
        let owed = self.moderation.settle();
        if owed {
            notify(self.call.as_deref());
        }
        owed
    }

    /// Another method from now on. True if an interrupt was owed and sent.
    pub fn set_method(&mut self, method: Method) -> bool {
        let owed = self.settle();
        self.moderation = Moderation::new(method);
        owed
    }

    /// Interrupts the guest here from now on.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.call = call;
    }

    /// Changes of the profile since this was last asked.
    pub fn take_transitions(&mut self) -> u64 {
        self.moderation.take_transitions()
    }
}

/// A ring whose guest may be owed an interrupt.
pub trait Caller {
    /// Its interrupts, and the ring.
    fn calls(&mut self) -> (&mut Calls, &SplitRing);
    /// An interrupt was sent.
    fn count_call(&self);

    /// Sends an interrupt that is due. Answers until when one is still owed.
    fn call_due(&mut self, now: Instant) -> Option<Instant> {
        let (calls, ring) = self.calls();
        let sent = calls.expire(ring, now);
        let due = calls.due();
        if sent {
            self.count_call();
        }
        due
    }

    /// Sends what is owed now, because the ring stops.
    fn settle_calls(&mut self) {
        if self.calls().0.settle() {
            self.count_call();
        }
    }

    /// Another method from now on.
    fn set_method(&mut self, method: Method) {
        if self.calls().0.set_method(method) {
            self.count_call();
        }
    }
}

/// Interrupts that a core owes.
pub struct Owed {
    /// No interrupt is due before.
    pub next: Instant,
    /// Receive queues that may owe one.
    queues: Vec<(PortId, u8)>,
}

impl Default for Owed {
    fn default() -> Self {
        Owed {
            next: Instant(u64::MAX),
            queues: Vec::new(),
        }
    }
}

impl Owed {
    /// A ring owes an interrupt until then.
    #[inline]
    pub fn until(&mut self, due: Instant) {
        self.next = self.next.min(due);
    }

    /// A receive queue owes an interrupt until then.
    pub fn by(&mut self, port: PortId, queue: u8, due: Instant) {
        self.until(due);
        if !self.queues.contains(&(port, queue)) {
            self.queues.push((port, queue));
        }
    }

    /// Is one due so soon that sleeping would make it late?
    pub fn soon(&self, now: Instant) -> bool {
        self.next <= now + AWAKE
    }
}

impl Core {
    /// Sends the interrupts of receive queues that are due.
    fn call_due(&mut self, now: Instant) {
        let (slots, owed) = (&mut self.out.slots, &mut self.owed);
        let mut next = Instant(u64::MAX);
        owed.queues.retain(|&(port, q)| {
            let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) else {
                return false;
            };
            let Some(Some(rx)) = a.queues.get_mut(usize::from(q)) else {
                return false;
            };
            let due = rx.call_due(now);
            next = due.map_or(next, |due| next.min(due));
            due.is_some()
        });
        owed.next = next;
    }
}

impl Worker {
    /// Sends the interrupts that are due.
    #[inline(never)]
    pub(super) fn call_due(&mut self, now: Instant) {
        self.core.call_due(now);
        for tx in self.txs.iter_mut().flatten() {
            if let Some(due) = tx.call_due(now) {
                self.core.owed.until(due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn call(file: &impl AsFd) -> io::Result<Call> {
        let copy = file.as_fd().try_clone_to_owned()?;
        Call::new(File::from(copy), Arc::new(Signals::new()?))
    }

    /// Rings in another thread, since it might never end.
    fn returns(call: Call) -> bool {
        let (tell, told) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            call.ring();
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn each_ring_counts() {
        let fd = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
        let call = call(&fd).expect("a call");
        // Many more than requests that can be done and not taken back.
        for _ in 0..2000 {
            call.ring();
        }
        let mut count = [0; 8];
        File::from(fd).read_exact(&mut count).expect("a number");
        assert_eq!(u64::from_ne_bytes(count), 2000);
    }

    #[test]
    fn nobody_waits_for_a_full_eventfd() {
        for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
            let fd = eventfd(0, flags).expect("an eventfd");
            rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).expect("room");
            for _ in 0..3 {
                assert!(returns(call(&fd).expect("a call")));
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_full_socket() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        call(&ours).expect("a call").ring();
        let mut heard = [0; 8];
        theirs.read_exact(&mut heard).expect("a ring");
        assert_eq!(u64::from_ne_bytes(heard), 1);
        while send(&ours, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
        while send(&ours, &[0], SendFlags::DONTWAIT).is_ok() {}
        assert!(returns(call(&ours).expect("a call")));
        drop(theirs);
        assert!(returns(call(&ours).expect("a call")));
    }

    #[test]
    fn other_files_are_refused() {
        let (_, pipe) = io::pipe().expect("a pipe");
        assert!(call(&pipe).is_err());
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(call(&udp).is_err());
        let file = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).expect("a file");
        assert!(call(&file).is_err());
    }
}
