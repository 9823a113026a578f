//! Coalescing against a GRO that is written here, from the rules and in another way, over random streams of segments: the same
//! segments join, each flow has the same bytes in the same order as without, and headers are those of the first and the last.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use etherparse as ep;
use proptest::prelude::*;
use vnic_engine::offload::coalesce::{Coalescer, LOOK, Seen, Verdict};
use vnic_engine::offload::{HEAD_MAX, Request, Segmenter, check};
use vnic_engine::virtio_net::NetHdr;
use vnic_wire::{checksum, tcp};

/// What a frame is made from.
#[derive(Debug, Clone, PartialEq)]
struct Spec {
    flow: u8,
    tag: Option<u16>,
    source_mac: u8,
    class: u8,
    lifetime: u8,
    label: u16,
    fragment: u16,
    id: u16,
    ip_options: bool,
    protocol: u8,
    sequence: u32,
    ack: u32,
    window: u16,
    flags: u16,
    /// Bytes of TCP options.
    options: Vec<u8>,
    payload: Vec<u8>,
    padding: usize,
    /// How the checksum is: computed, left partial, or wrong.
    sum: Sum,
    /// A segmentation request instead.
    gso: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sum {
    Full,
    Partial,
    Wrong,
    WrongIp,
}

impl Spec {
    fn v6(&self) -> bool {
        self.flow % 2 == 1
    }

    fn network(&self) -> usize {
        if self.tag.is_some() { 18 } else { 14 }
    }

    fn transport(&self) -> usize {
        self.network()
            + match (self.v6(), self.ip_options) {
                (true, options) => 40 + 8 * usize::from(options),
                (false, options) => 20 + 4 * usize::from(options),
            }
    }

    fn head_len(&self) -> usize {
        self.transport() + 20 + self.options.len()
    }

    fn len(&self) -> usize {
        self.head_len() + self.payload.len()
    }

    fn build(&self) -> (NetHdr, Vec<u8>) {
        let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, self.source_mac];
        if let Some(tag) = self.tag {
            f.extend([0x81, 0]);
            f.extend(tag.to_be_bytes());
        }
        let upper = 20 + self.options.len() + self.payload.len();
        let network = self.network();
        if self.v6() {
            let word = 6 << 28 | u32::from(self.class) << 20 | u32::from(self.label);
            f.extend([0x86, 0xdd]);
            f.extend(word.to_be_bytes());
            let extra = 8 * usize::from(self.ip_options);
            f.extend(((upper + extra) as u16).to_be_bytes());
            f.extend([if self.ip_options { 60 } else { self.protocol }, self.lifetime]);
            f.extend([1; 16]);
            f.extend([2; 15]);
            f.push(self.flow);
            if self.ip_options {
                f.extend([self.protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            f.extend([8, 0, 0x45 + u8::from(self.ip_options), self.class]);
            f.extend(((self.transport() - network + upper) as u16).to_be_bytes());
            f.extend(self.id.to_be_bytes());
            f.extend(self.fragment.to_be_bytes());
            f.extend([
                self.lifetime,
                self.protocol,
                0,
                0,
                10,
                0,
                0,
                1,
                10,
                0,
                0,
                self.flow,
            ]);
            f.resize(self.transport(), 1);
            let sum = !checksum::fold(checksum::sum(&f[network..]));
            let wrong = u16::from(self.sum == Sum::WrongIp);
            f[network + 10..network + 12].copy_from_slice(&(sum ^ wrong).to_be_bytes());
        }
        let transport = f.len();
        f.extend([0x12, 0x34, 0, 80]);
        f.extend(self.sequence.to_be_bytes());
        f.extend(self.ack.to_be_bytes());
        let offset = (5 + self.options.len() / 4) as u16;
        f.extend((offset << 12 | self.flags).to_be_bytes());
        f.extend(self.window.to_be_bytes());
        f.extend([0; 4]);
        f.extend(&self.options);
        f.extend(&self.payload);
        let pseudo = checksum::sum(addresses(&f, network, self.v6())) + 6 + upper as u32;
        let sum = match self.sum {
            Sum::Partial => checksum::fold(pseudo),
            Sum::Full | Sum::WrongIp => !checksum::fold(pseudo + checksum::sum(&f[transport..])),
            Sum::Wrong => checksum::fold(pseudo + checksum::sum(&f[transport..])),
        };
        f[transport + 16..transport + 18].copy_from_slice(&sum.to_be_bytes());
        f.resize(f.len() + self.padding, 0);
        let mut hdr = NetHdr::default();
        if self.sum == Sum::Partial || self.gso {
            hdr.flags = NetHdr::NEEDS_CSUM;
            hdr.csum_start = transport as u16;
            hdr.csum_offset = 16;
        }
        if self.gso {
            hdr.gso_type = if self.v6() {
                NetHdr::GSO_TCPV6
            } else {
                NetHdr::GSO_TCPV4
            };
            hdr.gso_size = 100;
        }
        (hdr, f)
    }
}

fn addresses(f: &[u8], network: usize, v6: bool) -> &[u8] {
    if v6 {
        &f[network + 8..network + 40]
    } else {
        &f[network + 12..network + 20]
    }
}

/// What leaves: which frames it is made from, header, bytes.
#[derive(Debug, Clone, PartialEq)]
struct Out {
    of: Vec<usize>,
    hdr: NetHdr,
    bytes: Vec<u8>,
}

/// The product, driven as a data core drives it. Returns also the number of aborts.
fn product(frames: &[(NetHdr, Vec<u8>)]) -> (Vec<Out>, usize) {
    let mut table: Coalescer<u8> = Coalescer::default();
    let mut pieces: Vec<Vec<usize>> = vec![Vec::new(); 8];
    let (mut out, mut aborts) = (Vec::new(), 0);
    let end = |table: &mut Coalescer<u8>, pieces: &mut Vec<Vec<usize>>, unit: usize, out: &mut Vec<Out>| {
        let u = table.end(unit).unwrap();
        let of = std::mem::take(&mut pieces[unit]);
        assert_eq!(of.len(), usize::from(u.segments()));
        let mut bytes = u.head().to_vec();
        let skip = bytes.len();
        bytes.extend(&frames[of[0]].1[skip..]);
        for &i in &of[1..] {
            let head = Seen::of(&frames[i].1, &frames[i].0, frames[i].1.len()).unwrap();
            bytes.extend(&frames[i].1[head.head_len().unwrap()..]);
        }
        assert_eq!(bytes.len(), u.len());
        out.push(Out {
            of,
            hdr: u.hdr(),
            bytes,
        });
    };
    for (i, (hdr, bytes)) in frames.iter().enumerate() {
        let head = &bytes[..bytes.len().min(LOOK)];
        let Some(mut seen) = Seen::of(head, hdr, bytes.len()) else {
            out.push(Out {
                of: vec![i],
                hdr: *hdr,
                bytes: bytes.clone(),
            });
            continue;
        };
        if let Some((pseudo, from)) = seen.sum()
            && !seen.is_partial
            && checksum::fold(pseudo + checksum::sum(&bytes[from..])) != 0xffff
        {
            seen.distrust();
        }
        loop {
            match table.judge(&0, &seen) {
                Verdict::Ends { unit, aborted } => {
                    aborts += usize::from(aborted);
                    end(&mut table, &mut pieces, unit, &mut out);
                    continue;
                }
                Verdict::Alone => out.push(Out {
                    of: vec![i],
                    hdr: *hdr,
                    bytes: bytes.clone(),
                }),
                Verdict::Begins => {
                    let unit = table.begin(0, &seen, *hdr).unwrap();
                    pieces[unit] = vec![i];
                }
                Verdict::Joins { unit, closes } => {
                    table.join(unit, &seen);
                    pieces[unit].push(i);
                    if closes {
                        end(&mut table, &mut pieces, unit, &mut out);
                    }
                }
            }
            break;
        }
    }
    while let Some(unit) = table.oldest() {
        end(&mut table, &mut pieces, unit, &mut out);
    }
    (out, aborts)
}

/// Timestamps of options that are those alone.
fn stamps(options: &[u8]) -> Option<(u32, u32)> {
    let rest = options.strip_prefix(&[1, 1, 8, 10])?;
    let (a, b) = rest.split_at(4);
    Some((
        u32::from_be_bytes(a.try_into().unwrap()),
        u32::from_be_bytes(b.try_into().unwrap()),
    ))
}

fn back(new: u32, old: u32) -> bool {
    new.wrapping_sub(old) > i32::MAX as u32
}

/// Whether a segment by itself may be in a unit.
fn may_join(s: &Spec) -> bool {
    let known = s.options.is_empty() || stamps(&s.options).is_some_and(|_| s.options.len() == 12);
    !s.payload.is_empty()
        && !s.ip_options
        && s.padding == 0
        && !s.gso
        && (s.v6() || s.fragment & 0x3fff == 0)
        && matches!(s.sum, Sum::Full | Sum::Partial)
        && s.flags & tcp::ACK != 0
        && s.flags & !(tcp::ACK | tcp::PSH | tcp::ECE) == 0
        && known
}

/// Whether `s` may follow `before` in a unit that began with `first`.
fn may_follow(first: &Spec, before: &Spec, s: &Spec) -> bool {
    let (new, old) = (stamps(&s.options), stamps(&before.options));
    let stamps_fit = match (new, old) {
        (None, None) => true,
        (Some(new), Some(old)) => !back(new.0, old.0) && !back(new.1, old.1),
        _ => false,
    };
    let ids_fit = s.v6() || s.fragment & 0x4000 != 0 || s.id == before.id.wrapping_add(1);
    let same = |s: &Spec| {
        let v4 = (!s.v6()).then_some(s.fragment);
        let label = s.v6().then_some(s.label);
        (
            s.tag,
            s.source_mac,
            s.class,
            s.lifetime,
            v4,
            label,
            s.flags & tcp::ECE,
        )
    };
    same(s) == same(first)
        && stamps_fit
        && ids_fit
        && s.sequence == before.sequence.wrapping_add(before.payload.len() as u32)
        && !back(s.ack, before.ack)
        && s.payload.len() <= first.payload.len()
}

/// The rules, over a whole burst: which frames leave together, in which order. Returns also the number of aborts.
fn rules(specs: &[Spec]) -> (Vec<Vec<usize>>, usize) {
    let mut out = Vec::new();
    let mut aborts = 0;
    let mut open: Vec<Vec<usize>> = Vec::new();
    for (i, s) in specs.iter().enumerate() {
        if s.protocol != 6 {
            out.push(vec![i]);
            continue;
        }
        // Fragments and what is behind extension headers has no ports to compare: here a flow has its own addresses.
        if let Some(at) = open.iter().position(|u| specs[u[0]].flow == s.flow) {
            let unit = &open[at];
            let (first, last) = (&specs[unit[0]], &specs[unit[unit.len() - 1]]);
            let total: usize = unit.iter().map(|&k| specs[k].payload.len()).sum();
            let fits = first.head_len() - first.network() + total + s.payload.len() <= 65_535;
            let follows = may_join(s) && may_follow(first, last, s);
            if follows && fits {
                open[at].push(i);
                if s.flags & tcp::PSH != 0 || s.payload.len() < specs[open[at][0]].payload.len() {
                    out.push(open.remove(at));
                }
                continue;
            }
            aborts += usize::from(!follows);
            out.push(open.remove(at));
        }
        if !may_join(s) || s.flags & tcp::PSH != 0 || s.len() < 256 {
            out.push(vec![i]);
            continue;
        }
        if open.len() == 8 {
            aborts += 1;
            out.push(open.remove(0));
        }
        open.push(vec![i]);
    }
    out.extend(open);
    (out, aborts)
}

/// What happens next in a flow.
#[derive(Debug, Clone, Copy)]
struct Step {
    flow: u8,
    what: u8,
    n: u16,
}

fn step() -> impl Strategy<Value = Step> {
    // Most segments go on where the last one ended.
    let what = prop_oneof![6 => 0u8..4, 1 => 4u8..32];
    (0u8..12, what, any::<u16>()).prop_map(|(flow, what, n)| Step {
        flow: if flow < 10 { flow % 3 } else { flow },
        what,
        n,
    })
}

/// The frames of a walk through all flows.
fn walk(steps: &[Step], size: usize, partial: bool, stamped: u8) -> Vec<Spec> {
    let fresh = |flow: u8| Spec {
        flow,
        tag: (flow == 2).then_some(5),
        source_mac: 9,
        class: 2,
        lifetime: 64,
        label: 77,
        fragment: if flow == 0 { 0 } else { 0x4000 },
        id: 65_530,
        ip_options: false,
        protocol: 6,
        sequence: u32::MAX - 3000,
        ack: 1000,
        window: 500,
        flags: tcp::ACK,
        options: match stamped {
            0 => Vec::new(),
            _ => [&[1, 1, 8, 10][..], &[0xff; 3], &[0xf0, 0, 0, 1, 0]].concat(),
        },
        payload: Vec::new(),
        padding: 0,
        sum: if partial { Sum::Partial } else { Sum::Full },
        gso: false,
    };
    let mut flows: Vec<Spec> = (0..16).map(fresh).collect();
    let mut out = Vec::new();
    for Step { flow, what, n } in steps {
        let f = &mut flows[usize::from(*flow)];
        f.payload = (0..size)
            .map(|i| (i as u8).wrapping_mul(*flow + 3).wrapping_add(*n as u8))
            .collect();
        // What stays changed in the flow.
        match what {
            1 => f.ack = f.ack.wrapping_add(u32::from(*n)),
            2 => f.window = *n,
            3 if stamped > 0 => {
                let (value, echo) = stamps(&f.options).unwrap_or((0, 0));
                let value = value.wrapping_add(u32::from(*n)).to_be_bytes();
                let echo = echo.wrapping_add(u32::from(*n & 3)).to_be_bytes();
                f.options = [&[1, 1, 8, 10][..], &value, &echo].concat();
            }
            4 => f.class = (*n & 3) as u8,
            5 => f.lifetime = 60 + (*n & 3) as u8,
            6 => f.label = *n & 3,
            7 => f.fragment ^= 0x4000,
            8 => f.sequence = f.sequence.wrapping_add(u32::from(*n & 7)),
            9 => f.sequence = f.sequence.wrapping_sub(u32::from(*n & 2047)),
            10 => f.ack = f.ack.wrapping_sub(u32::from(*n & 7)),
            11 => f.id = *n,
            12 => f.source_mac = (*n & 3) as u8,
            13 => f.tag = (*n & 1 == 1).then_some(n >> 8 & 3),
            14 if stamped > 0 => {
                let (value, echo) = stamps(&f.options).unwrap_or((0, 0));
                let value = value.wrapping_sub(u32::from(*n & 3)).to_be_bytes();
                let echo = echo.wrapping_sub(u32::from(*n >> 8 & 1)).to_be_bytes();
                f.options = [&[1, 1, 8, 10][..], &value, &echo].concat();
            }
            _ => {}
        }
        let mut s = f.clone();
        // What is of this frame alone.
        match what {
            15 => s.flags |= tcp::PSH,
            16 => s.flags |= tcp::FIN,
            17 => s.flags |= tcp::SYN,
            18 => s.flags |= tcp::RST,
            19 => s.flags |= tcp::URG,
            20 => s.flags |= tcp::CWR,
            21 => s.flags |= tcp::ECE,
            22 => s.payload.truncate(usize::from(*n) % (size + 1)),
            23 => s.payload.extend([1, 2, 3, 4]),
            24 => s.payload.clear(),
            25 => s.options = [2, 4, 5, 180].into(),
            26 => s.sum = Sum::Wrong,
            27 => s.fragment |= 0x2000,
            28 => s.ip_options = true,
            29 => s.padding = 1 + usize::from(*n & 3),
            30 => s.gso = true,
            31 if n & 1 == 1 => s.protocol = 17,
            31 if !s.v6() => s.sum = Sum::WrongIp,
            _ => {}
        }
        f.sequence = f.sequence.wrapping_add(s.payload.len() as u32);
        f.id = f.id.wrapping_add(1);
        out.push(s);
    }
    out
}

/// Checks a unit of several segments: it is what the first says, with the last's news, and cut again it has the same payloads.
fn is_whole(out: &Out, specs: &[Spec]) {
    let [first, .., last] = [&out.of[..1], &out.of[..]].map(|of| &specs[of[of.len() - 1]]);
    let (network, transport) = (first.network(), first.transport());
    let payload: Vec<u8> = out.of.iter().flat_map(|&i| specs[i].payload.clone()).collect();
    assert_eq!(&out.bytes[first.head_len()..], payload);
    let tcp = ep::TcpHeaderSlice::from_slice(&out.bytes[transport..]).unwrap();
    assert_eq!(tcp.sequence_number(), first.sequence);
    assert_eq!(tcp.acknowledgment_number(), last.ack);
    assert_eq!(tcp.window_size(), last.window);
    assert_eq!(tcp.psh(), last.flags & tcp::PSH != 0);
    assert_eq!(tcp.ece(), first.flags & tcp::ECE != 0);
    assert_eq!(tcp.options(), last.options);
    let upper = out.bytes.len() - transport;
    let pseudo = checksum::sum(addresses(&out.bytes, network, first.v6())) + 6 + upper as u32;
    assert_eq!(tcp.checksum(), checksum::fold(pseudo));
    if first.v6() {
        let ip = ep::Ipv6HeaderSlice::from_slice(&out.bytes[network..]).unwrap();
        assert_eq!(usize::from(ip.payload_length()), upper);
        assert_eq!(ip.traffic_class(), first.class);
        assert_eq!(ip.hop_limit(), first.lifetime);
    } else {
        let ip = ep::Ipv4HeaderSlice::from_slice(&out.bytes[network..]).unwrap();
        assert_eq!(usize::from(ip.total_len()), out.bytes.len() - network);
        assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
        assert_eq!(ip.identification(), first.id);
        assert_eq!(ip.ttl(), first.lifetime);
    }
    assert_eq!(out.hdr.flags, NetHdr::NEEDS_CSUM | NetHdr::RSC_INFO);
    let head = &out.bytes[..out.bytes.len().min(HEAD_MAX)];
    let Request::Tso(tso) = check(&out.hdr, head, out.bytes.len()).unwrap() else {
        panic!("{:?}", out.hdr);
    };
    let mut cutter = Segmenter::new(&tso, head, out.bytes.len());
    let mut headers = [0; HEAD_MAX];
    for &i in &out.of {
        let cut = cutter.next(&mut headers).unwrap();
        assert_eq!(cut.payload_len, specs[i].payload.len());
        if !first.v6() && first.fragment & 0x4000 == 0 {
            assert_eq!(headers[network + 4..network + 6], specs[i].id.to_be_bytes());
        }
    }
    assert_eq!(cutter.next(&mut headers), None);
}

/// Frames of a flow, in order.
fn of_flow(specs: &[Spec], flow: u8, order: impl Iterator<Item = usize>) -> Vec<usize> {
    order.filter(|&i| specs[i].flow == flow).collect()
}

fn compare(specs: &[Spec]) -> usize {
    let frames: Vec<_> = specs.iter().map(Spec::build).collect();
    let (out, aborts) = product(&frames);
    let (wanted, ended) = rules(specs);
    let of: Vec<_> = out.iter().map(|o| o.of.clone()).collect();
    assert_eq!(of, wanted);
    assert_eq!(aborts, ended);
    for o in &out {
        if let [i] = o.of[..] {
            assert_eq!((o.hdr, &o.bytes), (frames[i].0, &frames[i].1));
        } else {
            is_whole(o, specs);
        }
    }
    for flow in 0..16 {
        let tcp = |i: &usize| specs[*i].protocol == 6;
        let left = of_flow(specs, flow, of.iter().flatten().copied().filter(tcp));
        assert_eq!(left, of_flow(specs, flow, (0..specs.len()).filter(tcp)));
    }
    of.iter().map(|of| of.len() - 1).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn merges_are_those_of_the_rules(
        steps in prop::collection::vec(step(), 1..64),
        size in prop_oneof![Just(1448usize), Just(536), 1usize..2000],
        partial: bool,
        stamped in 0u8..2,
    ) {
        compare(&walk(&steps, size, partial, stamped));
    }

    #[test]
    fn any_bytes_are_looked_at(head in prop::collection::vec(any::<u8>(), 0..LOOK), v6: bool, hdr: [u8; 10], more in 0usize..2000) {
        let mut head = head;
        if head.len() > 14 {
            head[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
            head[14] = if v6 { 0x60 } else { 0x45 };
        }
        let mut table: Coalescer<u8> = Coalescer::default();
        let hdr = NetHdr::parse(&hdr);
        let Some(seen) = Seen::of(&head, &hdr, head.len() + more) else { return Ok(()) };
        let _ = (seen.sum(), seen.head_len());
        if table.judge(&1, &seen) == Verdict::Begins {
            let unit = table.begin(1, &seen, hdr).unwrap();
            table.join(unit, &seen);
            let u = table.end(unit).unwrap();
            prop_assert!(u.head().len() <= u.len());
        }
    }
}

/// The walk is of use only if much of it merges.
#[test]
fn a_plain_stream_merges_up_to_the_longest_packet() {
    let steps = [Step {
        flow: 1,
        what: 0,
        n: 0,
    }; 64];
    let specs = walk(&steps, 1448, false, 1);
    // 45 segments of 1448 bytes are 65,160; with IPv6 and TCP with timestamps one more is too long.
    assert_eq!(compare(&specs), 64 - 2);
    let (units, aborts) = rules(&specs);
    assert_eq!((units[0].len(), aborts), (45, 0));
}
