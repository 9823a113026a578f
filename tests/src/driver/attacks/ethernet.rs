//! Guests that give the NIC as much to do as their rings can say.

use anyhow::{Result, ensure};
use vnic_backend::MacAddr;

use super::super::packets::{Flow, Number, numbered, pattern, tso};
use super::super::rig::Dice;
use super::super::{Desc, Guest, INDIRECT, NEXT, NetHdr, Options, Ring, WRITE, feature};
use super::{Attack, Place, full_call};

/// Memory of indirect tables, and what they describe.
const TABLE_AT: u64 = 1 << 40;
const TABLE_LEN: u64 = 64 << 10;
const FRAME_AT: u64 = TABLE_AT + (32 << 10);
/// Descriptors that a chain may have.
const CHAIN: u16 = 1024;
/// Bytes of virtio's header.
const HEADER: usize = 12;

/// Each buffer is available again as soon as it was used, as it is.
fn again(ring: &mut Ring) {
    ring.avail_idx = ring.used_idx().wrapping_add(ring.size());
    ring.publish();
}

/// A frame between the two, or to anybody.
fn frame(place: &Place, to: MacAddr, len: usize) -> Vec<u8> {
    let number = Number {
        sender: u32::MAX,
        stream: 0,
        seq: 0,
    };
    numbered(to, place.macs[0], number, len)
}

/// Both guests, the first one's buffers full of this frame.
pub(super) fn pair(place: &Place, options: [Options; 2], frame: &[u8], hdr: NetHdr) -> Result<[Guest; 2]> {
    let [a, b] = options;
    let mut guests = [Guest::attach(&place.eth[0], a)?, Guest::attach(&place.eth[1], b)?];
    while guests[0].tx(0).free() > 0 {
        ensure!(guests[0].stage(0, frame, hdr), "no room");
    }
    Ok(guests)
}

/// Goes on with what is in the rings.
pub(super) fn go_on(guests: &mut [Guest; 2]) {
    again(&mut guests[0].tx(0).ring);
    again(&mut guests[1].rx(0).ring);
}

fn endless(mut guests: [Guest; 2]) -> Attack {
    Box::new(move || {
        go_on(&mut guests);
        Ok(())
    })
}

pub(super) fn kicks(place: &Place, _: Dice) -> Result<Attack> {
    let plain = Options::default;
    let mut guests = [
        Guest::attach(&place.eth[0], plain())?,
        Guest::attach(&place.eth[1], plain())?,
    ];
    Ok(Box::new(move || {
        for guest in &mut guests {
            for ring in 0..2 {
                guest.ring(ring).kick();
            }
        }
        Ok(())
    }))
}

pub(super) fn floods(place: &Place, _: Dice) -> Result<Attack> {
    let frame = frame(place, MacAddr([2, 0xee, 0, 0, 0, 1]), 60);
    let options = [Options::default(), Options::default()];
    Ok(endless(pair(place, options, &frame, NetHdr::default())?))
}

pub(super) fn segments(place: &Place, _: Dice) -> Result<Attack> {
    let flow = Flow {
        to: place.macs[1],
        from: place.macs[0],
        v6: false,
        vlan: None,
        port: 1000,
    };
    let (frame, hdr) = tso(&flow, &pattern(60_000), 8);
    let sender = Options {
        tx_buffer: 66_000,
        queue_size: 64,
        ..Options::default().with(feature::CSUM | feature::HOST_TSO4)
    };
    Ok(endless(pair(place, [sender, Options::default()], &frame, hdr)?))
}

pub(super) fn full_calls(place: &Place, _: Dice) -> Result<Attack> {
    let options = || Options {
        calls: true,
        ..Options::default()
    };
    let frame = frame(place, place.macs[1], 60);
    let mut guests = pair(place, [options(), options()], &frame, NetHdr::default())?;
    let full = [full_call(&mut guests[0])?, full_call(&mut guests[1])?];
    Ok(Box::new(move || {
        let _held = &full;
        go_on(&mut guests);
        Ok(())
    }))
}

pub(super) fn chains(place: &Place, _: Dice) -> Result<Attack> {
    let whole = HEADER as u32 + 60;
    chained(place, |i| if i == 0 { whole } else { 0 }, 60, Options::default())
}

pub(super) fn pieces(place: &Place, _: Dice) -> Result<Attack> {
    let receiver = Options::default().with(feature::RING_INDIRECT_DESC);
    chained(place, |_| 2, 1500, receiver)
}

/// Frames whose descriptors, all of a table, have these lengths; buffers of pieces where the receiver has tables.
fn chained(place: &Place, len: impl Fn(u16) -> u32, bytes: usize, receiver: Options) -> Result<Attack> {
    let both = receiver.features & feature::RING_INDIRECT_DESC != 0;
    let sender = Options::default().with(feature::RING_INDIRECT_DESC);
    let frame = frame(place, place.macs[1], bytes);
    let mut guests = pair(place, [sender, receiver], &frame, NetHdr::default())?;
    let whole = [&[0; HEADER], &frame[..]].concat();
    table(&mut guests[0], 1, &len, whole.len() as u32)?;
    guests[0].mem().write(FRAME_AT, &whole)?;
    if both {
        table(&mut guests[1], 0, &len, u32::MAX)?;
    }
    Ok(endless(guests))
}

/// All buffers of a ring are one and the same table; its pieces have at most `most` bytes together.
fn table(guest: &mut Guest, ring: usize, len: &impl Fn(u16) -> u32, most: u32) -> Result<()> {
    guest.plug(TABLE_AT, TABLE_LEN)?;
    let direction = if ring == 0 { WRITE } else { 0 };
    let mut at = 0;
    for i in 0..CHAIN {
        let len = len(i).min(most - at);
        let desc = Desc {
            addr: FRAME_AT + u64::from(at),
            len,
            flags: direction | if i + 1 < CHAIN { NEXT } else { 0 },
            next: if i + 1 < CHAIN { i + 1 } else { 0 },
        };
        guest.mem().write(TABLE_AT + 16 * u64::from(i), &desc.bytes())?;
        at += len;
    }
    let ring = guest.ring(ring);
    for i in 0..ring.size() {
        let head = Desc {
            addr: TABLE_AT,
            len: 16 * u32::from(CHAIN),
            flags: INDIRECT,
            next: 0,
        };
        ring.set_desc(i, head);
        ring.set_avail(i, i);
    }
    Ok(())
}
