//! The control queue: the form of commands and replies (`SPEC.md`, section 5).

use vnic_device::command::{CommandHead, Opcode, ReplyHead};
use vnic_device::ring::Extent;
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::virtqueue::{Piece, Queue, Used};
use crate::Error;
use crate::extents::part_of;
use crate::shared::Memory;
use crate::transport::Transport;

/// Bytes of body and list of a command that every device takes.
pub(crate) const COMMAND_MAX: usize = 65536;
/// Bytes of the longest reply.
pub(super) const REPLY_MAX: usize = 65536;
/// Bytes of a reply for which there is always room: bodies, and texts of errors.
const REPLY_MIN: usize = 512;

/// The control queue, and memory for one command and its reply.
pub(crate) struct Control {
    queue: Queue,
    command: Memory,
    command_extents: Vec<Extent>,
    reply: Memory,
    reply_extents: Vec<Extent>,
    cookie: u64,
    /// Whether a command was given up: the device may still have it.
    pub abandoned: bool,
}

impl Control {
    pub fn new(transport: &dyn Transport, queue: Queue) -> Result<Control, Error> {
        let (command, command_extents) = Memory::allocate(transport, size_of::<CommandHead>() + COMMAND_MAX)?;
        let (reply, reply_extents) = Memory::allocate(transport, size_of::<ReplyHead>() + REPLY_MAX)?;
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
    pub fn send(&mut self, opcode: Opcode, body: &[u8], list: &[u8], room: usize) -> Result<bool, Error> {
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

    /// The answer to what was sent; `None`: there is none yet.
    pub fn receive(&mut self, opcode: Opcode) -> Option<Result<Vec<u8>, Error>> {
        let used = self.queue.take()?;
        Some(self.read(opcode, used))
    }

    fn read(&self, opcode: Opcode, used: Used) -> Result<Vec<u8>, Error> {
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
