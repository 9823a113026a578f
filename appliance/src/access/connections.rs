//! Connections of the control interface: accepted, counted, and identified before the first request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::authority::{Authority, PREFACE};
use super::live::{Alive, Identity, Live};
use super::places::{Limits, Place, Places, group};
use super::{Peer, Role, Tls, people, tls};
use crate::events::{ControlEvent, Tell};
use crate::panics;

/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for the connection preface of HTTP/2. Afterwards pings show whether the client is there.
const SPEAKS: Duration = Duration::from_secs(10);
/// Number of connections that wait for the server.
const WAITING: usize = 16;

/// Limits of connections of one kind. Beyond its limit, a peer's new connection takes the place of one that is idle. If
/// none is, as many again are accepted so that their requests can be refused with a cause; those beyond are closed.
const CONNECTIONS: Limits = Limits {
    total: 1024,
    peer: 64,
};
/// Limits of TLS handshakes, whose clients are not known yet.
const HANDSHAKES: Limits = Limits { total: 512, peer: 32 };

/// Places of connections of one kind.
#[derive(Clone)]
struct Room {
    places: Arc<Places>,
    refused: Arc<Places>,
}

impl Room {
    fn new() -> Room {
        let places = || Places::new("connections", CONNECTIONS);
        Room {
            places: places(),
            refused: places(),
        }
    }

    /// Takes a place, if need be that of an idle connection of the peer; returns it with the limit that the connection
    /// exceeds, if any. `None`: the connection is closed.
    fn enter(&self, peer: &str, live: &Live) -> Option<(Place, Option<String>)> {
        let take = |places: &Arc<Places>| match places.take(peer) {
            Err(limit) if live.make_room(places, peer, &limit) => places.take(peer),
            taken => taken,
        };
        match take(&self.places) {
            Ok(place) => Some((place, None)),
            Err(limit) => {
                let problem = format!("{limit} are allowed, and all of {peer} are in use");
                live.refused(peer.to_owned(), problem);
                Some((take(&self.refused).ok()?, Some(limit)))
            }
        }
    }
}

/// An identified connection. It ends when its certificate or role is no longer valid.
pub struct Connection<S> {
    stream: S,
    /// Bytes of a client of the Unix socket on their way to h2.
    inbound: Option<Inbound>,
    peer: Arc<Peer>,
    alive: Alive,
    /// Rest of the preface that the client has yet to send, and until when.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> Connection<S> {
    fn new(stream: S, inbound: Option<Inbound>, peer: Arc<Peer>, alive: Alive) -> Connection<S> {
        Connection {
            stream,
            inbound,
            peer,
            alive,
            silent: Some((PREFACE, Box::pin(tokio::time::sleep(SPEAKS)))),
        }
    }

    /// Returns an error if the client has not said for too long that it speaks HTTP/2; else the task is woken when it has not.
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some((_, until)) = &mut self.silent
            && until.as_mut().poll(cx).is_ready()
        {
            let problem = format!("it did not speak HTTP/2 within {} s", SPEAKS.as_secs());
            self.alive.end(problem);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Notes that bytes of the client came.
    fn heard(&mut self, bytes: usize) {
        if let Some((rest, _)) = &mut self.silent {
            *rest = rest.saturating_sub(bytes);
            if *rest == 0 {
                self.silent = None;
            }
        }
    }
}

/// Number of bytes that are read at a time.
const READ: usize = 4096;

/// Bytes of a client whose `:authority` may be the path of the socket.
struct Inbound {
    authority: Authority,
    /// Bytes for h2.
    ready: BytesMut,
}

impl Inbound {
    fn new() -> Inbound {
        Inbound {
            authority: Authority::new(),
            ready: BytesMut::new(),
        }
    }

    fn poll_read(
        &mut self,
        mut stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ready.is_empty() {
            let mut bytes = [0; READ];
            let mut bytes = ReadBuf::new(&mut bytes);
            ready!(stream.as_mut().poll_read(cx, &mut bytes))?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.authority.pass(bytes.filled(), &mut self.ready);
        }
        let now = self.ready.split_to(self.ready.len().min(buf.remaining()));
        buf.put_slice(&now);
        if self.ready.is_empty() {
            // An idle connection shall not hold memory.
            self.ready = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Arc<Peer>;

    fn connect_info(&self) -> Arc<Peer> {
        self.peer.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive.poll_over(cx)?;
        self.poll_silent(cx)?;
        let this = &mut *self;
        let stream = Pin::new(&mut this.stream);
        let before = buf.filled().len();
        let read = match &mut this.inbound {
            Some(inbound) => inbound.poll_read(stream, cx, buf),
            None => stream.poll_read(cx, buf),
        };
        this.heard(buf.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.alive.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.alive.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

type Incoming<S> = ReceiverStream<io::Result<Connection<S>>>;

/// Waits after an error of accept(2), such as a lack of descriptors, which may pass.
async fn accept_failed(error: &io::Error) {
    tracing::warn!("cannot accept a connection to the control interface: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Accepts connections to the Unix socket until the receiver is dropped. Administrators have their own places, which others cannot take.
pub fn unix(listener: UnixListener, live: Arc<Live>) -> Incoming<UnixStream> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (admins, others) = (Room::new(), Room::new());
    panics::spawn("grpc-unix", async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    accept_failed(&error).await;
                    continue;
                }
            };
            // A client without credentials of the kernel is closed.
            let Ok(cred) = stream.peer_cred() else { continue };
            let generation = live.generation();
            let identity = Identity::User {
                uid: cred.uid(),
                gid: cred.gid(),
            };
            let role = live.role(&identity);
            let room = if role == Some(Role::Admin) {
                &admins
            } else {
                &others
            };
            let who = match people::user_name(cred.uid()) {
                Some(name) => format!("uid {} ({name})", cred.uid()),
                None => format!("uid {}", cred.uid()),
            };
            let Some((place, over)) = room.enter(&who, &live) else {
                continue;
            };
            let peer = Arc::new(Peer::new(who, role, over));
            let alive = live.enter(peer.clone(), identity, place);
            live.look_again(&alive, generation, None);
            let connection = Connection::new(stream, Some(Inbound::new()), peer, alive);
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Accepts TCP connections with mutual TLS until the receiver is dropped.
pub fn mutual_tls(
    listener: TcpListener,
    tls: Arc<Tls>,
    live: Arc<Live>,
    tell: Tell,
) -> Incoming<TlsStream<TcpStream>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (room, handshakes) = (Room::new(), Places::new("TLS handshakes", HANDSHAKES));
    panics::spawn("grpc-tcp", async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    accept_failed(&error).await;
                    continue;
                }
            };
            let address = address.ip().to_canonical();
            let peer = group(address);
            let shaking = match handshakes.take(&peer) {
                Ok(place) => place,
                Err(limit) => {
                    tell(ControlEvent::ConnectionRefused {
                        by: address.to_string(),
                        problem: format!("{limit} are allowed at a time"),
                    });
                    continue;
                }
            };
            // Without TCP_NODELAY small responses are delayed; an error does no harm.
            let _ = stream.set_nodelay(true);
            let (tls, live, tell, sender) = (tls.clone(), live.clone(), tell.clone(), sender.clone());
            let room = room.clone();
            // Each handshake has its own task, so that a slow one delays no other.
            tokio::spawn(async move {
                let generation = live.generation();
                let shaken = tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(stream)).await;
                drop(shaking);
                let problem = match shaken {
                    Ok(Ok(stream)) => match tls::of_client(&stream) {
                        Ok((name, chain)) => {
                            let Some((place, over)) = room.enter(&peer, &live) else {
                                return;
                            };
                            let identity = Identity::Certificates(chain);
                            let role = live.role(&identity);
                            let who = format!("certificate {name:?} from {address}");
                            let peer = Arc::new(Peer::new(who, role, over));
                            let alive = live.enter(peer.clone(), identity, place);
                            live.look_again(&alive, generation, Some(&tls));
                            let connection = Connection::new(stream, None, peer, alive);
                            let _ = sender.send(Ok(connection)).await;
                            return;
                        }
                        Err(problem) => problem,
                    },
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no TLS handshake within {} s", HANDSHAKE.as_secs()),
                };
                tell(ControlEvent::ConnectionRefused {
                    by: address.to_string(),
                    problem,
                });
            });
        }
    });
    ReceiverStream::new(receiver)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::Access;
    use super::super::usage::InProgress;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_speaks_is_ended_and_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let events = told.clone();
        let tell: Tell = Arc::new(move |event| events.lock().expect("events").push(event));
        let live = Live::new(Access::default(), tell);
        let room = Room::new();
        for (spoken, on_unix) in [
            (0, true),
            (PREFACE - 1, false),
            (PREFACE - 1, true),
            (PREFACE, true),
        ] {
            let (mut client, server) = tokio::io::duplex(64);
            let (place, over) = room.enter("uid 7", &live).expect("a place");
            let peer = Arc::new(Peer::new("uid 7".to_owned(), None, over));
            let alive = live.enter(peer.clone(), Identity::User { uid: 7, gid: 7 }, place);
            let inbound = on_unix.then(Inbound::new);
            let mut connection = Connection::new(server, inbound, peer, alive);
            client.write_all(&[b'P'; PREFACE][..spoken]).await.expect("sent");
            let mut bytes = [0; PREFACE];
            connection.read_exact(&mut bytes[..spoken]).await.expect("read");
            // Virtual time: what waits longest is what is left.
            let read = tokio::time::timeout(2 * SPEAKS, connection.read(&mut bytes)).await;
            let told = std::mem::take(&mut *told.lock().expect("events"));
            if spoken == PREFACE {
                assert!(read.is_err() && told.is_empty(), "{told:?}");
            } else {
                let error = read.expect("an end").expect_err("silence");
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                let problem = "it did not speak HTTP/2 within 10 s".to_owned();
                let by = "uid 7".to_owned();
                assert_eq!(told, [ControlEvent::ConnectionEnded { by, problem }]);
            }
        }
    }

    #[test]
    fn a_peer_whose_connections_are_all_in_use_is_refused_with_a_reason_and_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let events = told.clone();
        let tell: Tell = Arc::new(move |event| events.lock().expect("events").push(event));
        let live = Live::new(Access::default(), tell);
        let room = Room::new();
        let (mut all, mut in_progress) = (Vec::new(), Vec::new());
        for n in 0..4 * CONNECTIONS.peer {
            let (place, over) = room.enter("uid 7", &live).expect("a place");
            assert_eq!(over.is_some(), n >= CONNECTIONS.peer, "{n}");
            let peer = Arc::new(Peer::new("uid 7".to_owned(), None, over));
            all.push(live.enter(peer.clone(), Identity::User { uid: 7, gid: 7 }, place));
            if n < CONNECTIONS.peer {
                in_progress.push(InProgress::begin(peer));
            }
        }
        let told = told.lock().expect("events");
        let problem = "64 connections from uid 7 are allowed, and all of uid 7 are in use".to_owned();
        let by = "uid 7".to_owned();
        assert!(
            told.contains(&ControlEvent::ConnectionRefused { by, problem }),
            "{told:?}"
        );
    }
}
