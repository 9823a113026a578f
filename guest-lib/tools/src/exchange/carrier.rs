//! Carriers of lines.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{LINE_MAX, shorten};
use crate::failure::{Failure, Result};

/// Time that a client tries to reach a server that does not listen yet.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// A carrier of lines.
pub enum Carrier {
    /// Over TCP.
    Tcp(TcpStream, Lines),
    /// Over standard input and output.
    Stdio(Lines),
    /// To another thread.
    Local(Sender<String>, Receiver<String>),
}

impl Carrier {
    /// Waits for one client. `waiting` is called with the port once it listens.
    pub fn listen(port: u16, waiting: impl FnOnce(u16)) -> Result<Carrier> {
        // A socket of IPv6 takes IPv4, too; a machine may have no IPv6.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|e| match e.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(e),
                _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            })
            .map_err(Failure::os(format!(
                "cannot listen on TCP port {port} (another port: -p)"
            )))?;
        let port = listener.local_addr().map_err(Failure::os("the own port"))?.port();
        waiting(port);
        let (stream, _) = listener.accept().map_err(Failure::os("waiting for a client"))?;
        Carrier::tcp(stream)
    }

    /// Connects to a server.
    pub fn connect(host: &str, port: u16) -> Result<Carrier> {
        let end = Instant::now() + CONNECT_PATIENCE;
        let addresses: Vec<_> = (host, port)
            .to_socket_addrs()
            .map_err(Failure::os(format!("cannot find {host}")))?
            .collect();
        loop {
            match TcpStream::connect(&addresses[..]) {
                Ok(stream) => return Carrier::tcp(stream),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(e) => {
                    let what = format!("cannot reach the server at {host}, TCP port {port} (start it first)");
                    return Err(Failure::Os(what, e));
                }
            }
        }
    }

    fn tcp(stream: TcpStream) -> Result<Carrier> {
        stream.set_nodelay(true).map_err(Failure::os("TCP_NODELAY"))?;
        stream
            .set_write_timeout(Some(super::PATIENCE))
            .map_err(Failure::os("SO_SNDTIMEO"))?;
        // A machine that is switched off says nothing: after half a minute it counts as gone.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)
            .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepcnt(&stream, 4))
            .map_err(|e| Failure::Os("SO_KEEPALIVE".into(), e.into()))?;
        Ok(Carrier::Tcp(stream, Lines::default()))
    }

    /// The carrier of standard input and output.
    pub fn stdio() -> Carrier {
        Carrier::Stdio(Lines::default())
    }

    /// Two carriers that are joined.
    pub fn pair() -> [Carrier; 2] {
        let (to_b, from_a) = channel();
        let (to_a, from_b) = channel();
        [Carrier::Local(to_b, from_b), Carrier::Local(to_a, from_a)]
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) -> Result {
        match self {
            Carrier::Tcp(stream, _) => stream
                .write_all(format!("{line}\n").as_bytes())
                .map_err(Failure::os("the peer closed the connection")),
            Carrier::Stdio(_) => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{line}")
                    .and_then(|()| out.flush())
                    .map_err(Failure::os("standard output"))
            }
            Carrier::Local(sender, _) => sender
                .send(line.to_owned())
                .map_err(|_| Failure::Peer("the other end has ended".into())),
        }
    }

    /// Reads the next line, without its newline; `None` if none came within the time.
    pub fn receive(&mut self, patience: Option<Duration>) -> Result<Option<String>> {
        match self {
            Carrier::Tcp(stream, lines) => lines.next(
                patience,
                &*stream,
                |buffer| (&*stream).read(buffer),
                "the peer closed the connection",
            ),
            Carrier::Stdio(lines) => lines.next(
                patience,
                rustix::stdio::stdin(),
                |buffer| Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?),
                "standard input ended before the peer's line came",
            ),
            Carrier::Local(_, receiver) => {
                let line = match patience {
                    Some(patience) => receiver.recv_timeout(patience),
                    None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match line {
                    Ok(line) => Ok(Some(line)),
                    Err(RecvTimeoutError::Timeout) => Ok(None),
                    Err(RecvTimeoutError::Disconnected) => {
                        Err(Failure::Peer("the other end has ended".into()))
                    }
                }
            }
        }
    }
}

/// Lines of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: VecDeque<u8>,
}

impl Lines {
    fn next(
        &mut self,
        patience: Option<Duration>,
        from: impl AsFd,
        mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
        ended: &str,
    ) -> Result<Option<String>> {
        let end = patience.map(|p| Instant::now() + p);
        loop {
            if let Some(line) = self.take()? {
                return Ok(Some(line));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| {
                Timespec::try_from(left).unwrap_or(Timespec {
                    tv_sec: 60,
                    tv_nsec: 0,
                })
            });
            match poll(&mut [PollFd::new(&from, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::Os("waiting for the peer".into(), e.into())),
            }
            let mut piece = [0; 4096];
            // Readable, or at its end: this does not wait.
            match read(&mut piece) {
                Ok(0) => return Err(Failure::Peer(ended.to_owned())),
                Ok(n) => self.buffer.extend(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure::Os(ended.to_owned(), e)),
            }
        }
    }

    /// Takes a whole line that has arrived.
    fn take(&mut self) -> Result<Option<String>> {
        let Some(at) = self.buffer.iter().position(|b| *b == b'\n') else {
            if self.buffer.len() > LINE_MAX {
                return Err(Failure::Peer(format!(
                    "the peer's line is longer than {LINE_MAX} bytes: it is another program"
                )));
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.buffer.drain(..=at).collect();
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line.trim_end().to_owned())),
            Err(e) => Err(Failure::Peer(format!(
                "the peer said `{}`: it is another program",
                shorten(&String::from_utf8_lossy(e.as_bytes()))
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (TcpStream, Carrier) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let (other, _) = listener.accept().expect("accepted");
        (stream, Carrier::tcp(other).expect("a carrier"))
    }

    #[test]
    fn lines_arrive_in_pieces_and_together() {
        let (mut peer, mut carrier) = connected();
        peer.write_all(b"one\r\ntwo\nthr").expect("sent");
        let patience = Some(Duration::from_secs(60));
        assert_eq!(carrier.receive(patience).expect("a line").as_deref(), Some("one"));
        assert_eq!(carrier.receive(patience).expect("a line").as_deref(), Some("two"));
        assert_eq!(carrier.receive(Some(Duration::ZERO)).expect("no line"), None);
        peer.write_all(b"ee\n").expect("sent");
        assert_eq!(
            carrier.receive(patience).expect("a line").as_deref(),
            Some("three")
        );
        drop(peer);
        assert!(matches!(carrier.receive(None), Err(Failure::Peer(_))));
    }

    #[test]
    fn hostile_lines_are_refused() {
        let (mut peer, mut carrier) = connected();
        let writer = std::thread::spawn(move || {
            let _ = peer.write_all(&vec![b'x'; LINE_MAX + 8192]);
            peer
        });
        assert!(matches!(carrier.receive(None), Err(Failure::Peer(e)) if e.contains("longer")));
        drop(carrier);
        drop(writer.join());
        let (mut peer, mut carrier) = connected();
        peer.write_all(b"\xff\xfe\x16\n").expect("sent");
        assert!(matches!(carrier.receive(None), Err(Failure::Peer(e)) if e.contains("another program")));
    }

    #[test]
    fn two_ends_in_one_process() {
        let [mut a, mut b] = Carrier::pair();
        a.send("hello").expect("sent");
        assert_eq!(b.receive(None).expect("a line").as_deref(), Some("hello"));
        assert_eq!(b.receive(Some(Duration::ZERO)).expect("none"), None);
        drop(a);
        assert!(b.receive(None).is_err() && b.send("x").is_err());
    }
}
