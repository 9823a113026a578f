//! Checksums and TCP segmentation: handed on to guests that take them, finished for those that do not.

use anyhow::Result;
use vnic_backend::{DropReason, VlanMode};
use vnic_engine::offload::Segmenter;
use vnic_tests::driver::packets::{
    BROADCAST, FIRST_SEQ, Flow, eth, parse, pattern, tcp, tso, udp, udp_partial, uso,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, Layout, NetHdr, OFFLOADS, Options, feature};
use vnic_wire::checksum;

fn capable() -> Options {
    Options {
        tx_buffer: 66000,
        queue_size: 64,
        ..Options::default()
    }
    .with(OFFLOADS)
}

fn recv(g: &mut Guest) -> (NetHdr, Vec<u8>) {
    let (hdr, _, frame) = g.recv(0, deadline()).expect("a frame");
    (hdr, frame)
}

/// Receives the segments of a request and puts them together.
fn reassemble(g: &mut Guest, payload: &[u8], size: usize, vlan: Option<u16>) -> u64 {
    let mut at = 0;
    let mut segments = 0;
    while at < payload.len() || segments == 0 {
        let (hdr, frame) = recv(g);
        assert_eq!(hdr, NetHdr::default());
        let p = parse(&frame);
        let len = size.min(payload.len() - at);
        let last = at + len == payload.len();
        assert_eq!(p.seq, FIRST_SEQ.wrapping_add(at as u32), "segment {segments}");
        assert_eq!(p.fin_psh, (last, last), "segment {segments}");
        assert_eq!(p.vlan, vlan);
        assert!(
            p.payload == payload[at..at + len],
            "payload of segment {segments}"
        );
        at += len;
        segments += 1;
    }
    segments
}

fn flows(to: vnic_backend::MacAddr, from: vnic_backend::MacAddr) -> Vec<Flow> {
    let mut all = vec![];
    for v6 in [false, true] {
        for vlan in [None, Some(7)] {
            all.push(Flow {
                to,
                from,
                v6,
                vlan,
                port: 1000,
            });
        }
    }
    all
}

/// Runs on one or two data cores: on two, the receiver's core finishes the frame.
fn offloads(cores: usize) -> Result<()> {
    let mut rig = Rig::new(cores)?;
    let (a, b, c) = (rig.add("a")?, rig.add("b")?, rig.add("c")?);
    let mut ga = rig.attach("a", capable())?;
    let mut extra = 0;
    let mut gb = rig.attach("b", capable())?;
    let mut passed = 0;
    for flow in flows(b, a) {
        let (f, hdr) = udp_partial(&flow, &pattern(777));
        ga.send_wait(0, &f, hdr);
        assert_eq!(recv(&mut gb), (hdr, f));
        // One frame of 60 KB, as it is.
        let payload = pattern(60_000);
        let (f, hdr) = tso(&flow, &payload, 1400);
        ga.send_wait(0, &f, hdr);
        assert_eq!(recv(&mut gb), (hdr, f));
        passed += 1;
    }
    rig.settle()?;
    assert_eq!(rig.counter("b", "rx_tso_passed"), passed);
    gb.detach()?;
    // The same to guests that do not take it, or not all of it.
    let mut cut = 0;
    for lacking in [
        OFFLOADS,
        feature::GUEST_TSO4 | feature::GUEST_TSO6 | feature::GUEST_ECN,
    ] {
        let mut o = capable().without(lacking);
        (o.rx_layout, o.queue_size) = (Layout::Split(5), 512);
        let mut gb = rig.attach("b", o)?;
        for flow in flows(b, a) {
            for len in [0, 1, 2, 333, 1001] {
                let (f, hdr) = udp_partial(&flow, &pattern(len));
                ga.send_wait(0, &f, hdr);
                let (got_hdr, got) = recv(&mut gb);
                if lacking & feature::GUEST_CSUM != 0 {
                    assert_eq!(got_hdr, NetHdr::default());
                    assert_eq!(parse(&got).payload, pattern(len));
                    assert_eq!(got, udp(&flow, &pattern(len)));
                } else {
                    assert_eq!((got_hdr, got), (hdr, f));
                }
            }
            for (len, size) in [
                (60_000, 1400),
                (1401, 1400),
                (1400, 1400),
                (1, 1400),
                (0, 1400),
                (5000, 8),
                (900, 77),
                (300, 200),
            ] {
                let payload = pattern(len);
                let (f, hdr) = tso(&flow, &payload, size);
                rig.settle()?;
                let sent = rig.counter("a", "tx_frames");
                ga.send_wait(0, &f, hdr);
                let mut o = 0;
                // Requests of 32 segments come of one of more than 128.
                let mut requests = 1;
                let segments = if len == 5000 {
                    requests = 20;
                    // More segments than receive buffers: what comes, comes in order and intact.
                    while o < 64 {
                        let (_, got) = recv(&mut gb);
                        let p = parse(&got);
                        assert_eq!(p.seq, FIRST_SEQ.wrapping_add(8 * o));
                        assert!(p.payload == payload[8 * o as usize..8 * o as usize + 8]);
                        o += 1;
                    }
                    ga.drain();
                    // (Its buffer is completed before its parts are sent, a turn each.)
                    let parts = || rig.counter("a", "tx_frames") == sent + requests;
                    assert!(wait_for(parts), "the parts do not come");
                    rig.settle()?;
                    while gb.try_recv(0).is_some() {}
                    625
                } else {
                    reassemble(&mut gb, &payload, size.into(), flow.vlan)
                };
                extra += segments - requests;
                cut += requests;
            }
        }
        gb.detach()?;
        gb.mem().check_canaries()?;
    }
    rig.settle()?;
    assert_eq!(rig.counter("a", "tx_tso_cut"), if cores == 1 { cut } else { 0 });
    // To both kinds at once.
    let mut gb = rig.attach("b", capable())?;
    let mut gc = rig.attach("c", Options::default().with(feature::RING_EVENT_IDX))?;
    let _ = c;
    for flow in flows(BROADCAST, a) {
        let payload = pattern(20_000);
        let (f, hdr) = tso(&flow, &payload, 1000);
        ga.send_wait(0, &f, hdr);
        assert_eq!(recv(&mut gb), (hdr, f));
        extra += reassemble(&mut gc, &payload, 1000, flow.vlan);
    }
    assert!(gb.try_recv(0).is_none() && gc.try_recv(0).is_none());
    rig.finish(Copies::Extra(extra))
}

#[test]
fn offloads_on_one_core() -> Result<()> {
    offloads(1)
}

#[test]
fn offloads_across_cores() -> Result<()> {
    offloads(2)
}

/// A request of more than 128 segments becomes several, for those who cut them and for those who do not.
fn requests_of_many_segments(cores: usize) -> Result<()> {
    let mut rig = Rig::new(cores)?;
    let (a, _) = (rig.add("a")?, rig.add("b")?);
    let _ = (rig.add("c")?, rig.add("d")?);
    let mut ga = rig.attach("a", capable())?;
    let mut takers = [rig.attach("b", capable())?, rig.attach("c", capable())?];
    let plain = Options {
        queue_size: 512,
        ..Options::default()
    };
    let mut gd = rig.attach("d", plain)?;
    let mut extra = 0;
    let payload = pattern(20_000);
    for flow in flows(BROADCAST, a) {
        for datagrams in [false, true] {
            let (frame, hdr) = if datagrams {
                uso(&flow, &payload, 100)
            } else {
                tso(&flow, &payload, 100)
            };
            ga.send_wait(0, &frame, hdr);
            for taker in &mut takers {
                let mut at = 0;
                for len in [3200; 6].into_iter().chain([800]) {
                    let (got, mut part) = recv(taker);
                    assert_eq!(got, hdr);
                    // As one packet, which it is with its checksum finished.
                    let (start, field) = (
                        usize::from(hdr.csum_start),
                        usize::from(hdr.csum_start + hdr.csum_offset),
                    );
                    let sum = Segmenter::finish(checksum::sum(&part[start..]));
                    part[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                    let p = parse(&part);
                    assert!(p.payload == payload[at..at + len]);
                    if !datagrams {
                        assert_eq!(p.seq, FIRST_SEQ.wrapping_add(at as u32));
                        let last = at + len == payload.len();
                        assert_eq!(p.fin_psh, (last, last));
                    }
                    at += len;
                }
            }
            for at in (0..payload.len()).step_by(100) {
                let (got, segment) = recv(&mut gd);
                assert_eq!(got, NetHdr::default());
                let p = parse(&segment);
                assert!(p.payload == payload[at..at + 100] && p.vlan == flow.vlan);
                if !datagrams {
                    let last = at + 100 == payload.len();
                    assert_eq!(p.seq, FIRST_SEQ.wrapping_add(at as u32));
                    assert_eq!(p.fin_psh, (last, last));
                }
            }
            // Seven requests, each to two that take it, and two hundred segments.
            extra += 7 + 200;
        }
    }
    rig.settle()?;
    assert_eq!(rig.counter("a", "tx_frames"), 7 * 8);
    rig.finish(Copies::Extra(extra))
}

#[test]
fn requests_of_many_segments_on_one_core() -> Result<()> {
    requests_of_many_segments(1)
}

#[test]
fn requests_of_many_segments_across_cores() -> Result<()> {
    requests_of_many_segments(2)
}

/// A tag that is pushed or popped moves what the request points at.
#[test]
fn offloads_and_access_vlans() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let trunk = rig.add("trunk")?;
    let x = rig.add_with("x", |s| s.vlan = VlanMode::Access(7))?;
    let mut gt = rig.attach("trunk", capable())?;
    let mut gx = rig.attach("x", capable())?;
    let mut extra = 0;
    for round in 0..2 {
        for v6 in [false, true] {
            let untagged = Flow {
                to: BROADCAST,
                from: x,
                v6,
                vlan: None,
                port: 1,
            };
            let with_tag = Flow {
                from: trunk,
                vlan: Some(7),
                ..untagged
            };
            let payload = pattern(10_000);
            let (up, up_hdr) = tso(&untagged, &payload, 1000);
            gx.send_wait(0, &up, up_hdr);
            let (down, down_hdr) = tso(&with_tag, &payload, 1000);
            if round == 0 {
                // Both take requests as they are.
                let mut want = tso(
                    &Flow {
                        vlan: Some(7),
                        ..untagged
                    },
                    &payload,
                    1000,
                );
                want.0[6..12].copy_from_slice(&x.0);
                assert_eq!(recv(&mut gt), (want.1, want.0));
                gt.send_wait(0, &down, down_hdr);
                let want = tso(
                    &Flow {
                        from: trunk,
                        ..untagged
                    },
                    &payload,
                    1000,
                );
                assert_eq!(recv(&mut gx), (want.1, want.0));
            } else {
                extra += reassemble(&mut gt, &payload, 1000, Some(7)) - 1;
                gt.send_wait(0, &down, down_hdr);
                extra += reassemble(&mut gx, &payload, 1000, None) - 1;
                let (f, hdr) = udp_partial(&untagged, &pattern(99));
                gx.send_wait(0, &f, hdr);
                assert_eq!(
                    recv(&mut gt).1,
                    udp(
                        &Flow {
                            vlan: Some(7),
                            ..untagged
                        },
                        &pattern(99)
                    )
                );
            }
        }
        gt.detach()?;
        gx.detach()?;
        // Those that ask, and accept nothing.
        let asking = capable().without(OFFLOADS).with(feature::CSUM);
        gt = rig.attach("trunk", asking.clone())?;
        gx = rig.attach("x", asking)?;
    }
    rig.finish(Copies::Extra(extra))
}

#[test]
fn requests_without_sense() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", capable())?;
    let mut gb = rig.attach("b", capable())?;
    let flow = Flow {
        to: b,
        from: a,
        v6: false,
        vlan: None,
        port: 1,
    };
    let (f, good) = tso(&flow, &pattern(3000), 1000);
    let bad = [
        NetHdr { gso_type: 3, ..good },
        NetHdr { gso_type: 5, ..good },
        NetHdr {
            gso_type: NetHdr::GSO_ECN,
            ..good
        },
        NetHdr {
            gso_type: NetHdr::GSO_TCPV6,
            ..good
        },
        NetHdr { gso_size: 0, ..good },
        NetHdr { gso_size: 7, ..good },
        NetHdr { flags: 0, ..good },
        NetHdr {
            csum_start: 33,
            ..good
        },
        NetHdr {
            csum_offset: 15,
            ..good
        },
        NetHdr {
            csum_start: u16::MAX,
            csum_offset: u16::MAX,
            ..good
        },
        NetHdr {
            gso_type: 0,
            csum_start: 0,
            csum_offset: 6,
            ..good
        },
        NetHdr {
            gso_type: 0,
            csum_start: 14,
            csum_offset: 5000,
            ..good
        },
    ];
    for hdr in bad {
        ga.send_wait(0, &f, hdr);
    }
    // Not a request: the device ignores that the checksum was verified, and the hint.
    let whole = tcp(&flow, &pattern(1000));
    ga.send_wait(
        0,
        &whole,
        NetHdr {
            flags: NetHdr::DATA_VALID,
            hdr_len: 9999,
            ..NetHdr::default()
        },
    );
    assert_eq!(recv(&mut gb), (NetHdr::default(), whole));
    // Cut to the MTU it fits; uncut, or in segments that are too long, it does not.
    ga.send_wait(
        0,
        &f,
        NetHdr {
            gso_size: 1449,
            ..good
        },
    );
    ga.send_wait(0, &tcp(&flow, &pattern(1449)), NetHdr::default());
    ga.send_wait(
        0,
        &f,
        NetHdr {
            gso_size: 1448,
            ..good
        },
    );
    let (hdr, got) = recv(&mut gb);
    assert_eq!((hdr.gso_size, got.len()), (1448, f.len()));
    ga.send_wait(0, &eth(b, a, [8, 0], &[]), good);
    ga.drain();
    rig.settle()?;
    assert_eq!(rig.drops("a", DropReason::MalformedOffload), bad.len() as u64 + 1);
    assert_eq!(rig.drops("a", DropReason::MtuExceeded), 2);
    assert!(gb.try_recv(0).is_none());
    rig.finish(Copies::Extra(0))
}

/// A driver that has not negotiated checksums cannot ask for anything: what its headers say is not looked at.
#[test]
fn nothing_negotiated_nothing_asked() -> Result<()> {
    for tx_layout in [Layout::Same, Layout::Separate] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let silent = capable().without(OFFLOADS);
        let mut ga = rig.attach("a", Options { tx_layout, ..silent })?;
        let mut gb = rig.attach("b", capable())?;
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port: 1,
        };
        let (long, request) = tso(&flow, &pattern(3000), 1000);
        let (short, _) = tso(&flow, &pattern(900), 1000);
        ga.send_wait(0, &long, request);
        ga.send_wait(0, &short, request);
        assert_eq!(recv(&mut gb), (NetHdr::default(), short));
        ga.drain();
        rig.settle()?;
        assert_eq!(rig.drops("a", DropReason::MtuExceeded), 1);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Interesting only together: what is handed on, dropped for want of buffers, is not counted as handed on.
#[test]
fn a_dropped_request_was_not_passed() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", capable())?;
    let _gb = rig.attach("b", Options { post: 2, ..capable() })?;
    let flow = Flow {
        to: b,
        from: a,
        v6: false,
        vlan: None,
        port: 1,
    };
    let (f, hdr) = tso(&flow, &pattern(30_000), 1000);
    ga.send_wait(0, &f, hdr);
    ga.drain();
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::NoRxBuffer), 1);
    assert_eq!(rig.counter("b", "rx_tso_passed"), 0);
    rig.finish(Copies::Extra(0))
}

/// Datagrams in one frame: handed on to guests that take them, cut for those that do not.
#[test]
fn udp_segmentation() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", capable())?;
        let mut extra = 0;
        for lacking in [0, feature::GUEST_USO4 | feature::GUEST_USO6, OFFLOADS] {
            let mut gb = rig.attach("b", capable().without(lacking))?;
            for flow in flows(b, a) {
                for (len, size) in [(30_000, 1400), (1401, 1400), (1400, 1400), (900, 77)] {
                    let payload = pattern(len);
                    let (f, hdr) = uso(&flow, &payload, size);
                    ga.send_wait(0, &f, hdr);
                    if lacking == 0 {
                        let got = recv(&mut gb);
                        assert_eq!(got.0, hdr);
                        assert!(got.1 == f);
                        continue;
                    }
                    for piece in payload.chunks(usize::from(size)) {
                        let (hdr, frame) = recv(&mut gb);
                        let p = parse(&frame);
                        assert_eq!((hdr, p.vlan), (NetHdr::default(), flow.vlan));
                        assert!(p.payload == piece);
                    }
                    extra += payload.len().div_ceil(usize::from(size)) as u64 - 1;
                }
            }
            gb.detach()?;
        }
        // A datagram that would not fit the MTU.
        let mut gb = rig.attach("b", capable())?;
        let (f, hdr) = uso(&flows(b, a)[0], &pattern(3000), 1473);
        ga.send_wait(0, &f, hdr);
        ga.drain();
        rig.settle()?;
        assert_eq!(rig.drops("a", DropReason::MtuExceeded), 1);
        gb.detach()?;
        rig.finish(Copies::Extra(extra))?;
    }
    Ok(())
}
