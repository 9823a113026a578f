//! Messages of frontends that the `vhost` crate refuses, or does not pass on.
//!
//! *SET_VRING_ENABLE before SET_FEATURES.*
//! QEMU (7.2 at least) enables rings when it realises the device, before it has acknowledged any feature. The `vhost` crate
//! then ends the connection, because the message belongs to VHOST_USER_F_PROTOCOL_FEATURES. So this module takes this message
//! off the socket until that feature is acknowledged.
//!
//! *SEND_RARP.* The `vhost` crate does not know this message, by which a VMM asks for the announcement of a moved guest's address.
//!
//! *SET_BACKEND_REQ_FD.* The `vhost` crate keeps the channel to itself, and sends no news of the configuration space by it.
//!
//! *SET_MEM_TABLE that is longer than its regions.* User-Mode-Linux (6.1 at least) always sends room for two regions. The
//! `vhost` crate requires the exact length, so this module takes longer messages off the socket.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vnic_wire::MacAddr;

/// Request number of VHOST_USER_SET_MEM_TABLE.
const SET_MEM_TABLE: u32 = 5;
/// Payload of VHOST_USER_SET_MEM_TABLE: number of regions and padding, 32 bits each; then the regions, four 64-bit words
/// each.
const TABLE_HEAD: usize = 8;
const REGION: usize = 32;
/// Largest number of regions in a message (vhost-user, "Memory regions description").
const TABLE_MAX: usize = 8;
/// Request number of VHOST_USER_SET_VRING_ENABLE.
const SET_VRING_ENABLE: u32 = 18;
/// Request number of VHOST_USER_SEND_RARP.
const SEND_RARP: u32 = 19;
/// Request number of VHOST_USER_SET_BACKEND_REQ_FD.
const SET_BACKEND_REQ_FD: u32 = 21;
/// Request number of VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, by the channel of SET_BACKEND_REQ_FD.
const CONFIG_CHANGE: u32 = 2;
/// Lengths. Header: request, flags, size, 32 bits each. Message: header and payload of index and value, 32 bits each.
const HEADER: usize = 12;
const MESSAGE: usize = 20;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Takes the next message off the socket if it is SET_VRING_ENABLE. Returns ring index and value. Called when the socket is
/// readable.
pub fn take_vring_enable(stream: &mut UnixStream) -> io::Result<Option<(u32, bool)>> {
    let taken = take_short(stream, SET_VRING_ENABLE)?;
    Ok(taken.map(|[a, b, c, d, enable @ ..]| (u32::from_ne_bytes([a, b, c, d]), enable != [0; 4])))
}

/// Takes the next message off the socket if it is SEND_RARP. Returns the address. Called when the socket is readable.
pub fn take_send_rarp(stream: &mut UnixStream) -> io::Result<Option<MacAddr>> {
    let taken = take_short(stream, SEND_RARP)?;
    Ok(taken.map(|[a, b, c, d, e, f, ..]| MacAddr([a, b, c, d, e, f])))
}

/// Takes the next message off the socket if it is this request with a payload of 64 bits, which is returned.
fn take_short(stream: &mut UnixStream, request: u32) -> io::Result<Option<[u8; MESSAGE - HEADER]>> {
    let mut message = [0u8; MESSAGE];
    let (_, seen) = recv(&*stream, &mut message[..], RecvFlags::PEEK)?;
    let word = |b: &[u8; MESSAGE], at: usize| u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if seen < HEADER || word(&message, 0) != request || word(&message, 8) != 8 {
        return Ok(None);
    }
    stream.read_exact(&mut message)?;
    if word(&message, 4) & NEED_REPLY != 0 {
        reply(stream, request, true)?;
    }
    let mut payload = [0; MESSAGE - HEADER];
    payload.copy_from_slice(&message[HEADER..]);
    Ok(Some(payload))
}

/// A memory table, and whether it needs a reply ([`answer_mem_table`]).
pub struct MemTable {
    /// The regions.
    pub regions: Vec<VhostUserMemoryRegion>,
    /// Descriptors of the regions.
    pub files: Vec<File>,
    /// Whether the VMM needs a reply.
    pub need_reply: bool,
}

/// Takes the next message off the socket if it is SET_MEM_TABLE with more room than regions. Called when the socket is
/// readable.
pub fn take_long_mem_table(stream: &UnixStream) -> io::Result<Option<MemTable>> {
    let mut head = [0u8; HEADER + TABLE_HEAD];
    let (_, seen) = recv(stream, &mut head[..], RecvFlags::PEEK)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (size, count) = (word(8) as usize, word(HEADER) as usize);
    if seen < head.len()
        || word(0) != SET_MEM_TABLE
        || !(1..=TABLE_MAX).contains(&count)
        || size <= TABLE_HEAD + count * REGION
        || size > TABLE_HEAD + TABLE_MAX * REGION
    {
        return Ok(None);
    }
    let mut message = [0u8; HEADER + TABLE_HEAD + TABLE_MAX * REGION];
    let message = &mut message[..HEADER + size];
    let files = take(stream, message)?;
    let regions = message[HEADER + TABLE_HEAD..]
        .chunks_exact(REGION)
        .take(count)
        .map(|region| {
            let mut words = region
                .chunks_exact(8)
                .map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
            let mut next = || words.next().unwrap_or(0);
            VhostUserMemoryRegion {
                guest_phys_addr: next(),
                memory_size: next(),
                user_addr: next(),
                mmap_offset: next(),
            }
        })
        .collect();
    Ok(Some(MemTable {
        regions,
        files,
        need_reply: word(4) & NEED_REPLY != 0,
    }))
}

/// Takes the next message off the socket if it is SET_BACKEND_REQ_FD. Returns the channel. Called when the socket is readable.
pub fn take_backend_channel(stream: &mut UnixStream) -> io::Result<Option<UnixStream>> {
    let mut head = [0u8; HEADER];
    let (_, seen) = recv(&*stream, &mut head[..], RecvFlags::PEEK)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if seen < HEADER || word(0) != SET_BACKEND_REQ_FD || word(8) != 0 {
        return Ok(None);
    }
    let mut taken = [0u8; HEADER];
    let mut files = take(stream, &mut taken)?.into_iter();
    let channel = files.next().map(|file| UnixStream::from(OwnedFd::from(file)));
    if word(4) & NEED_REPLY != 0 {
        reply(stream, SET_BACKEND_REQ_FD, channel.is_some())?;
    }
    channel.ok_or(io::ErrorKind::InvalidData.into()).map(Some)
}

/// Tells a VMM, by its channel, that the configuration space has changed. A VMM that reads no news misses it.
pub fn tell_config_change(channel: &UnixStream) -> io::Result<()> {
    let words = [CONFIG_CHANGE, VERSION, 0].map(u32::to_ne_bytes);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    send(channel, words.as_flattened(), flags)
        .map(|_| ())
        .map_err(Into::into)
}

/// Takes a whole message off the socket, and its descriptors.
fn take(stream: &UnixStream, message: &mut [u8]) -> io::Result<Vec<File>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TABLE_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let wanted = message.len();
    let taken = recvmsg(
        stream,
        &mut [IoSliceMut::new(message)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    )?;
    if taken.bytes < wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut files = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            files.extend(rights.map(File::from));
        }
    }
    Ok(files)
}

/// Sends the reply to a memory table with [`MemTable::need_reply`].
pub fn answer_mem_table(stream: &mut UnixStream, good: bool) -> io::Result<()> {
    reply(stream, SET_MEM_TABLE, good)
}

/// Sends the reply to a request: a 64-bit word, 0 if all is good.
fn reply(stream: &mut UnixStream, request: u32, good: bool) -> io::Result<()> {
    let words = [request, VERSION | REPLY, 8, u32::from(!good), 0];
    stream.write_all(words.map(u32::to_ne_bytes).as_flattened())
}
