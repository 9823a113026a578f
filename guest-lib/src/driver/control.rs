//! Commands (`SPEC.md`, section 5). One command is on its way at a time; whoever sends it waits for the
//! answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use vnic_device::command::{CommandHead, Object, Opcode, Range, ReplyHead};
use vnic_device::ring::Extent;
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::virtqueue::{Piece, Queue, Used};
use super::{Shared, lock};
use crate::Error;
use crate::shared::{Memory, part_of};
use crate::transport::Transport;

/// Bytes of body and list of a command that every device takes.
pub(crate) const COMMAND_MAX: usize = 65536;
/// Bytes of the longest reply.
const REPLY_MAX: usize = 65536;
/// Bytes of a reply for which there is always room: bodies, and texts of errors.
const REPLY_MIN: usize = 512;
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

/// The control queue, and memory for one command and its reply.
pub(crate) struct Control {
    queue: Queue,
    command: Memory,
    command_extents: Vec<Extent>,
    reply: Memory,
    reply_extents: Vec<Extent>,
    cookie: u64,
    /// Whether a command was given up: the device may still have it.
    abandoned: bool,
}

impl Control {
    pub fn new(transport: &dyn Transport, queue: Queue) -> Result<Control, Error> {
        let area = |len| -> Result<(Memory, Vec<Extent>), Error> {
            let pages = transport.allocate(len)?;
            let extents = part_of(&pages.extents, 0, pages.len as u64);
            Ok((Memory::of_pages(Arc::new(pages)), extents))
        };
        let (command, command_extents) = area(size_of::<CommandHead>() + COMMAND_MAX)?;
        let (reply, reply_extents) = area(size_of::<ReplyHead>() + REPLY_MAX)?;
        let pieces = command_extents.len() + reply_extents.len();
        if pieces > usize::from(queue.size()) {
            return Err(Error::Protocol(format!(
                "a control queue of {} entries is too short for commands in {pieces} pieces",
                queue.size()
            )));
        }
        Ok(Control {
            queue,
            command,
            command_extents,
            reply,
            reply_extents,
            cookie: 0,
            abandoned: false,
        })
    }

    /// Writes a command and makes it available. Returns whether the device wants a notification.
    fn send(&mut self, opcode: Opcode, body: &[u8], list: &[u8], room: usize) -> Result<bool, Error> {
        let len = body.len() + list.len();
        let (Ok(body_len), true) = (u16::try_from(body.len()), len <= COMMAND_MAX) else {
            return Err(Error::Invalid(format!("a command of {len} bytes")));
        };
        self.cookie += 1;
        let head = CommandHead {
            opcode: opcode.number(),
            body_len,
            len: len as u32,
            cookie: self.cookie,
        };
        let head_len = size_of::<CommandHead>();
        self.command.write(0, head.as_bytes());
        self.command.write(head_len, body);
        self.command.write(head_len + body.len(), list);
        let room = size_of::<ReplyHead>() + room.clamp(REPLY_MIN, REPLY_MAX);
        let piece = |write| move |extent| Piece { extent, write };
        let command = part_of(&self.command_extents, 0, (head_len + len) as u64);
        let reply = part_of(&self.reply_extents, 0, room as u64);
        let pieces: Vec<Piece> = command
            .into_iter()
            .map(piece(false))
            .chain(reply.into_iter().map(piece(true)))
            .collect();
        self.queue.describe(0, &pieces);
        Ok(self.queue.offer(0))
    }

    /// The answer to what was sent.
    fn receive(&mut self, opcode: Opcode, used: Used) -> Result<Vec<u8>, Error> {
        let mut head = [0; size_of::<ReplyHead>()];
        self.reply.read(0, &mut head);
        let head = ReplyHead::read_from_bytes(&head).unwrap_or_default();
        let len = head.len as usize;
        if used.head != 0
            || head.cookie != self.cookie
            || used.len as usize != head_len_of(len)
            || len > REPLY_MAX
        {
            return Err(Error::Protocol(format!(
                "{opcode:?} was answered by {used:?}, {head:?}"
            )));
        }
        let mut body = vec![0; len];
        self.reply.read(size_of::<ReplyHead>(), &mut body);
        match CommandStatus::from_number(head.status) {
            Some(CommandStatus::Ok) => Ok(body),
            Some(status) => Err(Error::Command {
                command: opcode,
                status,
                text: String::from_utf8_lossy(&body).into_owned(),
            }),
            None => Err(Error::Protocol(format!(
                "{opcode:?} ended in a status {} that there is not",
                head.status
            ))),
        }
    }
}

fn head_len_of(len: usize) -> usize {
    size_of::<ReplyHead>().saturating_add(len)
}

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
        if epoch.is_some_and(|e| !self.is_alive(e)) || self.broken.load(SeqCst) || control.abandoned {
            return Err(self.dead());
        }
        if control.send(opcode, body, list, room)? {
            self.transport.notify(vnic_device::config::CONTROL_QUEUE);
        }
        for _ in 0..SPINS {
            if let Some(used) = control.queue.take() {
                return control.receive(opcode, used);
            }
            std::hint::spin_loop();
        }
        let mut last_chance = None;
        let asked = Instant::now();
        loop {
            let seen = *lock(&self.bell.0);
            if let Some(used) = control.queue.take() {
                return control.receive(opcode, used);
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

    /// A command with a body and without a list; the reply has a fixed form.
    pub fn call<B, R>(&self, epoch: u32, opcode: Opcode, body: &B) -> Result<R, Error>
    where
        B: IntoBytes + Immutable,
        R: FromBytes,
    {
        self.call_in(Some(epoch), opcode, body)
    }

    pub(super) fn call_in<B, R>(&self, epoch: Option<u32>, opcode: Opcode, body: &B) -> Result<R, Error>
    where
        B: IntoBytes + Immutable,
        R: FromBytes,
    {
        let reply = self.command(epoch, opcode, body.as_bytes(), &[], size_of::<R>())?;
        parse(opcode, &reply)
    }

    /// A command about an object, or one that ends it.
    pub fn object_command(&self, epoch: u32, opcode: Opcode, handle: u32) -> Result<(), Error> {
        self.call(epoch, opcode, &Object { handle, reserved: 0 })
    }

    /// Sends a command that makes an object, and returns the handle.
    pub fn make<B: IntoBytes + Immutable>(&self, epoch: u32, opcode: Opcode, body: &B) -> Result<u32, Error> {
        let object: Object = self.call(epoch, opcode, body)?;
        Ok(object.handle)
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
}

/// The beginning of a reply; later versions may have more.
pub(crate) fn parse<R: FromBytes>(opcode: Opcode, reply: &[u8]) -> Result<R, Error> {
    match R::read_from_prefix(reply) {
        Ok((body, _)) => Ok(body),
        Err(_) => Err(Error::Protocol(format!(
            "the reply to {opcode:?} has only {} bytes",
            reply.len()
        ))),
    }
}
