//! Connections: accepted, counted, and given a name and a role before the first request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::live::{Alive, Identity, Live};
use super::places::{Limits, Place, Places, group};
use super::{Peer, Role, Tls, people, tls};
use crate::events::{ControlEvent, Tell};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that wait for the server.
const WAITING: usize = 16;

/// Connections of one kind. As many again are accepted to say why they are refused; those beyond are closed.
const CONNECTIONS: Limits = Limits {
    total: 1024,
    peer: 64,
};
/// TLS handshakes under way: their other ends are not known.
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

    /// A place, and the limit that it is beyond; `None`: there is no place at all.
    fn enter(&self, peer: &str) -> Option<(Place, Option<String>)> {
        match self.places.take(peer) {
            Ok(place) => Some((place, None)),
            Err(limit) => Some((self.refused.take(peer).ok()?, Some(limit))),
        }
    }
}

/// A connection whose other end is known. It ends when what let it in does not hold any more.
pub struct Connection<S> {
    stream: S,
    peer: Arc<Peer>,
    alive: Alive,
    _place: Place,
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
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

/// Out of descriptors or the like: that may pass.
async fn accept_failed(error: &io::Error) {
    tracing::warn!("cannot accept a connection to the control interface: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Accepts connections to the Unix socket until nobody takes them. Administrators have places of their own: whatever others
/// hold, they get in.
pub fn unix(listener: UnixListener, live: Arc<Live>) -> Incoming<UnixStream> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (admins, others) = (Room::new(), Room::new());
    tokio::spawn(async move {
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
            // A peer that the kernel does not tell is nobody.
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
            let Some((place, over)) = room.enter(&format!("uid {}", cred.uid())) else {
                continue;
            };
            let who = match people::user_name(cred.uid()) {
                Some(name) => format!("uid {} ({name})", cred.uid()),
                None => format!("uid {}", cred.uid()),
            };
            let peer = Arc::new(Peer { who, role, over });
            let alive = live.enter(peer.clone(), identity);
            live.look_again(&alive, generation, None);
            let connection = Connection {
                stream,
                peer,
                alive,
                _place: place,
            };
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Accepts connections over TCP, each with TLS and a certificate of the client, until nobody takes them.
pub fn mutual_tls(
    listener: TcpListener,
    tls: Arc<Tls>,
    live: Arc<Live>,
    tell: Tell,
) -> Incoming<TlsStream<TcpStream>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (room, handshakes) = (Room::new(), Places::new("TLS handshakes", HANDSHAKES));
    tokio::spawn(async move {
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
            // Without it small answers wait; that it cannot be set harms nobody.
            let _ = stream.set_nodelay(true);
            let (tls, live, tell, sender) = (tls.clone(), live.clone(), tell.clone(), sender.clone());
            let room = room.clone();
            // A handshake that takes long holds up only itself.
            tokio::spawn(async move {
                let generation = live.generation();
                let shaken = tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(stream)).await;
                drop(shaking);
                let problem = match shaken {
                    Ok(Ok(stream)) => match tls::of_client(&stream) {
                        Ok((name, chain)) => {
                            let Some((place, over)) = room.enter(&peer) else {
                                return;
                            };
                            let identity = Identity::Certificates(chain);
                            let role = live.role(&identity);
                            let who = format!("certificate {name:?} from {address}");
                            let peer = Arc::new(Peer { who, role, over });
                            let alive = live.enter(peer.clone(), identity);
                            live.look_again(&alive, generation, Some(&tls));
                            let connection = Connection {
                                stream,
                                peer,
                                alive,
                                _place: place,
                            };
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
