//! Two kernels (network namespaces of threads) that talk through a NIC's switch.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use vnic_backend::{PortKind, PortSpec};
use vnic_tests::driver::packets::pattern;
use vnic_tests::driver::rig::{Copies, Rig};
use vnic_tests::driver::veth::{Veth, ip};

/// Bytes of a TCP stream each way.
const STREAM: usize = 3_000_000;
const STREAMS: usize = 6;
/// What never comes is a failure after this.
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 5000;

/// A thread in a namespace of its own.
struct Kernel {
    thread: JoinHandle<Result<()>>,
    /// Its number, by which a device is moved there.
    id: String,
    go: Sender<()>,
}

impl Kernel {
    fn start(work: impl FnOnce(&Receiver<()>) -> Result<()> + Send + 'static) -> Result<Kernel> {
        let ((go, wait), (tell, told)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            tell.send(gettid().to_string())?;
            work(&wait)
        });
        let id = told.recv_timeout(PATIENCE).context("no thread")?;
        Ok(Kernel { thread, id, go })
    }
}

/// Addresses of a device.
fn dress(end: &str, host: u8) -> Result<()> {
    ip(&["link", "set", end, "up"])?;
    ip(&["address", "add", &format!("10.0.0.{host}/24"), "dev", end])?;
    let v6 = format!("fd00::{host}/64");
    ip(&["address", "add", &v6, "dev", end, "nodad"])
}

fn serve(wait: &Receiver<()>, ready: &Sender<()>) -> Result<()> {
    wait.recv_timeout(PATIENCE)?;
    dress("end0", 1)?;
    let tcp = TcpListener::bind(("::", PORT))?;
    let udp = UdpSocket::bind(("::", PORT))?;
    udp.set_read_timeout(Some(PATIENCE))?;
    ready.send(())?;
    let mut buffer = vec![0; 2000];
    for _ in 0..2 * DATAGRAMS.len() {
        let (n, from) = udp.recv_from(&mut buffer).context("no datagram at the server")?;
        udp.send_to(&buffer[..n], from)?;
    }
    for _ in 0..2 * STREAMS {
        let (mut stream, _) = tcp.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).context("from the client")?;
        stream.write_all(&all)?;
    }
    Ok(())
}

/// Lengths, odd ones too.
const DATAGRAMS: [usize; 5] = [1, 18, 777, 1400, 1452];

fn ask(wait: &Receiver<()>) -> Result<()> {
    wait.recv_timeout(PATIENCE)?;
    dress("end1", 2)?;
    wait.recv_timeout(PATIENCE)?;
    for to in ["10.0.0.1", "fd00::1"] {
        let to: IpAddr = to.parse()?;
        let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
        let udp = UdpSocket::bind((any, 0))?;
        udp.set_read_timeout(Some(PATIENCE))?;
        for len in DATAGRAMS {
            let (sent, mut buffer) = (pattern(len), vec![0; 2000]);
            udp.send_to(&sent, (to, PORT))?;
            let n = udp
                .recv(&mut buffer)
                .with_context(|| format!("{len} bytes to {to}"))?;
            ensure!(buffer[..n] == sent, "{len} bytes to {to} are others");
        }
    }
    for to in ["10.0.0.1", "fd00::1"] {
        let to: IpAddr = to.parse()?;
        for _ in 0..STREAMS {
            let mut stream = TcpStream::connect((to, PORT)).with_context(|| format!("connecting to {to}"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let (sent, mut got) = (pattern(STREAM), Vec::new());
            stream.write_all(&sent)?;
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut got).context("from the server")?;
            ensure!(got == sent, "{} bytes to {to} are others", got.len());
        }
    }
    Ok(())
}

/// They talk, over devices with so many queues.
pub fn talk(queues: u8) -> Result<()> {
    if Veth::new(1500)?.is_none() {
        return Ok(());
    }
    let (ready, is_ready) = channel();
    let server = Kernel::start(move |wait| serve(wait, &ready))?;
    let client = Kernel::start(ask)?;
    let rig = Rig::new(1)?;
    let n = queues.to_string();
    for (i, kernel) in [&server, &client].into_iter().enumerate() {
        let (ours, theirs) = (format!("wire{i}"), format!("end{i}"));
        let counts = ["numtxqueues", &n, "numrxqueues", &n];
        let (mut add, mut peer) = (
            vec!["link", "add", &ours],
            vec!["type", "veth", "peer", "name", &theirs],
        );
        add.extend(counts);
        peer.extend(counts);
        ip(&[add, peer].concat())?;
        ip(&["link", "set", &theirs, "netns", &kernel.id])?;
        ip(&["link", "set", &ours, "up"])?;
        let status = rig.nic.add_port(PortSpec::new(
            format!("p{i}"),
            PortKind::new("xdp", ours).context("no such kind")?,
        ))?;
        let s = if queues == 1 { "" } else { "s" };
        assert_eq!(status.mode, format!("xdp copy, native, {queues} queue{s}"));
        kernel.go.send(())?;
    }
    // Without an answer the server has ended, and says why below.
    let _ = is_ready.recv_timeout(PATIENCE);
    let _ = client.go.send(());
    let mut problems = Vec::new();
    for kernel in [server, client] {
        match kernel.thread.join() {
            Ok(Err(error)) => problems.push(format!("{error:#}")),
            Ok(Ok(())) => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    rig.finish(Copies::Unknown)
}
