use vnic_wire::MacAddr;

use super::*;

/// A packet: its virtio header, headers up to UDP, and a payload that contains its number.
fn packet(number: u8, len: usize, tag: bool, source_port: u16) -> Vec<u8> {
    let mut f = vec![0; VNET];
    f.extend_from_slice(&MacAddr([2, 0, 0, 0, 0, 2]).0);
    f.extend_from_slice(&MacAddr([2, 0, 0, 0, 0, 1]).0);
    if tag {
        f.extend_from_slice(&[0x81, 0, 0x60, 7]);
    }
    f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
    let udp_len = ((UDP + len) as u16).to_be_bytes();
    f.extend_from_slice(&udp_len);
    f.extend_from_slice(&[17, 64]);
    f.extend_from_slice(&[0xfe; 16]);
    f.extend_from_slice(&[0xfd; 16]);
    f.extend_from_slice(&source_port.to_be_bytes());
    f.extend_from_slice(&ROCE);
    f.extend_from_slice(&udp_len);
    f.extend_from_slice(&[0, 0]);
    f.extend((0..len).map(|i| number ^ i as u8));
    f
}

/// A packet over IPv4 with this identification.
fn packet_v4(id: u16, len: usize, tag: bool) -> Vec<u8> {
    let six = packet(id as u8, len, tag, 0xc001);
    let at = VNET + if tag { ETHERNET + TAG } else { ETHERNET };
    let mut f = six[..at].to_vec();
    f[at - 2..].copy_from_slice(&[8, 0]);
    f.extend_from_slice(&[
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    f.extend_from_slice(&six[at + IPV6..]);
    Network {
        at: at - VNET,
        v4: true,
    }
    .renew(&mut f[VNET..], (UDP + len) as u16, id);
    f
}

/// Messages to the kernel for these frames.
fn messages(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all: Vec<(Option<Train>, Vec<u8>)> = Vec::new();
    for frame in frames {
        if let Some((Some(train), long)) = all.last_mut()
            && let Some(from) = train.take(long, frame)
        {
            long.extend_from_slice(&frame[from..]);
            // As after a full device: more frames may join.
            train.close(long);
        } else {
            all.push((Train::of(frame), frame.clone()));
        }
    }
    all.into_iter().map(|(_, long)| long).collect()
}

/// Packets of a message, as the receiver cuts it.
fn cut(message: &[u8]) -> Vec<Vec<u8>> {
    let mut hdr = [0; VNET];
    hdr.copy_from_slice(&message[..VNET]);
    let hdr = NetHdr::parse(&hdr);
    let mut bytes = message.to_vec();
    let Some(mut bundle) = Bundle::of(&bytes, VNET, &hdr) else {
        return vec![message.to_vec()];
    };
    let mut out = Vec::new();
    while let Some(range) = bundle.next(&mut bytes) {
        out.push([&[0; VNET][..], &bytes[range]].concat());
    }
    out
}

#[test]
fn a_message_of_rdma_goes_as_one_and_comes_as_it_was() {
    for tag in [false, true] {
        let mut frames: Vec<_> = (0..20).map(|i| packet(i, 1040, tag, 0xc001)).collect();
        frames.push(packet(20, 300, tag, 0xc001));
        frames.push(packet(21, 1040, tag, 0xc001));
        let sent = messages(&frames);
        // The shorter packet is the last of its datagram.
        assert_eq!(sent.len(), 2);
        assert_eq!(cut(&sent[0]), &frames[..21]);
        assert_eq!(sent[1], frames[21]);
    }
}

#[test]
fn for_a_kernel_that_does_not_take_them_as_one_they_are_cut_again() {
    for frames in [
        (0..20).map(|i| packet(i, 1040, true, 0xc001)).collect::<Vec<_>>(),
        (0..20).map(|i| packet_v4(i, 100, false)).collect(),
    ] {
        let sent = messages(&frames);
        assert_eq!(sent.len(), 1);
        let mut several = Singly::of(&sent[0]).expect("several");
        for frame in &frames {
            assert_eq!(several.next(), Some(&frame[..]));
        }
        assert!(several.next().is_none());
    }
    assert!(Singly::of(&packet(0, 100, false, 0xc001)).is_none());
    assert!(Singly::of(&[0; 4]).is_none());
}

#[test]
fn packets_of_ipv4_go_as_one_when_their_numbers_follow_each_other() {
    for tag in [false, true] {
        let frames: Vec<_> = [0xfffe, 0xffff, 0, 1, 1, 2, 4, 5]
            .map(|id| packet_v4(id, 1040, tag))
            .to_vec();
        let sent = messages(&frames);
        assert_eq!(sent.len(), 3);
        let back: Vec<_> = sent.iter().flat_map(|m| cut(m)).collect();
        assert_eq!(back, frames);
    }
    let joined = messages(&[packet_v4(7, 100, false), packet_v4(8, 60, false)]).remove(0);
    let ip = &joined[VNET + ETHERNET..][..IPV4];
    assert_eq!(number(ip, IPV4_LEN), 188);
    assert_eq!(number(ip, IPV4_ID), 7);
    assert_eq!(fold(sum(ip)), 0xffff, "the sum with its checksum");
    let check = number(&joined[VNET + ETHERNET + IPV4..], UDP_CHECK);
    assert_eq!(check, fold(pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, 168)));
    // Fragments and options.
    for (at, byte) in [(6, 0x20), (7, 1), (0, 0x46)] {
        let mut other = packet_v4(8, 100, false);
        other[VNET + ETHERNET + at] = byte;
        let frames = [packet_v4(7, 100, false), other];
        assert_eq!(messages(&frames), frames);
    }
}

#[test]
fn a_longer_first_packet_takes_one_along() {
    let mut frames = vec![packet(0, 1056, false, 0xc001)];
    frames.extend((1..64).map(|i| packet(i, 1040, false, 0xc001)));
    let sent = messages(&frames);
    assert_eq!(cut(&sent[0]), &frames[..2]);
    assert_eq!(cut(&sent[1]), &frames[2..]);
    assert_eq!(sent.len(), 2);
}

#[test]
fn the_long_datagram_has_sound_headers() {
    let frames: Vec<_> = (0..3).map(|i| packet(i, 100, false, 0xc001)).collect();
    let sent = messages(&frames).remove(0);
    let mut hdr = [0; VNET];
    hdr.copy_from_slice(&sent[..VNET]);
    let hdr = NetHdr::parse(&hdr);
    assert_eq!((hdr.gso_type, hdr.gso_size, hdr.hdr_len), (GSO_UDP_L4, 100, 62));
    assert_eq!((hdr.csum_start, hdr.csum_offset), (54, 6));
    let ip = &sent[VNET + ETHERNET..];
    assert_eq!(ip[IPV6_LEN], 308u16.to_be_bytes());
    assert_eq!(ip[IPV6..][UDP_LEN], 308u16.to_be_bytes());
    // The unfinished sum is that of the pseudo header: RFC 8200 section 8.1.
    let sum = fold(pseudo_v6(&[0xfe; 16], &[0xfd; 16], 17, 308));
    assert_eq!(ip[IPV6..][UDP_CHECK], sum.to_be_bytes());
}

#[test]
fn what_is_no_part_of_it_goes_by_itself() {
    let plain = packet(0, 100, false, 0xc001);
    let edit = |at: usize, byte: u8| {
        let mut other = packet(1, 100, false, 0xc001);
        other[at] = byte;
        other
    };
    let others = [
        packet(1, 100, false, 0xc002),
        packet(1, 101, false, 0xc001),
        packet(1, 100, true, 0xc001),
        // Unfinished, another destination, another protocol, ECN, a checksum, a length that is wrong.
        edit(0, 1),
        edit(VNET, 4),
        edit(VNET + ETHERNET + 6, 6),
        edit(VNET + ETHERNET + 1, 0x10),
        edit(VNET + ETHERNET + IPV6 + 7, 1),
        edit(VNET + ETHERNET + 5, 99),
    ];
    for other in others {
        let frames = [plain.clone(), other];
        assert_eq!(messages(&frames), frames);
    }
    let padded = [plain.clone(), [packet(1, 2, false, 0xc001), vec![0; 8]].concat()];
    assert_eq!(messages(&padded), padded);
    let short = [vec![0; VNET], vec![0; VNET + 13], vec![0; 4]];
    assert_eq!(messages(&short), short);
}

#[test]
fn it_is_never_longer_than_the_kernel_passes_uncut() {
    let frames: Vec<_> = (0..32).map(|i| packet(i, 4112, false, 0xc001)).collect();
    let sent = messages(&frames);
    assert!(sent.iter().all(|m| m.len() <= VNET + FRAME_MAX), "a long one");
    assert_eq!(sent.len(), 3);
    let back: Vec<_> = sent.iter().flat_map(|m| cut(m)).collect();
    assert_eq!(back, frames);
}

#[test]
fn what_comes_may_be_anything() {
    let frames: Vec<_> = (0..3).map(|i| packet(i, 100, false, 0xc001)).collect();
    let good = messages(&frames).remove(0);
    for len in 0..good.len() {
        let hdr = NetHdr {
            gso_type: GSO_UDP_L4,
            gso_size: 100,
            ..NetHdr::default()
        };
        assert!(Bundle::of(&good[..len], VNET, &hdr).is_none(), "{len}");
    }
    // Empty segments would never end.
    let none = NetHdr {
        gso_type: GSO_UDP_L4,
        ..NetHdr::default()
    };
    assert!(Bundle::of(&good, VNET, &none).is_none());
}
