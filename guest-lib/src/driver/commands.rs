//! Commands (`SPEC.md`, section 5), and those that end objects. One command is on its way at a time; whoever sends it waits
//! for the answer.

use std::any::Any;
use std::time::{Duration, Instant};

use vnic_device::command::{Object, Opcode, Range};
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::control::{REPLY_MAX, parse};
use super::shared::{Lingering, Shared};
use crate::Error;
use crate::sync::lock;

/// How often a thread looks at the used ring before it sleeps.
const SPINS: u32 = 2000;
/// How long a device may take for a command before it counts as dead. Not every transport can tell that a
/// daemon has ended.
pub(super) const ANSWER: Duration = if cfg!(test) {
    Duration::from_secs(3)
} else {
    Duration::from_secs(60)
};
/// How long a device that has failed may take for the command that it has.
const LAST_CHANCE: Duration = Duration::from_secs(5);

impl Shared {
    /// Carries out a command. `epoch` is that of the object that the command is about; with `None` the
    /// command goes out in any epoch.
    pub fn command(
        &self,
        epoch: Option<u32>,
        opcode: Opcode,
        body: &[u8],
        list: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Error> {
        if self.is_parents() {
            return Err(self.dead());
        }
        let mut control = lock(&self.control);
        if epoch.is_some_and(|e| !self.is_alive(e)) || self.is_broken() || control.abandoned {
            return Err(self.dead());
        }
        if control.send(opcode, body, list, room)? {
            self.transport.notify(vnic_device::config::CONTROL_QUEUE);
        }
        for _ in 0..SPINS {
            if let Some(answer) = control.receive(opcode) {
                return answer;
            }
            std::hint::spin_loop();
        }
        let mut last_chance = None;
        let asked = Instant::now();
        loop {
            let seen = *lock(&self.bell.0);
            if let Some(answer) = control.receive(opcode) {
                return answer;
            }
            // A device that has failed gets a last chance to answer; a device that is not there gets none.
            let failed = epoch.is_some_and(|e| !self.is_alive(e));
            let end = failed.then(|| *last_chance.get_or_insert_with(|| Instant::now() + LAST_CHANCE));
            if asked.elapsed() > ANSWER {
                self.die_unheard(&format!("{opcode:?} was not answered"));
            }
            if !self.check_transport() || end.is_some_and(|end| Instant::now() > end) {
                control.abandoned = true;
                return Err(self.dead());
            }
            let mut count = lock(&self.bell.0);
            // The timeout is for transports that forget an interrupt, and to look whether they are still
            // there.
            while *count == seen {
                let (next, timeout) = self
                    .bell
                    .1
                    .wait_timeout(count, Duration::from_millis(100))
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                count = next;
                if timeout.timed_out() {
                    break;
                }
            }
        }
    }

    /// A command with a body and without a list; the reply has a fixed form. `epoch`: as for [`command`](Shared::command).
    pub fn call<B, R>(&self, epoch: impl Into<Option<u32>>, opcode: Opcode, body: &B) -> Result<R, Error>
    where
        B: IntoBytes + Immutable,
        R: FromBytes,
    {
        let reply = self.command(epoch.into(), opcode, body.as_bytes(), &[], size_of::<R>())?;
        parse(opcode, &reply)
    }

    /// A command about an object, or one that ends it.
    pub fn about<R: FromBytes>(&self, epoch: u32, opcode: Opcode, handle: u32) -> Result<R, Error> {
        self.call(epoch, opcode, &Object { handle, reserved: 0 })
    }

    /// As [`about`](Core::about). Of the reply older devices send only `least` bytes: the rest is zero.
    pub fn about_since<R: FromBytes>(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        least: usize,
    ) -> Result<R, Error> {
        let (body, room) = (Object { handle, reserved: 0 }, size_of::<R>());
        let mut reply = self.command(Some(epoch), opcode, body.as_bytes(), &[], room)?;
        if reply.len() == least {
            reply.resize(room, 0);
        }
        parse(opcode, &reply)
    }

    /// A command without a body. Of the reply older devices send only `least` bytes: the rest is zero.
    pub fn call_since<R: FromBytes>(&self, opcode: Opcode, least: usize) -> Result<R, Error> {
        let room = size_of::<R>();
        let mut reply = self.command(Some(self.epoch()?), opcode, &[], &[], room)?;
        if reply.len() == least {
            reply.resize(room, 0);
        }
        parse(opcode, &reply)
    }

    /// Asks for all records of a list.
    pub fn records<R: FromBytes>(&self, opcode: Opcode) -> Result<Vec<R>, Error> {
        let epoch = self.epoch()?;
        let room = REPLY_MAX / size_of::<R>();
        let mut all = Vec::new();
        loop {
            let first = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let range = Range { first, reserved: 0 };
            let reply = self.command(Some(epoch), opcode, range.as_bytes(), &[], room * size_of::<R>())?;
            let records = reply.chunks_exact(size_of::<R>());
            let count = records.len();
            for record in records {
                all.push(parse(opcode, record)?);
            }
            if count < room {
                return Ok(all);
            }
        }
    }

    /// Ends an object by a command and frees its memory. If the device still uses the object (a region to which
    /// windows are bound, and what that region is in), the command is sent again whenever another object has
    /// ended. If the device does not say that the object ended, the memory is kept.
    pub fn end(&self, epoch: u32, opcode: Opcode, handle: u32, memory: Box<dyn Any + Send + Sync>) {
        if let Some(object) = self.end_once(epoch, opcode, handle, memory) {
            lock(&self.kept.lingering).push(object);
        }
    }

    /// As [`end`](Shared::end), but returns false if the device still uses the object, which then is as before.
    pub fn end_unless_in_use(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> bool {
        self.end_once(epoch, opcode, handle, memory).is_none()
    }

    /// Ends an object once; returns it if the device still uses it.
    fn end_once(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Option<Lingering> {
        if self.is_parents() {
            // The parent has the object, and its memory in use.
            std::mem::forget(memory);
            return None;
        }
        if self.epoch().is_ok_and(|now| now != epoch) {
            // The reset that ended the object was acknowledged.
            return None;
        }
        let object = Lingering {
            epoch,
            end: opcode,
            handle,
            memory,
        };
        let in_use = self.try_end(object);
        if in_use.is_none() {
            self.end_lingering();
        }
        in_use
    }

    /// Ends an object; returns it if the device still uses it.
    fn try_end(&self, object: Lingering) -> Option<Lingering> {
        let Err(e) = self.about::<()>(object.epoch, object.end, object.handle) else {
            return None;
        };
        match e.status() {
            Some(CommandStatus::InUse) => return Some(object),
            Some(CommandStatus::NoSuchObject) => {}
            _ => self.bury(object.memory),
        }
        None
    }

    /// Ends all objects that can end now, until none does.
    fn end_lingering(&self) {
        loop {
            let before = std::mem::take(&mut *lock(&self.kept.lingering));
            let count = before.len();
            if count == 0 {
                return;
            }
            let mut after: Vec<_> = before.into_iter().filter_map(|o| self.try_end(o)).collect();
            let ended = after.len() < count;
            lock(&self.kept.lingering).append(&mut after);
            if !ended {
                return;
            }
        }
    }
}
