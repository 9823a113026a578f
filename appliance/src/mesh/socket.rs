//! UDP socket of a mesh.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Greatest UDP payload in IPv4: 65,535 bytes less its header and that of UDP (RFC 768 and 791).
const SEND_MAX: usize = 65_507;

/// A UDP socket that bounds the batches of a sender. The kernel takes several datagrams of the same length in one send, and
/// cuts them (GSO), but as a whole they must not be longer than one datagram may be. It refuses a longer batch with the error
/// that a probe of the path MTU expects, and so nobody hears that the batch is lost.
#[derive(Debug)]
pub struct Bounded {
    socket: Arc<dyn AsyncUdpSocket>,
    segments: usize,
}

impl Bounded {
    /// Bounds the batches of a socket whose datagrams have at most `payload` bytes.
    pub fn new(socket: Arc<dyn AsyncUdpSocket>, payload: u16) -> Bounded {
        Bounded {
            socket,
            segments: segments(payload),
        }
    }
}

/// Greatest number of datagrams of at most this many bytes in one send.
fn segments(payload: u16) -> usize {
    (SEND_MAX / usize::from(payload).max(1)).max(1)
}

impl AsyncUdpSocket for Bounded {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments().min(self.segments)
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_no_longer_than_a_send() {
        for payload in 1..=u16::MAX {
            let bytes = segments(payload) * usize::from(payload);
            assert!(bytes <= SEND_MAX || segments(payload) == 1, "{payload}");
        }
        assert_eq!((segments(9088), segments(1588)), (7, 41));
    }
}
