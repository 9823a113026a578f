//! Another kernel: a network namespace of its own, in which a thread does what it is told.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use crossbeam_channel::{Sender, bounded, unbounded};
use nix::sched::{CloneFlags, unshare};

use super::rig::PATIENCE;
use super::veth::ip;

type Job = Box<dyn FnOnce() + Send>;

/// See the module. The namespace is gone with it.
pub struct Host {
    jobs: Sender<Job>,
    thread: i32,
}

impl Host {
    /// A namespace without devices but its own loopback, without IPv6.
    pub fn new() -> Result<Host> {
        let (jobs, todo) = unbounded::<Job>();
        let (tell, told) = bounded(1);
        std::thread::Builder::new().name("host".into()).spawn(move || {
            let ready = unshare(CloneFlags::CLONE_NEWNET)
                .context("a network namespace")
                .and_then(|()| ip(&["link", "set", "lo", "up"]))
                .map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            // Frames of its own would disturb.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let _ = tell.send(ready);
            for job in todo {
                job();
            }
        })?;
        let thread = told.recv()??;
        Ok(Host { jobs, thread })
    }

    /// Moves a device of the caller's namespace here.
    pub fn take(&self, device: &str) -> Result<()> {
        ip(&["link", "set", device, "netns", &self.thread.to_string()])
    }

    /// Does something there, and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (tell, told) = bounded(1);
        self.jobs
            .send(Box::new(move || drop(tell.send(job()))))
            .map_err(|_| anyhow!("the host's thread has ended"))?;
        told.recv()?
    }

    /// `ip` there.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        self.run(move || {
            let arguments: Vec<&str> = arguments.iter().map(|a| &a[..]).collect();
            ip(&arguments)
        })
    }
}

/// `ping` from this thread's namespace: so many, all answered. (One by one: of several, `ping` waits for the last ones no longer
/// than twice as long as the others took.)
pub fn ping(address: &str, count: u32, size: u32) -> Result<()> {
    for number in 1..=count {
        let output = Command::new("ping")
            .args(["-n", "-M", "do", "-c", "1", "-W", "30"])
            .args(["-s", &size.to_string(), address])
            .output()
            .context("starting ping")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            text.contains(" 1 received") && text.contains(" 0% packet loss"),
            "ping {address}, {number} of {count}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// What goes over a connection: bytes that differ from place to place, and by `salt`.
fn content(salt: u8, from: usize, bytes: &mut [u8]) {
    for (i, byte) in (from..).zip(bytes) {
        *byte = salt.wrapping_add((i ^ (i >> 8) ^ (i >> 16)) as u8);
    }
}

/// Both ways at once: this end sends `len` bytes of its `salt`, and expects as many of the other's.
fn exchange(stream: TcpStream, salt: u8, other: u8, len: usize) -> Result<()> {
    use std::io::{Read, Write};
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut to = stream.try_clone()?;
    let sender = std::thread::spawn(move || -> Result<()> {
        let mut bytes = vec![0; 1 << 16];
        for from in (0..len).step_by(bytes.len()) {
            let n = bytes.len().min(len - from);
            content(salt, from, &mut bytes[..n]);
            to.write_all(&bytes[..n]).context("sending")?;
        }
        to.shutdown(std::net::Shutdown::Write)?;
        Ok(())
    });
    let (mut stream, mut at) = (stream, 0);
    let (mut got, mut want) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = stream
            .read(&mut got)
            .with_context(|| format!("receiving, after {at} bytes"))?;
        if n == 0 {
            break;
        }
        content(other, at, &mut want[..n]);
        ensure!(got[..n] == want[..n], "other bytes within {n} after {at}");
        at += n;
    }
    ensure!(at == len, "{at} bytes of {len}");
    sender.join().map_err(|_| anyhow!("the sender panicked"))?
}

/// A server in this thread's namespace that exchanges so many bytes with each of so many clients.
pub struct Server(Vec<JoinHandle<Result<()>>>);

impl Server {
    /// Listens, and answers when it does; then serves on threads of its own.
    pub fn start(address: &str, clients: usize, len: usize) -> Result<(Server, u16)> {
        let listener = TcpListener::bind((address, 0))?;
        let port = listener.local_addr()?.port();
        let all = (0..clients).map(|_| {
            let listener = listener.try_clone()?;
            Ok(std::thread::spawn(move || {
                let (stream, _) = listener.accept()?;
                exchange(stream, 1, 101, len)
            }))
        });
        Ok((Server(all.collect::<Result<_>>()?), port))
    }

    /// Waits until all clients are served.
    pub fn finish(self) -> Result<()> {
        for thread in self.0 {
            thread
                .join()
                .map_err(|_| anyhow!("the server panicked"))?
                .context("server")?;
        }
        Ok(())
    }
}

/// Clients of a [`Server`], at once, in this thread's namespace.
pub fn clients(address: &str, port: u16, clients: usize, len: usize) -> Result<()> {
    let all: Vec<_> = (0..clients)
        .map(|_| {
            let address = (address.to_owned(), port);
            std::thread::spawn(move || exchange(TcpStream::connect(address)?, 101, 1, len))
        })
        .collect();
    for thread in all {
        thread
            .join()
            .map_err(|_| anyhow!("a client panicked"))?
            .context("client")?;
    }
    Ok(())
}
