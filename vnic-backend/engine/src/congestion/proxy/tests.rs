//! Frames of a guest and of its peer, in virtual time.

mod delay;
mod hostile;
mod links;

use alloc::sync::Arc;
use alloc::vec;

use expect_test::expect;
use vnic_wire::opcode::{Opcode, Operation};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Frame, Network};
use vnic_wire::{EtherType, MacAddr, aeth, bth, deth, ethernet, reth, vlan};

use super::super::notification::Settings;
use super::super::{CongestionControl, Needs, UNLIMITED};
use super::*;

const GUEST: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const PEER: Gid = Gid::from_ipv4([10, 0, 0, 2]);
/// Queue pairs: the guest's, the peer's.
const OWN: u32 = 0x11;
const THEIRS: u32 = 0x22;
const PRIORITY: u8 = 3;
const CE: u8 = 3;
const SECOND: u64 = 1_000_000_000;

/// A limit that a test chooses: each notification sets it.
#[derive(Debug)]
struct Fixed(u64);

#[derive(Debug)]
struct FixedFlow {
    rate: u64,
    notified: bool,
}

impl Algorithm for FixedFlow {
    fn on_notification(&mut self, _: Instant, cnp: &Notification) {
        // A period of one second ends the limit.
        self.notified = cnp.period != Some(Duration::from_secs(1));
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: if self.notified { self.rate } else { UNLIMITED },
            ..Limits::NONE
        }
    }

    fn is_released(&self) -> bool {
        !self.notified
    }
}

impl CongestionControl for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn start(&self, _: Instant, start: &Start) -> Box<dyn Algorithm> {
        Box::new(FixedFlow {
            rate: start.rate.map_or(self.0, |r| r.min(self.0)),
            notified: start.rate.is_some(),
        })
    }
}

fn congestion(rate: u64) -> Congestion {
    Congestion {
        control: Arc::new(Fixed(rate)),
        reaction: 1 << PRIORITY,
        notification: 1 << PRIORITY,
        slack: Duration::ZERO,
        ..Congestion::default()
    }
}

fn proxy(rate: u64) -> Proxy<u32> {
    Proxy::new(congestion(rate), true)
}

/// A packet of a reliable connection, and how to write it.
#[derive(Clone)]
struct Packet {
    from: Gid,
    to: Gid,
    qp: u32,
    psn: u32,
    opcode: Opcode,
    extended: Extended,
    tos: u8,
    payload: usize,
    tag: Option<u16>,
    asks: bool,
}

fn packet(from: Gid, to: Gid, qp: u32, psn: u32, operation: Operation) -> Packet {
    let acknowledge = aeth::Header::parse(&[0; 4]).expect("four bytes");
    Packet {
        from,
        to,
        qp,
        psn,
        opcode: Opcode::new(Transport::Rc, operation),
        extended: match operation {
            o if o.has_aeth() => Extended::Aeth(acknowledge),
            o if o.has_reth() => Extended::Reth(reth::Header {
                va: 0,
                rkey: 0,
                len: 4096,
            }),
            _ => Extended::None,
        },
        tos: 2,
        payload: if operation.is_send() || operation.is_read_response() {
            1024
        } else {
            0
        },
        tag: None,
        asks: false,
    }
}

impl Packet {
    fn marked(self) -> Packet {
        Packet { tos: CE, ..self }
    }

    fn frame(&self) -> Vec<u8> {
        let mac = |gid: Gid| MacAddr([2, 0, 0, 0, 0, gid.0[15]]);
        let mut network = Network::v2(self.from, self.to);
        network.set_traffic_class(self.tos);
        let path = Path {
            eth: ethernet::Header {
                destination: mac(self.to),
                source: mac(self.from),
                ethertype: EtherType::IPV4,
            },
            vlan: self.tag.map(|tci| vlan::Header {
                tci: Tci(tci),
                ethertype: EtherType::IPV4,
            }),
            network,
            source_port: 0xc123,
        };
        let headers = Headers {
            bth: bth::Header {
                ack_request: self.asks,
                ..bth::Header::new(self.opcode, self.qp, Psn::new(self.psn))
            },
            xrceth: None,
            dceth: None,
            extended: self.extended,
        };
        let mut frame = vec![];
        build(&path, &headers, &vec![7; self.payload], &mut frame).expect("a frame");
        frame
    }

    fn seen(&self) -> Seen {
        let frame = self.frame();
        Seen::parse(&frame[..frame.len().min(SEEN)]).expect("RoCE")
    }
}

/// The peer's requests to the guest, and the guest's answers.
fn request(psn: u32) -> Packet {
    packet(PEER, GUEST, OWN, psn, Operation::SendOnly)
}

fn answer(psn: u32) -> Packet {
    packet(GUEST, PEER, THEIRS, psn, Operation::Acknowledge)
}

/// The other way round.
fn own_request(psn: u32) -> Packet {
    packet(GUEST, PEER, THEIRS, psn, Operation::SendOnly)
}

fn own_answer(psn: u32) -> Packet {
    packet(PEER, GUEST, OWN, psn, Operation::Acknowledge)
}

/// A READ of 4096 bytes by the guest, and the peer's responses of 1024 bytes.
fn own_read(psn: u32) -> Packet {
    packet(GUEST, PEER, THEIRS, psn, Operation::ReadRequest)
}

fn responses(psn: u32) -> [Packet; 4] {
    use Operation::{ReadResponseFirst, ReadResponseLast, ReadResponseMiddle};
    let mut psn = psn..;
    [
        ReadResponseFirst,
        ReadResponseMiddle,
        ReadResponseMiddle,
        ReadResponseLast,
    ]
    .map(|operation| packet(PEER, GUEST, OWN, psn.next().expect("a number"), operation))
}

fn cnp(from: Gid, to: Gid, qp: u32, period: u32) -> Packet {
    Packet {
        opcode: Opcode::CNP,
        extended: Extended::Cnp(cnp::Header { period }),
        ..packet(from, to, qp, 0, Operation::SendOnly)
    }
    .bare()
}

impl Packet {
    fn bare(self) -> Packet {
        Packet { payload: 0, ..self }
    }
}

fn receive(p: &mut Proxy<u32>, now: u64, packet: &Packet) {
    p.received(Instant(now), PRIORITY, &packet.seen());
}

fn wire(packet: &Packet) -> u32 {
    packet.frame().len() as u32 + 24
}

/// True: it passes; otherwise it waits, if there is room.
fn send(p: &mut Proxy<u32>, now: u64, packet: &Packet, number: u32) -> bool {
    let (seen, wire) = (packet.seen(), wire(packet));
    match p.sending(Instant(now), PRIORITY, &seen, wire) {
        Fate::Passes => true,
        Fate::Waits(flow) => {
            let _ = p.hold(Instant(now), flow, &seen, wire, wire, number);
            false
        }
    }
}

/// What leaves by then, with its time.
fn run(p: &mut Proxy<u32>, mut now: u64, until: u64) -> Vec<(u64, u32)> {
    let mut left = vec![];
    loop {
        while let Some((flow, _, _)) = p.front(Instant(now), 0xff) {
            left.push((now, p.take(Instant(now), flow).expect("it was there")));
        }
        match p.next_time(Instant(now)) {
            Some(at) if at.0 <= until => now = at.0.max(now),
            _ => return left,
        }
    }
}

/// The guest's flow is known and limited.
fn limited(rate: u64) -> Proxy<u32> {
    let mut p = proxy(rate);
    assert!(send(&mut p, 0, &own_request(100), 0));
    receive(&mut p, 0, &own_answer(100));
    receive(&mut p, 0, &cnp(PEER, GUEST, OWN, 0));
    let counts = Counts {
        handled: 1,
        ..Counts::default()
    };
    assert_eq!(p.take_counts(), counts);
    p
}

#[test]
fn a_marked_packet_is_answered_in_the_guests_name() {
    let mut p = proxy(1);
    receive(&mut p, 0, &request(7));
    send(&mut p, 0, &answer(7), 0);
    let tagged = Packet {
        tag: Some(0x6005),
        ..request(8)
    };
    receive(&mut p, 10, &tagged.marked());
    let notice = p.poll_notice(Instant(10), 0xff).expect("a notification");
    let mut bytes = vec![];
    notice.build(&mut bytes).expect("a frame");
    let f = Frame::parse(&bytes).expect("RoCE");
    assert!(f.icrc_ok() && f.header_checksum_ok());
    assert_eq!(f.headers, Headers::cnp(THEIRS));
    assert_eq!((f.network.source(), f.network.destination()), (GUEST, PEER));
    assert_eq!(f.network.traffic_class(), 48 << 2);
    assert_eq!(f.vlan.map(|t| t.tci), Some(Tci::new(6, false, 5)));
    assert_eq!((f.eth.source.0[5], f.eth.destination.0[5]), (1, 2));
    // As annex A17.9 has it, behind the network and UDP headers.
    expect!["81 00 ff ff 40 00 00 22 00 00 00 00"].assert_eq(
        &bytes[46..58]
            .iter()
            .map(|b| alloc::format!("{b:02x}"))
            .collect::<Vec<_>>()
            .join(" "),
    );
    assert_eq!(p.poll_notice(Instant(10), 0xff), None);
    let counts = Counts {
        marked: 1,
        notified: 1,
        ..Counts::default()
    };
    assert_eq!(p.take_counts(), counts);
    // Within the spacing another one is owed, and leaves at its end; a priority that is closed keeps it.
    receive(&mut p, 20, &request(9).marked());
    assert_eq!(p.poll_notice(Instant(20), 0xff), None);
    let at = p.next_time(Instant(20)).expect("a time");
    assert_eq!(at, Instant(50_010));
    assert_eq!(p.poll_notice(at, !(1 << 6)), None);
    assert_eq!(p.ready(at), 1 << 6);
    assert!(p.poll_notice(at, 1 << 6).is_some());
}

/// What tells whose queue pair sends, and what does not.
#[test]
fn who_is_notified() {
    type Call<'a> = (&'a str, &'a dyn Fn(&mut Proxy<u32>));
    let ipv6 = |n: u8| {
        let mut gid = Gid::default();
        (gid.0[0], gid.0[15]) = (0xfd, n);
        gid
    };
    let calls: [Call<'_>; 12] = [
        ("nothing", &|_| {}),
        ("a request alone", &|p| receive(p, 0, &request(7))),
        ("an answer alone", &|p| {
            send(p, 0, &answer(7), 0);
        }),
        ("its answer", &|p| {
            receive(p, 0, &request(7));
            send(p, 0, &answer(7), 0);
        }),
        ("an answer to something else", &|p| {
            receive(p, 0, &request(7));
            send(p, 0, &answer(9), 0);
        }),
        ("an answer that two may have got", &|p| {
            receive(p, 0, &request(7));
            receive(
                p,
                0,
                &Packet {
                    qp: 0x12,
                    ..request(7)
                },
            );
            send(p, 0, &answer(7), 0);
        }),
        ("one of two", &|p| {
            receive(p, 0, &request(7));
            receive(
                p,
                0,
                &Packet {
                    qp: 0x12,
                    ..request(900)
                },
            );
            send(p, 0, &answer(7), 0);
        }),
        ("the peer's answer", &|p| {
            send(p, 0, &own_request(50), 0);
            receive(p, 0, &own_answer(50));
        }),
        ("the first of a READ's answers", &|p| {
            send(p, 0, &packet(GUEST, PEER, THEIRS, 50, Operation::ReadRequest), 0);
            receive(p, 0, &packet(PEER, GUEST, OWN, 50, Operation::ReadResponseFirst));
        }),
        ("another address", &|p| {
            let from = Gid::from_ipv4([10, 0, 0, 3]);
            receive(p, 0, &Packet { from, ..request(7) });
            send(p, 0, &answer(7), 0);
        }),
        ("the guest notifies for itself", &|p| {
            receive(p, 0, &request(7));
            send(p, 0, &answer(7), 0);
            send(p, 0, &cnp(GUEST, PEER, THEIRS, 0), 0);
        }),
        ("IPv6 does not count for IPv4", &|p| {
            let (own, peer) = (ipv6(1), ipv6(2));
            receive(
                p,
                0,
                &Packet {
                    from: peer,
                    to: own,
                    ..request(7)
                },
            );
            send(
                p,
                0,
                &Packet {
                    from: own,
                    to: peer,
                    ..answer(7)
                },
                0,
            );
        }),
    ];
    let mut table = alloc::string::String::new();
    for (name, call) in calls {
        let mut p = proxy(1);
        call(&mut p);
        receive(&mut p, 1, &request(8).marked());
        let sent = p.poll_notice(Instant(1), 0xff).map(|n| n.qp);
        let unknown = p.take_counts().unknown;
        table += &alloc::format!("{name}: {sent:x?}, unknown {unknown}\n");
    }
    expect![[r#"
        nothing: None, unknown 1
        a request alone: None, unknown 1
        an answer alone: None, unknown 1
        its answer: Some(22), unknown 0
        an answer to something else: None, unknown 1
        an answer that two may have got: None, unknown 1
        one of two: Some(22), unknown 0
        the peer's answer: Some(22), unknown 0
        the first of a READ's answers: Some(22), unknown 0
        another address: None, unknown 1
        the guest notifies for itself: None, unknown 0
        IPv6 does not count for IPv4: None, unknown 1
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_datagram_says_who_sends_it() {
    let mut p = proxy(1);
    let datagram = |from, to| Packet {
        opcode: Opcode::new(Transport::Ud, Operation::SendOnly),
        extended: Extended::Deth(deth::Header {
            qkey: 1,
            source_qp: 0x77,
        }),
        ..packet(from, to, OWN, 0, Operation::SendOnly)
    };
    // To whom the guest has never sent anything, nothing goes in its name.
    receive(&mut p, 0, &datagram(PEER, GUEST).marked());
    assert_eq!(p.take_counts().unknown, 1);
    send(&mut p, 0, &datagram(GUEST, PEER), 0);
    receive(&mut p, 1, &datagram(PEER, GUEST).marked());
    assert_eq!(p.poll_notice(Instant(1), 0xff).map(|n| n.qp), Some(0x77));
}

#[test]
fn a_flow_is_slowed_down_and_no_other() {
    // 1 Gbit/s: a frame of 1082 bytes and 24 around it takes 8.8 us.
    let mut p = limited(1_000_000_000);
    let mut sent = vec![];
    for n in 0..50 {
        assert!(!send(&mut p, 0, &own_request(101 + n), n));
        let other = Packet {
            qp: THEIRS + 1,
            ..own_request(n)
        };
        assert!(send(&mut p, 0, &other, n), "another queue pair");
        let elsewhere = Packet {
            to: Gid::from_ipv4([10, 0, 0, 9]),
            ..own_request(n)
        };
        assert!(send(&mut p, 0, &elsewhere, n), "another peer");
        sent.push(n);
    }
    let left = run(&mut p, 0, SECOND);
    assert_eq!(left.iter().map(|l| l.1).collect::<Vec<_>>(), sent);
    let each = u64::from(wire(&own_request(0))) * 8;
    for (i, (at, _)) in left.iter().enumerate() {
        assert_eq!(*at, i as u64 * each, "frame {i}");
    }
    assert!(p.is_empty() && p.is_idle());
    // Whether it is asked often or seldom, the rate is the same: a slack makes up for it.
    for (slack, step, part) in [(0, 1, 1), (200_000, 50_000, 1), (0, 50_000, 6)] {
        let mut c = congestion(1_000_000_000);
        c.slack = Duration::from_nanos(slack);
        let mut p = limited(1_000_000_000);
        p.configure(Instant(0), c, true);
        for n in 0..900 {
            send(&mut p, 0, &own_request(n), n);
        }
        let (mut now, mut n) = (0, 0);
        while now < 5_000_000 {
            while let Some((flow, _, _)) = p.front(Instant(now), 0xff) {
                p.take(Instant(now), flow);
                n += 1;
            }
            now += step.max(100);
        }
        let all = 5_000_000 / each;
        assert!(
            n >= all / part * 99 / 100 && n <= all / part + 25,
            "{slack} {step}: {n} of {all}"
        );
    }
}

#[test]
fn acknowledges_pass_but_not_answers_that_wait() {
    let mut p = limited(1_000_000);
    assert!(send(&mut p, 0, &answer(5), 0));
    assert!(!send(&mut p, 0, &own_request(101), 1));
    assert!(send(&mut p, 0, &answer(6), 2), "only a request waits");
    let data = packet(GUEST, PEER, THEIRS, 7, Operation::ReadResponseOnly);
    assert!(!send(&mut p, 0, &data, 3));
    assert!(!send(&mut p, 0, &answer(8), 4), "it would overtake an answer");
    let left = run(&mut p, 0, SECOND);
    assert_eq!(left.iter().map(|l| l.1).collect::<Vec<_>>(), [1, 3, 4]);
    assert!(send(&mut p, SECOND, &answer(9), 5));
}

#[test]
fn what_a_notification_needs() {
    let known = |p: &mut Proxy<u32>, priority| {
        let seen = own_request(100).seen();
        assert_eq!(p.sending(Instant(0), priority, &seen, 0), Fate::Passes);
        p.received(Instant(0), priority, &own_answer(100).seen());
    };
    let notification = cnp(PEER, GUEST, OWN, 0);
    let handled = |mut p: Proxy<u32>, seen: &Seen| {
        p.received(Instant(1), 0, seen);
        let counts = p.take_counts();
        assert_eq!(counts.handled + counts.ignored, 1);
        counts.handled == 1
    };
    let whole = notification.seen();
    let mut p = proxy(1_000_000);
    known(&mut p, PRIORITY);
    assert!(handled(p, &whole));
    // Nobody knows whose it is.
    assert!(!handled(proxy(1_000_000), &whole));
    // Another priority.
    let mut p = proxy(1_000_000);
    known(&mut p, PRIORITY + 1);
    assert!(!handled(p, &whole));
    // A wrong ICRC.
    let mut p = proxy(1_000_000);
    known(&mut p, PRIORITY);
    let mut bytes = notification.frame();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(!handled(p, &Seen::parse(&bytes).expect("RoCE")));
    // It only counts; there is no algorithm.
    let mut p = Proxy::new(congestion(1_000_000), false);
    known(&mut p, PRIORITY);
    assert!(!handled(p, &whole));
    let mut p = Proxy::new(
        Congestion {
            control: Arc::new(none::None),
            ..congestion(1)
        },
        true,
    );
    known(&mut p, PRIORITY);
    assert!(!handled(p, &whole));
}

#[test]
fn without_acting_it_only_counts() {
    let mut p = Proxy::new(congestion(1), false);
    receive(&mut p, 0, &request(7));
    send(&mut p, 0, &answer(7), 0);
    receive(&mut p, 0, &request(8).marked());
    receive(&mut p, 0, &cnp(PEER, GUEST, OWN, 0));
    let counts = Counts {
        marked: 1,
        ignored: 1,
        ..Counts::default()
    };
    assert_eq!(p.take_counts(), counts);
    assert_eq!(p.remembered(), (0, 0));
    assert!(p.is_idle() && p.poll_notice(Instant(1), 0xff).is_none());
    assert!(!p.vouches(PRIORITY, &request(7).seen()));
}

#[test]
fn a_priority_that_is_off_is_neither_notified_nor_vouched_for() {
    let mut p = proxy(1);
    receive(&mut p, 0, &request(7));
    send(&mut p, 0, &answer(7), 0);
    p.received(Instant(0), PRIORITY + 1, &request(8).marked().seen());
    let counts = p.take_counts();
    assert_eq!((counts.marked, counts.unknown, counts.notified), (1, 0, 0));
    assert!(p.poll_notice(Instant(0), 0xff).is_none());
    let silent = Packet {
        tos: 0,
        ..own_request(1)
    };
    assert!(p.vouches(PRIORITY, &silent.seen()));
    assert!(!p.vouches(PRIORITY + 1, &silent.seen()));
    assert!(!p.vouches(PRIORITY, &own_request(1).seen()), "it says so itself");
}

#[test]
fn a_limit_that_ends_is_forgotten() {
    let mut p = limited(1_000_000_000);
    assert_eq!(p.flows(Instant(0)).len(), 1);
    let flow = p.flows(Instant(0))[0];
    assert_eq!((flow.own, flow.peer, flow.qp), (GUEST, PEER, THEIRS));
    assert_eq!((flow.limits.rate, flow.notifications), (1_000_000_000, 1));
    for n in 0..3 {
        assert!(!send(&mut p, 0, &own_request(101 + n), n));
    }
    // It is over while frames wait: they leave at once, in order, and what comes behind them with them.
    receive(&mut p, 10, &cnp(PEER, GUEST, OWN, 1_000_000));
    assert!(!send(&mut p, 10, &own_request(104), 3));
    let left = run(&mut p, 10, 10);
    assert_eq!(left, [(10, 0), (10, 1), (10, 2), (10, 3)]);
    assert!(send(&mut p, 11, &own_request(105), 4));
    assert_eq!(p.remembered().1, 0);
}

#[test]
fn switched_off_everything_leaves() {
    let mut p = limited(1_000_000);
    for n in 0..10 {
        assert!(!send(&mut p, 0, &own_request(101 + n), n));
    }
    assert_eq!(run(&mut p, 0, 10).len(), 1);
    p.configure(Instant(20), congestion(1_000_000), false);
    assert!(!send(&mut p, 20, &own_request(111), 10), "behind the others");
    assert_eq!(run(&mut p, 20, 20).len(), 10);
    assert!(send(&mut p, 21, &own_request(112), 11));
    // Other parameters: the flow goes on at the rate that it has.
    let mut p = limited(1_000_000);
    p.configure(Instant(5), congestion(50_000_000), true);
    assert_eq!(p.flows(Instant(5))[0].limits.rate, 1_000_000);
    p.configure(Instant(5), congestion(1_000), true);
    assert_eq!(p.flows(Instant(5))[0].limits.rate, 1_000);
}

#[test]
fn closed_priorities_wait() {
    let mut p = limited(1_000_000_000);
    send(&mut p, 0, &own_request(101), 0);
    assert!(p.front(Instant(0), !(1 << PRIORITY)).is_none());
    assert_eq!(p.ready(Instant(0)), 1 << PRIORITY);
    assert!(p.front(Instant(0), 1 << PRIORITY).is_some());
}

#[test]
fn memory_is_bounded() {
    // One flow.
    let mut p = limited(1);
    let (seen, mut held) = (own_request(101).seen(), 0);
    while let Fate::Waits(flow) = p.sending(Instant(0), PRIORITY, &seen, 1106) {
        if p.hold(Instant(0), flow, &seen, 1106, 1200, 0).is_err() {
            assert_eq!(p.room(flow, 1200), Err(Full::Flow));
            break;
        }
        held += 1200;
    }
    assert!(held <= FLOW_MAX && held + 1200 > FLOW_MAX);
    // Many.
    for qp in 0..2 * FLOWS as u32 {
        let (own, theirs) = (0x1000 + qp, 0x10_0000 + qp);
        let psn = qp * 1000;
        send(
            &mut p,
            u64::from(qp),
            &Packet {
                qp: theirs,
                ..own_request(psn)
            },
            0,
        );
        receive(
            &mut p,
            u64::from(qp),
            &Packet {
                qp: own,
                ..own_answer(psn)
            },
        );
        receive(&mut p, u64::from(qp), &cnp(PEER, GUEST, own, 0));
        let seen = Packet {
            qp: theirs,
            ..own_request(psn)
        }
        .seen();
        if let Fate::Waits(flow) = p.sending(Instant(qp.into()), PRIORITY, &seen, 1106) {
            let _ = p.hold(Instant(qp.into()), flow, &seen, 1106, 100_000, 0);
        }
        let (pairs, flows) = p.remembered();
        assert!(pairs <= pairs::KNOWN && flows <= FLOWS && p.held <= ALL_MAX);
    }
    assert!(!p.takes_more());
    // The one whose frames wait is still there, however many came after it.
    assert!(p.flows(Instant(1 << 20)).iter().any(|f| f.qp == THEIRS));
}

/// Whoever makes us look through many queue pairs for each packet is not looked after for longer than a little while.
#[test]
fn looking_costs_no_more_than_a_share_of_the_time() {
    let mut p = proxy(1);
    for qp in 0..1024 {
        receive(&mut p, 0, &Packet { qp, ..request(7) });
    }
    // All of them may have got it: nothing is learned, and soon nobody looks any more.
    for n in 0..10_000 {
        send(
            &mut p,
            1,
            &Packet {
                qp: 0x5000 + n % 500,
                ..answer(7)
            },
            0,
        );
    }
    receive(
        &mut p,
        1,
        &Packet {
            qp: 0x7777,
            ..request(1 << 20)
        },
    );
    let theirs = Packet {
        qp: 0x8888,
        ..answer(1 << 20)
    };
    for (now, known) in [(2, false), (SECOND, true)] {
        send(&mut p, now, &theirs, 0);
        let marked = Packet {
            qp: 0x7777,
            ..request(1 << 20)
        };
        receive(&mut p, now, &marked.marked());
        assert_eq!(p.poll_notice(Instant(now), 0xff).is_some(), known);
    }
}

#[test]
fn not_roce() {
    let plain = request(1).frame();
    for n in 0..plain.len().min(60) {
        // (The whole of it is needed but for the payload.)
        assert_eq!(Seen::parse(&plain[..n]).is_some(), n >= 54, "{n} bytes");
    }
    for (at, byte) in [
        (12, 0x86),
        (14, 0x46),
        (20, 0x20),
        (21, 1),
        (23, 6),
        (36, 1),
        (38, 0xff),
        (42, 0xe0),
    ] {
        let mut other = plain.clone();
        other[at] ^= byte;
        let seen = Seen::parse(&other);
        // A length that is too long is believed: only it is counted.
        assert_eq!(seen.is_some(), at == 38, "byte {at}");
    }
}

/// The same with the settings of the documents: DCQCN's first cut and recovery.
#[test]
fn dcqcn_slows_a_guests_flow_down_and_lets_it_go() {
    use super::super::dcqcn::{Dcqcn, Parameters};
    let control = Dcqcn {
        parameters: Parameters::PAPER,
    };
    let mut p: Proxy<u32> = Proxy::new(
        Congestion {
            control: Arc::new(control),
            line_rate: 10_000_000_000,
            point: Settings::default(),
            ..congestion(1)
        },
        true,
    );
    send(&mut p, 0, &own_request(100), 0);
    receive(&mut p, 0, &own_answer(100));
    receive(&mut p, 0, &cnp(PEER, GUEST, OWN, 0));
    // Alpha is 1: half the rate.
    assert_eq!(p.flows(Instant(0))[0].limits.rate, 5_000_000_000);
    // Fast recovery comes back to the line rate within a few periods of 55 us, and the limit is forgotten.
    let mut now = 0;
    while p.remembered().1 > 0 && now < SECOND {
        now += 55_000;
        p.flows(Instant(now));
    }
    assert_eq!(p.remembered().1, 0, "after {now} ns");
    assert!(send(&mut p, now, &own_request(101), 1));
}
