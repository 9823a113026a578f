//! Ports of type `mesh`: daemons in this process, joined over UDP on the loopback address. No rights are needed.

mod guest;
pub mod keys;
mod relay;

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::lab::Lab;
use guest::{Guest, frame};
use keys::{Authority, Keys};
use relay::Relay;
use serde_json::Value;
use vnic_backend::counters::Scope;
use vnic_control::v1;
use vnic_control::v1::port_service_client::PortServiceClient;

/// A daemon with a mesh port `m0`.
struct Daemon {
    lab: Lab,
    address: String,
}

impl Daemon {
    async fn start(keys: &Keys, peers: &[&str], more: &[&str]) -> Daemon {
        let lab = Lab::start(0).await;
        let address = add(&lab, "m0", keys, peers, more).await;
        Daemon { lab, address }
    }

    fn guest(&self, mac: u8) -> Guest {
        Guest::new(&self.lab, mac)
    }

    /// Waits until the port is like this.
    async fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        wait(&self.lab, "m0", what, done).await
    }

    async fn connected(&self, n: usize) -> Value {
        self.wait(&format!("{n} peers"), |p| connected(p) == n).await
    }

    async fn events(&self, kind: &str) -> String {
        self.lab.said(&["event", "list", "--kind", kind]).await
    }
}

/// Adds a mesh port; its address.
async fn add(lab: &Lab, name: &str, keys: &Keys, peers: &[&str], more: &[&str]) -> String {
    let mut arguments = vec!["-o", "json", "port", "add", name];
    if !more.contains(&"--mesh") {
        arguments.extend(["--mesh", "127.0.0.1:0"]);
    }
    arguments.extend(["--cert", &keys.certificate, "--key", &keys.key, "--ca", &keys.ca]);
    for peer in peers {
        arguments.extend(["--peer", peer]);
    }
    if !more.contains(&"--peer-name") {
        arguments.extend(["--peer-name", "*"]);
    }
    arguments.extend(more);
    let text = lab.said(&arguments).await;
    let port: Value = serde_json::from_str(&text).expect("JSON");
    port["mesh"]["address"].as_str().expect("an address").to_owned()
}

fn rows(port: &Value) -> &[Value] {
    port["mesh"]["connections"].as_array().map_or(&[], Vec::as_slice)
}

fn connected(port: &Value) -> usize {
    rows(port).iter().filter(|p| p["connected"] == true).count()
}

async fn wait(lab: &Lab, port: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3000 {
        let shown = lab.json(&["port", "show", port]).await;
        if done(&shown) {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = lab.said(&["event", "list"]).await;
    panic!("{what}: {}\n{log}", lab.json(&["port", "show", port]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_are_one_ethernet() {
    let ca = Authority::new("ours");
    let a = Daemon::start(&ca.keys("a.example.com"), &[], &["--mtu", "9000"]).await;
    let b = Daemon::start(&ca.keys("b.example.com"), &[&a.address], &["--mtu", "9000"]).await;
    let shown = a.connected(1).await;
    b.connected(1).await;
    assert_eq!(shown["up"], true);
    assert_eq!(
        shown["mesh"]["key"].as_str().map(|k| k.contains("BEGIN")),
        Some(false)
    );
    assert_eq!(rows(&shown)[0]["names"][0], "b.example.com");
    assert_eq!(rows(&shown)[0]["address"], Value::from(b.address.as_str()));

    let (mut x, mut y) = (a.guest(1), b.guest(2));
    // A flooded frame, its answer, and lengths around every border: with the first datagrams they travel in pieces.
    x.send(&frame(&x, [0xff; 6], 60, 0));
    y.expect(&frame(&x, [0xff; 6], 60, 0)).await;
    for (i, len) in [60, 1154, 1155, 1156, 1500, 1514, 4000, 9014]
        .into_iter()
        .enumerate()
    {
        let (to_y, to_x) = (frame(&x, y.mac, len, i as u8), frame(&y, x.mac, len, i as u8));
        x.send(&to_y);
        y.expect(&to_y).await;
        y.send(&to_x);
        x.expect(&to_x).await;
    }

    // Loopback carries datagrams of any length: the path is found to carry whole frames.
    let shown = a
        .wait("a wide path", |p| {
            rows(p)[0]["max_datagram"].as_u64().is_some_and(|n| n >= 9016)
        })
        .await;
    let peer = &rows(&shown)[0];
    assert!(
        peer["path_mtu"].as_u64() > peer["max_datagram"].as_u64(),
        "{peer}"
    );
    assert!(peer["rtt"].is_string() && peer["since"].is_string(), "{peer}");
    let to_y = frame(&x, y.mac, 9014, 99);
    x.send(&to_y);
    y.expect(&to_y).await;

    // Pause frames stay where they are.
    let mut pause = frame(&x, [1, 0x80, 0xc2, 0, 0, 1], 60, 0);
    pause[12..14].copy_from_slice(&[0x88, 0x08]);
    x.send(&pause);
    x.send(&to_y);
    y.expect(&to_y).await;
    y.expect_nothing();

    let text = a.lab.said(&["port", "show", "m0"]).await;
    for part in ["mesh 127.0.0.1:", "b.example.com", "refused calls  0", "PATH MTU"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = a.events("mesh_peer").await;
    assert!(
        text.contains("b.example.com at 127.0.0.1:") && text.contains("joined"),
        "{text}"
    );

    // It goes: the link is down, and says why.
    b.lab.said(&["port", "remove", "m0"]).await;
    let shown = a.connected(0).await;
    assert!(shown["up"] != true);
    assert_eq!(shown["problem"], "no peer is connected");
    let text = a.events("mesh_peer").await;
    assert!(
        text.contains("left: the other end closed it: the port is removed"),
        "{text}"
    );
}

/// Frames that fill a wide path leave in batches, which must not be longer than the kernel takes in one send.
#[tokio::test(flavor = "multi_thread")]
async fn bursts_over_a_wide_path_arrive() {
    /// More than a send takes, and less than the smallest buffer of a socket.
    const BURST: u8 = 16;
    let ca = Authority::new("ours");
    let a = Daemon::start(&ca.keys("a.example.com"), &[], &["--mtu", "9000"]).await;
    let b = Daemon::start(&ca.keys("b.example.com"), &[&a.address], &["--mtu", "9000"]).await;
    for daemon in [&a, &b] {
        daemon
            .wait("a wide path", |p| {
                rows(p).first().and_then(|row| row["max_datagram"].as_u64()) >= Some(9016)
            })
            .await;
    }
    let (mut x, mut y) = (a.guest(1), b.guest(2));
    for _ in 0..100 {
        let burst: Vec<_> = (0..BURST).map(|i| frame(&x, y.mac, 9014, i)).collect();
        x.send_all(&burst);
        for frame in &burst {
            y.expect(frame).await;
        }
    }
}

/// A counter of the mesh of a daemon.
fn lost(daemon: &Daemon, name: &str) -> u64 {
    let all = daemon.lab.daemon.control().nic.counters();
    let mesh = all
        .iter()
        .filter(|s| s.def.scope == Scope::Mesh && s.owner == "m0");
    mesh.filter(|s| s.def.name == name).map(|s| s.value).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_daemons_that_all_call_each_other() {
    let ca = Authority::new("ours");
    let mut all = Vec::new();
    // Each is told of all, also of itself and of one of them twice, by another name: the ports are found first.
    let sockets: Vec<UdpSocket> = (0..3)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
        .collect();
    let addresses: Vec<String> = sockets
        .iter()
        .map(|s| s.local_addr().expect("an address").to_string())
        .collect();
    drop(sockets);
    let again = addresses[0].replace("127.0.0.1", "127.1");
    for (i, address) in addresses.iter().enumerate() {
        let mut peers: Vec<&str> = addresses.iter().map(String::as_str).collect();
        if i == 2 {
            peers.push(&again);
        }
        let keys = ca.keys(&format!("n{i}.example.com"));
        all.push(Daemon::start(&keys, &peers, &["--mesh", address]).await);
    }
    for (i, daemon) in all.iter().enumerate() {
        let shown = daemon.connected(2).await;
        let shown = if rows(&shown).iter().any(|r| r["problem"] == Value::Null) {
            daemon
                .wait("itself is noticed", |p| {
                    rows(p).iter().any(|r| {
                        r["problem"]
                            .as_str()
                            .is_some_and(|t| t.contains("this daemon itself"))
                    })
                })
                .await
        } else {
            shown
        };
        let mut names: Vec<&str> = rows(&shown)
            .iter()
            .filter_map(|r| r["names"][0].as_str())
            .collect();
        names.sort_unstable();
        let own = format!("n{i}.example.com");
        assert_eq!(names.len(), 2, "{shown}");
        assert!(!names.contains(&own.as_str()) && names[0] != names[1], "{shown}");
    }
    all[2]
        .wait("the same one twice", |p| {
            rows(p).iter().any(|r| {
                r["problem"]
                    .as_str()
                    .is_some_and(|t| t.contains("is the same daemon as"))
            })
        })
        .await;

    let (mut x, mut y, mut z) = (all[0].guest(1), all[1].guest(2), all[2].guest(3));
    // To all, once: no loop, no copy.
    let everybody = frame(&x, [0xff; 6], 100, 1);
    x.send(&everybody);
    y.expect(&everybody).await;
    z.expect(&everybody).await;
    // To one whose address is known, and to nobody else.
    let answer = frame(&y, x.mac, 200, 2);
    y.send(&answer);
    x.expect(&answer).await;
    let single = frame(&x, y.mac, 300, 3);
    x.send(&single);
    y.expect(&single).await;
    let last = frame(&x, [0xff; 6], 100, 4);
    x.send(&last);
    y.expect(&last).await;
    z.expect(&last).await;
    for guest in [&mut x, &mut y, &mut z] {
        guest.expect_nothing();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_nothing() {
    let (ca, other) = (Authority::new("ours"), Authority::new("theirs"));
    let listed = ["--peer-name", "a.example.com", "--peer-name", "b.example.com"];
    let a = Daemon::start(&ca.keys("a.example.com"), &[], &listed).await;
    let b = Daemon::start(&ca.keys("b.example.com"), &[&a.address], &listed).await;
    a.connected(1).await;

    let refused = |daemon: &Daemon, n: u64, text: &'static str| {
        let address = daemon.address.clone();
        let a = &a;
        async move {
            a.wait("refused", |p| p["mesh"]["refused"].as_u64() >= Some(n))
                .await;
            let events = a.events("mesh_refused").await;
            assert!(
                events.contains(&address) && events.contains(text),
                "{text}: {events}"
            );
        }
    };
    // Another CA: each end refuses the other, whoever is first. Whom the stranger calls says nothing before.
    let stranger = Daemon::start(&other.keys("a.example.com"), &[&a.address], &[]).await;
    let shown = stranger
        .wait("a reason", |p| rows(p)[0]["problem"] != "not connected yet")
        .await;
    let why = rows(&shown)[0]["problem"].as_str().expect("a reason").to_owned();
    assert!(why.contains("CA") || why.contains("UnknownIssuer"), "{why}");
    refused(&stranger, 1, "CA").await;
    // Our CA, a name that is not listed.
    let unlisted = Daemon::start(&ca.keys("c.example.com"), &[&a.address], &[]).await;
    refused(&unlisted, 2, "it has c.example.com").await;
    unlisted
        .wait("a reason", |p| {
            rows(p)[0]["problem"]
                .as_str()
                .is_some_and(|t| t.contains("our certificate has none of its listed names"))
        })
        .await;

    // What the mesh carries meanwhile reaches neither.
    let (mut x, mut y) = (a.guest(1), b.guest(2));
    let (mut s, mut u) = (stranger.guest(3), unlisted.guest(4));
    for i in 0..100 {
        let everybody = frame(&x, [0xff; 6], 100, i);
        x.send(&everybody);
        y.expect(&everybody).await;
        s.send(&frame(&s, [0xff; 6], 100, i));
        u.send(&frame(&u, [0xff; 6], 100, i));
    }
    for guest in [&mut s, &mut u, &mut x, &mut y] {
        guest.expect_nothing();
    }
    for daemon in [&stranger, &unlisted] {
        let shown = daemon.connected(0).await;
        assert!(shown["up"] != true, "{shown}");
    }
    assert_eq!(a.connected(1).await["up"], true);
}

/// Whoever called: the certificate of one is revoked, then that of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_whose_certificate_is_revoked_is_none_any_more() {
    let ca = Authority::new("ours");
    let [x, y, z] = ["a.example.com", "b.example.com", "c.example.com"].map(|name| ca.keys(name));
    let list = ca.revoke(&[]);
    let a = Daemon::start(&x, &[], &["--crl", &list]).await;
    let b = Daemon::start(&y, &[&a.address], &[]).await;
    let c = Daemon::start(&z, &[], &[]).await;
    let d = Daemon::start(&x, &[&c.address], &["--crl", &list]).await;
    a.connected(1).await;
    d.connected(1).await;
    for daemon in [&a, &d] {
        daemon.lab.daemon.reload().await;
    }
    a.connected(1).await;
    d.connected(1).await;
    ca.revoke(&[&y, &z]);
    for (daemon, other) in [(&a, &b), (&d, &c)] {
        daemon.lab.daemon.reload().await;
        daemon.connected(0).await;
        other.connected(0).await;
        let events = daemon.events("mesh_refused").await;
        assert!(
            events.contains("example.com at 127.0.0.1") && events.contains("evoked"),
            "{events}"
        );
    }
    b.wait("a reason", |p| {
        let problem = rows(p)[0]["problem"].as_str();
        problem.is_some_and(|t| t.contains("revoked"))
    })
    .await;
    // And back.
    ca.revoke(&[&z]);
    a.lab.daemon.reload().await;
    a.connected(1).await;
    d.lab.daemon.reload().await;
    d.connected(0).await;
}

/// Whoever speaks QUIC but shows no certificate, or speaks another protocol inside.
#[tokio::test(flavor = "multi_thread")]
async fn callers_without_certificate_or_protocol_are_refused() {
    let ca = Authority::new("ours");
    let keys = ca.keys("a.example.com");
    let a = Daemon::start(&keys, &[], &[]).await;
    let address = a.address.parse().expect("an address");
    for (certificate, alpn, why) in [
        (false, "vnic-mesh/1", "certificate"),
        (true, "h3", "protocol"),
        (true, "vnic-mesh/2", "protocol"),
    ] {
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("an endpoint");
        endpoint.set_default_client_config(keys.client(certificate, alpn));
        let ours = endpoint.local_addr().expect("an address").to_string();
        // The caller may think that it is connected, until it hears the answer to its certificate. It hears nothing else.
        if let Ok(connection) = endpoint.connect(address, "a.example.com").expect("a call").await {
            assert!(connection.accept_uni().await.is_err());
        }
        for _ in 0..3000 {
            let text = a.events("mesh_refused").await;
            if text
                .lines()
                .any(|l| l.contains(&format!(":{}", port(&ours))) && l.contains(why))
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let text = a.events("mesh_refused").await;
        assert!(
            text.lines()
                .any(|l| l.contains(&format!(":{}", port(&ours))) && l.contains(why)),
            "{why}: {text}"
        );
    }
    assert_eq!(a.lab.json(&["port", "show", "m0"]).await["mesh"]["refused"], 3);
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().expect("a port")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_comes_back_is_a_peer_again() {
    let ca = Authority::new("ours");
    let (ka, kb) = (ca.keys("a.example.com"), ca.keys("b.example.com"));
    let a = Daemon::start(&ka, &[], &[]).await;
    let b = Daemon::start(&kb, &[&a.address], &[]).await;
    a.connected(1).await;
    let before = b.address.clone();
    b.lab.end().await;
    a.connected(0).await;
    // At the same address, called by nobody's configuration but its own.
    let b = Daemon::start(&kb, &[&a.address], &["--mesh", &before]).await;
    a.connected(1).await;
    b.connected(1).await;
    let (x, mut y) = (a.guest(1), b.guest(2));
    let mut x = x;
    let one = frame(&x, [0xff; 6], 100, 1);
    x.send(&one);
    y.expect(&one).await;

    // And the other way: whom it calls comes back.
    let address = a.address.clone();
    a.lab.end().await;
    b.connected(0).await;
    let a = Daemon::start(&ka, &[], &["--mesh", &address]).await;
    a.connected(1).await;
    b.connected(1).await;
    let mut x = a.guest(1);
    x.send(&one);
    y.expect(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_cross_a_bad_path_and_nobody_there_reads_them() {
    let ca = Authority::new("ours");
    let a = Daemon::start(&ca.keys("a.example.com"), &[], &["--mtu", "9000"]).await;
    let relay = Relay::start(&a.address);
    let b = Daemon::start(&ca.keys("b.example.com"), &[&relay.address], &["--mtu", "9000"]).await;
    a.connected(1).await;
    b.connected(1).await;
    let (mut x, mut y) = (a.guest(1), b.guest(2));
    let secret = b"what nobody on the way may read: ";
    let mut plain = frame(&x, [0xff; 6], 9014, 1);
    for chunk in plain[14..].chunks_exact_mut(secret.len()) {
        chunk.copy_from_slice(secret);
    }
    x.send(&plain);
    y.expect(&plain).await;
    assert!(relay.saw() > 9014, "{}", relay.saw());
    assert!(!relay.saw_text(&secret[..8]), "plain text on the wire");
    assert!(!relay.saw_text(b"vnic-mesh-payload"), "plain text on the wire");

    // Datagrams are lost, come twice and out of order: a frame comes once and whole, or not at all; asked for often
    // enough, all come.
    relay.worsen();
    for i in 0..50 {
        let one = frame(&x, [0xff; 6], 3000 + usize::from(i) * 100, i);
        let mut came = false;
        for _ in 0..1000 {
            x.send(&one);
            if y.comes(&one).await {
                came = true;
                break;
            }
        }
        assert!(came, "frame {i}");
    }
    // The loss is counted where packets were sent. (Without traffic such a path can end a connection.)
    let more = frame(&x, [0xff; 6], 3000, 0);
    for _ in 0..3000 {
        if lost(&a, "tx_lost_packets") > 0 {
            break;
        }
        x.send(&more);
        y.comes(&more).await;
    }
    assert!(lost(&a, "tx_lost_packets") > 0);
    // The relay has done what it should.
    let (lost, twice, late) = relay.harm();
    assert!(lost > 0 && twice > 0 && late > 0, "{lost} {twice} {late}");
    assert_eq!(connected(&a.connected(1).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_changes_nothing() {
    let ca = Authority::new("ours");
    let a = Daemon::start(&ca.keys("a.example.com"), &[], &[]).await;
    let b = Daemon::start(&ca.keys("b.example.com"), &[&a.address], &[]).await;
    a.connected(1).await;
    let (mut x, mut y) = (a.guest(1), b.guest(2));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut random = relay::Random(7);
    for i in 0..2000u32 {
        let len = (random.next() % 1400) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // Some look like the beginning of a connection.
        if let Some(head) = bytes.first_chunk_mut::<6>().filter(|_| i % 3 == 0) {
            *head = [0xc3, 0, 0, 0, 1, 8];
        }
        for to in [&a.address, &b.address] {
            let _ = socket.send_to(&bytes, to.as_str());
        }
        if i % 50 == 0 {
            let one = frame(&x, [0xff; 6], 100, i as u8);
            x.send(&one);
            y.expect(&one).await;
        }
    }
    assert_eq!(connected(&a.connected(1).await), 1);
    let text = a.events("mesh_peer").await;
    assert!(!text.contains("left"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_with_the_reason() {
    let ca = Authority::new("ours");
    let keys = ca.keys("a.example.com");
    let lab = Lab::start(0).await;
    let (cert, key, root) = (&keys.certificate[..], &keys.key[..], &keys.ca[..]);
    let files = ["--cert", cert, "--key", key, "--ca", root, "--peer-name", "*"];
    let add = |more: &[&'static str]| [&["port", "add", "m0"], more, &files[..]].concat();
    let text = lab.refused(1, &add(&["--mesh", "nowhere"])).await;
    assert!(
        text.contains("port.mesh.listen") && text.contains("ADDR:PORT"),
        "{text}"
    );
    let twice = ["--mesh", "127.0.0.1:0", "--peer", "b:1", "--peer", "B:1"];
    let text = lab.refused(1, &add(&twice)).await;
    assert!(
        text.contains("port.mesh.peers[1]") && text.contains("named twice"),
        "{text}"
    );
    lab.refused(2, &add(&["--mesh", "127.0.0.1:0", "--peer", "b"]))
        .await;
    lab.refused(2, &["port", "add", "m0", "--mesh", "127.0.0.1:0"])
        .await;
    // A CA may have signed others than peers: who is one must be said.
    let mesh = v1::MeshUplink {
        listen: "127.0.0.1:0".to_owned(),
        certificate: cert.to_owned(),
        key: key.to_owned(),
        ca: root.to_owned(),
        ..v1::MeshUplink::default()
    };
    let request = v1::CreatePortRequest {
        port_id: "m0".to_owned(),
        port: Some(v1::Port {
            uplink: Some(v1::port::Uplink::Mesh(mesh)),
            ..v1::Port::default()
        }),
    };
    let status = PortServiceClient::new(lab.channel.clone())
        .create_port(request)
        .await
        .expect_err("refused");
    assert!(
        status.message().contains("port.mesh.names: whom the mesh takes"),
        "{status}"
    );
    lab.refused(2, &add(&["--tap", "tap0", "--mesh", "127.0.0.1:0"]))
        .await;

    let wrong = |cert: &str, key: &str, ca: &str| {
        let all = [
            "port",
            "add",
            "m0",
            "--mesh",
            "127.0.0.1:0",
            "--cert",
            cert,
            "--key",
            key,
            "--ca",
            ca,
            "--peer-name",
            "*",
        ];
        all.map(str::to_owned)
    };
    let other = ca.keys("b.example.com");
    for (arguments, field, why) in [
        (
            wrong(cert, &other.key, root),
            "port.mesh.key",
            "it is not the key of",
        ),
        (
            wrong("/no/such/file", key, root),
            "port.mesh.certificate",
            "cannot read",
        ),
        (wrong(cert, root, root), "port.mesh.key", "no private key in it"),
        (wrong(cert, key, key), "port.mesh.ca", "no certificate in it"),
        (
            wrong("relative.pem", key, root),
            "port.mesh.certificate",
            "is not an absolute path",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let text = lab.refused(1, &arguments).await;
        assert!(text.contains(field) && text.contains(why), "{field}: {text}");
        assert!(!text.contains("BEGIN PRIVATE"), "{text}");
    }
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = taken.local_addr().expect("an address").to_string();
    let arguments = [&["port", "add", "m0", "--mesh", &address][..], &files].concat();
    let text = lab.refused(1, &arguments).await;
    assert!(
        text.contains("port.mesh.listen") && text.contains("cannot listen on"),
        "{text}"
    );
    assert_eq!(lab.said(&["port", "list"]).await, "no ports\n");
}
