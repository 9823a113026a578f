//! Between a guest's machine and testpmd's vhost port: passes every message of vhost-user on, but offers fewer features.
//!
//! testpmd offers a control queue that it never serves: QEMU would serve it, User-Mode-Linux passes it on to its guest,
//! which waits there for ever. And it offers packed rings, whose first lap User-Mode-Linux does not announce
//! (SET_VRING_BASE with 0 instead of 0x8000), so that nothing is ever found in them. Rings and signals do not pass here.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Bytes before a message's payload: request, flags, size.
const HEADER: usize = 12;
/// No message has more payload, or more file descriptors.
const PAYLOAD_MAX: usize = 4096;
const FDS_MAX: usize = 16;
/// The request to which a device answers with what it offers.
const GET_FEATURES: u32 = 1;
/// VIRTIO_NET_F_CTRL_VQ and what a driver accepts only with it (bits 17 to 23), VIRTIO_F_RING_PACKED.
const KEPT_BACK: u64 = 0x7f << 17 | 1 << 34;

/// Takes one guest at `listen`, and passes it on to `device`, until either hangs up.
pub fn start(listen: &Path, device: &Path) -> Result<()> {
    let listener =
        UnixListener::bind(listen).with_context(|| format!("listening at {}", listen.display()))?;
    let device = device.to_owned();
    std::thread::spawn(move || {
        // Whoever waits for the guest says that it does not come up.
        let ends = listener
            .accept()
            .and_then(|(guest, _)| Ok((guest, UnixStream::connect(device)?)));
        if let Ok((guest, device)) = ends {
            std::thread::scope(|s| {
                s.spawn(|| pass_all(&guest, &device, false));
                pass_all(&device, &guest, true);
            });
        }
    });
    Ok(())
}

fn pass_all(from: &UnixStream, to: &UnixStream, answers: bool) {
    while let Ok(true) = pass(from, to, answers) {}
    for end in [from, to] {
        // It may be gone already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Passes a message on; false at the end.
fn pass(from: &UnixStream, to: &UnixStream, answers: bool) -> Result<bool> {
    let Some((mut message, fds)) = receive(from)? else {
        return Ok(false);
    };
    if answers {
        offer_less(&mut message);
    }
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(
        fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)),
        "too many file descriptors"
    );
    let sent = sendmsg(to, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
    ensure!(sent == message.len(), "only a part of a message was taken");
    Ok(true)
}

/// A whole message and its file descriptors.
fn receive(from: &UnixStream) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let (mut message, mut fds, mut at) = (vec![0; HEADER], Vec::new(), 0);
    while at < message.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut rest = [IoSliceMut::new(&mut message[at..])];
        let got = recvmsg(from, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if got == 0 {
            return Ok(None);
        }
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = item {
                fds.extend(rights);
            }
        }
        at += got;
        if at == HEADER {
            let payload = u32::from_ne_bytes([message[8], message[9], message[10], message[11]]) as usize;
            ensure!(payload <= PAYLOAD_MAX, "a payload of {payload} bytes");
            message.resize(HEADER + payload, 0);
        }
    }
    Ok(Some((message, fds)))
}

/// Takes what is kept back out of an answer to GET_FEATURES.
fn offer_less(message: &mut [u8]) {
    if message[..4] != GET_FEATURES.to_ne_bytes() {
        return;
    }
    if let Some(features) = message[HEADER..].first_chunk_mut::<8>() {
        *features = (u64::from_ne_bytes(*features) & !KEPT_BACK).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn message(request: u32, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).expect("short");
        let words = [request, 1, size].map(u32::to_ne_bytes);
        [words.as_flattened(), payload].concat()
    }

    #[test]
    fn only_the_answer_about_features_is_changed() {
        let offered = u64::MAX.to_ne_bytes();
        let dir = tempfile::tempdir().expect("a directory");
        let (listen, device) = (dir.path().join("guest"), dir.path().join("device"));
        let listener = UnixListener::bind(&device).expect("a socket");
        start(&listen, &device).expect("a relay");
        let mut guest = UnixStream::connect(&listen).expect("a guest");
        let (mut device, _) = listener.accept().expect("passed on");
        let take = |from: &mut UnixStream, len: usize| {
            let mut bytes = vec![0; len];
            from.read_exact(&mut bytes).expect("a message");
            bytes
        };
        for (request, payload, expected) in [
            (GET_FEATURES, offered, (!KEPT_BACK).to_ne_bytes()),
            (15, offered, offered),
        ] {
            let question = message(request, &offered);
            guest.write_all(&question).expect("a question");
            assert_eq!(take(&mut device, question.len()), question);
            device.write_all(&message(request, &payload)).expect("an answer");
            assert_eq!(take(&mut guest, question.len()), message(request, &expected));
        }
        drop(device);
        assert_eq!(guest.read(&mut [0; 1]).expect("an end"), 0);
    }
}
