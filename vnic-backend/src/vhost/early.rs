//! SET_VRING_ENABLE before SET_FEATURES.
//!
//! QEMU (7.2 at least) enables rings when it realises the device, before it has acknowledged any feature. The
//! `vhost` crate ends the connection on that, because the message belongs to VHOST_USER_F_PROTOCOL_FEATURES. So
//! until that feature is acknowledged, this one message is taken off the socket here.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, recv};

/// VHOST_USER_SET_VRING_ENABLE.
const SET_VRING_ENABLE: u32 = 18;
/// Header: request, flags, size, each 32 bits; then the payload: index and value, 32 bits each.
const HEADER: usize = 12;
const MESSAGE: usize = 20;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Takes the next message off the socket if it is SET_VRING_ENABLE; answers ring index and value. Call when the
/// socket is readable.
pub fn take_vring_enable(stream: &mut UnixStream) -> io::Result<Option<(u32, bool)>> {
    let mut message = [0u8; MESSAGE];
    let (_, seen) = recv(&*stream, &mut message[..], RecvFlags::PEEK)?;
    let word = |b: &[u8; MESSAGE], at: usize| u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if seen < HEADER || word(&message, 0) != SET_VRING_ENABLE || word(&message, 8) != 8 {
        return Ok(None);
    }
    stream.read_exact(&mut message)?;
    if word(&message, 4) & NEED_REPLY != 0 {
        let mut reply = Vec::with_capacity(MESSAGE);
        for w in [SET_VRING_ENABLE, VERSION | REPLY, 8, 0, 0] {
            reply.extend_from_slice(&w.to_ne_bytes());
        }
        stream.write_all(&reply)?;
    }
    Ok(Some((word(&message, HEADER), word(&message, HEADER + 4) != 0)))
}
