use super::*;

fn offer() -> Offer {
    Offer {
        run: vec![("tool".into(), "write_bw".into()), ("size".into(), "64".into())],
        queues: vec![Queue {
            number: 0x11,
            psn: 0x22,
        }],
        gid: "fd00::1".parse().expect("a GID"),
        mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
        mtu: Some(1024),
        qkey: None,
        area: Some(Area {
            addr: 0x44,
            rkey: 0x33,
            len: 65536,
            slots: Some(16),
            step: Some(4096),
        }),
        seed: Some(1),
    }
}

#[test]
fn lines_are_written_and_read() {
    let line = offer().to_string();
    assert_eq!(
        line,
        "endpoint version=1 tool=write_bw size=64 qpn=0x11 psn=0x22 gid=fd00::1 mac=02:00:00:00:00:01 mtu=1024 rkey=0x33 \
         addr=0x44 len=65536 slots=16 step=4096 seed=1"
    );
    assert_eq!(line.parse::<Offer>(), Ok(offer()));
    let mut many = offer();
    many.queues = (0..1024)
        .map(|n| Queue {
            number: 0xff_0000 + n,
            psn: n,
        })
        .collect();
    let line = many.to_string();
    assert!(line.len() < LINE_MAX / 2);
    assert_eq!(line.parse::<Offer>(), Ok(many));
}

#[test]
fn another_program_may_say_less_and_more() {
    let peer: Offer = "endpoint qpn=17 gid=::ffff:10.0.0.1 colour=blue"
        .parse()
        .expect("an endpoint");
    assert_eq!(peer.queues, [Queue { number: 17, psn: 0 }]);
    assert_eq!(peer.gid, "10.0.0.1".parse().expect("a GID"));
    assert!(peer.area.is_none() && peer.seed.is_none() && peer.run.is_empty());
    assert_eq!(offer().fits(&peer), Ok(()));
}

#[test]
fn nonsense_is_refused() {
    for (line, why) in [
        ("GET / HTTP/1.1", "no endpoint"),
        ("endpoint", "no endpoint"),
        ("endpoint gid=::1", "no qpn"),
        ("endpoint qpn=1", "no gid"),
        ("endpoint qpn=0x1000000 gid=::1", "more than 0xffffff"),
        ("endpoint qpn=1,2 psn=3 gid=::1", "2 queue pairs and 1 PSNs"),
        ("endpoint qpn=1 qpn=2 gid=::1", "twice"),
        ("endpoint qpn=-1 gid=::1", "no number"),
        ("endpoint qpn=1 gid=nowhere", "no GID"),
        ("endpoint qpn=1 gid=::1 mac=1:2", "no Ethernet address"),
        ("endpoint qpn=1 gid=::1 word", "not key=value"),
        ("endpoint qpn=1 gid=::1 version=2", "version 2"),
        ("endpoint qpn=1 gid=::1 rkey=1 addr=1", "no len"),
        (
            "endpoint qpn=1 gid=::1 rkey=1 addr=0xffffffffffffffff len=1",
            "more than",
        ),
    ] {
        let e = line.parse::<Offer>().expect_err(line);
        assert!(e.contains(why), "{line}: {e}");
    }
    let many = format!("endpoint gid=::1 qpn={}", vec!["1"; QPS_MAX + 1].join(","));
    assert!(many.parse::<Offer>().is_err());
    let rude = format!("endpoint {}", "\u{7}".repeat(10_000));
    let e = rude.parse::<Offer>().expect_err("nonsense");
    assert!(e.len() < 400 && !e.contains('\u{7}'), "{e}");
}

fn links() -> (Link, Link) {
    let [a, b] = Carrier::pair();
    (Link::new(a, Role::Server), Link::new(b, Role::Client))
}

#[test]
fn a_whole_conversation() {
    let (mut server, mut client) = links();
    let other = std::thread::spawn(move || -> Result<_, Failure> {
        let peer = client.swap(&offer())?;
        client.ready()?;
        client.say_done(&[7, 8])?;
        let found = client.compare(&Account::default())?;
        Ok((peer, found))
    });
    assert_eq!(server.swap(&offer()).expect("an endpoint"), offer());
    server.ready().expect("ready");
    let done = server.done_within(Duration::from_secs(60)).expect("done");
    assert_eq!(done.and_then(|d| d.sent), Some(vec![7, 8]));
    let mine = Account {
        sent: None,
        bad: 1,
        lost: 2,
    };
    assert_eq!(
        server.compare(&mine).expect("an account"),
        Some(Account::default())
    );
    let (peer, found) = other.join().expect("no panic").expect("no failure");
    assert_eq!((peer, found), (offer(), Some(mine)));
}

#[test]
fn different_options_are_an_error_on_both_sides() {
    let (mut server, mut client) = links();
    let other = std::thread::spawn(move || {
        let mut mine = offer();
        mine.run[1].1 = "128".into();
        client.swap(&mine).map(|_| ())
    });
    let mine = server.swap(&offer()).expect_err("an error").to_string();
    let theirs = other.join().expect("no panic").expect_err("an error").to_string();
    assert!(mine.contains("size=128") && mine.contains("size=64"), "{mine}");
    assert!(theirs.contains("size=64"), "{theirs}");
}

#[test]
fn who_gives_up_says_why() {
    let (mut server, mut client) = links();
    client.give_up("no memory\nleft");
    let e = server
        .done_within(Duration::from_secs(60))
        .expect_err("an error")
        .to_string();
    assert_eq!(e, "the peer gave up: no memory left");
    client.carrier.send("donkey").expect("sent");
    assert!(server.done_within(Duration::from_secs(60)).is_err());
}
