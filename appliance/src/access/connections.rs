//! Connections: accepted, counted, and given a name and a role before the first request.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::{Access, Peer, Tell, Tls, people};
use crate::events::ControlEvent;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that wait for the server.
const WAITING: usize = 16;

/// How many connections there may be. As many again are accepted to say why they are refused; those beyond are closed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In total.
    pub total: usize,
    /// From one user, or from one address.
    pub peer: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            total: 1024,
            peer: 64,
        }
    }
}

/// Counts connections.
#[derive(Debug, Default)]
pub struct Places {
    limits: Limits,
    taken: Mutex<HashMap<String, usize>>,
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    peer: String,
}

impl Places {
    /// None is taken.
    pub fn new(limits: Limits) -> Arc<Places> {
        Arc::new(Places {
            limits,
            taken: Mutex::default(),
        })
    }

    /// A place, and the limit that it is beyond; `None`: there is no place at all.
    fn take(self: &Arc<Places>, peer: &str) -> Option<(Place, Option<String>)> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = taken.values().sum();
        let own = taken.get(peer).copied().unwrap_or(0);
        if total >= 2 * self.limits.total || own >= 2 * self.limits.peer {
            return None;
        }
        let over = if own >= self.limits.peer {
            Some(format!("{} connections from {peer}", self.limits.peer))
        } else if total >= self.limits.total {
            Some(format!("{} connections in total", self.limits.total))
        } else {
            None
        };
        taken.insert(peer.to_owned(), own + 1);
        let place = Place {
            places: self.clone(),
            peer: peer.to_owned(),
        };
        Some((place, over))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = taken.get_mut(&self.peer) {
            *n -= 1;
            if *n == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

/// A connection whose other end is known.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    peer: Arc<Peer>,
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

/// Accepts connections to the Unix socket until nobody takes them.
pub fn unix(listener: UnixListener, access: Access, places: Arc<Places>) -> Incoming<UnixStream> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let own = rustix::process::geteuid().as_raw();
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
            let Some((place, over)) = places.take(&format!("uid {}", cred.uid())) else {
                continue;
            };
            let name = people::user_name(cred.uid());
            let groups = people::groups_of(name.as_deref(), cred.gid());
            let who = match &name {
                Some(name) => format!("uid {} ({name})", cred.uid()),
                None => format!("uid {}", cred.uid()),
            };
            let role = access.of_user(cred.uid(), own, &groups);
            let connection = Connection {
                stream,
                peer: Arc::new(Peer { who, role, over }),
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
    access: Access,
    places: Arc<Places>,
    tell: Tell,
) -> Incoming<TlsStream<TcpStream>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let access = Arc::new(access);
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
            let Some((place, over)) = places.take(&address.to_string()) else {
                continue;
            };
            // Without it small answers wait; that it cannot be set harms nobody.
            let _ = stream.set_nodelay(true);
            let (tls, access, tell, sender) = (tls.clone(), access.clone(), tell.clone(), sender.clone());
            // A handshake that takes long holds up only itself.
            tokio::spawn(async move {
                let shaken = tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(stream)).await;
                let problem = match shaken {
                    Ok(Ok(stream)) => match tls.names_of(&stream) {
                        Ok(names) => {
                            let role = access.of_certificate(&names);
                            let shown = names.first().map_or("", String::as_str);
                            let who = format!("certificate {shown:?} from {address}");
                            let connection = Connection {
                                stream,
                                peer: Arc::new(Peer { who, role, over }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_each_and_for_all_and_come_back() {
        let places = Places::new(Limits { total: 5, peer: 2 });
        let take = |peer: &str| places.take(peer);
        let mut held: Vec<_> = (0..2).map(|_| take("a").expect("a place")).collect();
        assert!(held.iter().all(|(_, over)| over.is_none()));
        for _ in 0..2 {
            let (place, over) = take("a").expect("a place");
            assert_eq!(over.as_deref(), Some("2 connections from a"));
            held.push((place, over));
        }
        assert!(take("a").is_none());
        held.push(take("b").expect("a place"));
        let (_place, over) = take("c").expect("a place");
        assert_eq!(over.as_deref(), Some("5 connections in total"));
        held.truncate(1);
        assert_eq!(take("a").expect("a place").1, None);
        drop(held);
        drop(_place);
        assert!(places.taken.lock().expect("places").is_empty());
    }
}
