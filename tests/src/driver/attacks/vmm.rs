//! VMMs that come and go, and what they do to memory and descriptors.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result};
use rustix::fs::ftruncate;
use rustix::io::{Errno, write};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use vhost::VhostBackend;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use super::super::rig::Dice;
use super::super::{Desc, Guest, NetHdr, Options, feature};
use super::ethernet::{go_on, pair};
use super::{Attack, Place};
use crate::driver::packets::{Number, numbered};

/// Gives both rings of a guest a call for which there is no room, and whose writers wait for it: EFD_NONBLOCK is not set.
pub fn full_call(guest: &mut Guest) -> Result<EventFd> {
    let full = EventFd::new(0)?;
    full.write(u64::MAX - 1)?;
    for ring in 0..2 {
        guest.frontend()?.set_vring_call(ring, &full)?;
    }
    Ok(full)
}

pub(super) fn connects(place: &Place, _: Dice) -> Result<Attack> {
    let sockets = place.eth.iter().chain(&place.rdma);
    let addresses = sockets.map(SocketAddrUnix::new).collect::<Result<Vec<_>, _>>()?;
    // SET_OWNER, GET_FEATURES.
    let words: [u32; 6] = [3, 1, 0, 1, 1, 0];
    let hello: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let (mut turn, mut next) = (0, None);
    Ok(Box::new(move || {
        turn += 1;
        // (One that was refused is tried again: a socket for each try would be work of this machine's kernel, on whatever CPU.)
        let stream = match next.take() {
            Some(stream) => stream,
            None => socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                None,
            )?,
        };
        match connect(&stream, &addresses[turn % addresses.len()]) {
            // There are as many as the socket keeps waiting.
            Err(Errno::AGAIN) => next = Some(stream),
            Err(e) => return Err(e.into()),
            Ok(()) => {
                let _ = write(&stream, &hello);
                if turn % 3 == 0 {
                    let _ = UnixStream::from(stream).shutdown(Shutdown::Write);
                }
            }
        }
        Ok(())
    }))
}

pub(super) fn lies(place: &Place, mut dice: Dice) -> Result<Attack> {
    let place = place.clone();
    Ok(Box::new(move || {
        let options = Options::default().with(feature::RING_INDIRECT_DESC);
        let mut guest = Guest::attach(&place.eth[0], options)?;
        let ring = guest.ring(dice.below(2) as usize);
        for i in 0..8 {
            let bits = dice.bits();
            let buffers = 1 << 32;
            let desc = Desc {
                addr: *dice.pick(&[0, buffers, buffers - 1, 1 << 50, u64::MAX - 10, bits]),
                len: *dice.pick(&[0, 11, 12, 64, 2048, u32::MAX]),
                flags: dice.below(8) as u16,
                next: *dice.pick(&[0, 1, 2, 3, 256, u16::MAX]),
            };
            ring.set_desc(i, desc);
        }
        for _ in 0..dice.below(300) {
            let head = dice.below(9) as u16;
            ring.offer(head);
        }
        ring.publish();
        std::thread::yield_now();
        Ok(())
    }))
}

/// Two guests with traffic from one to the other.
fn traffic(place: &Place) -> Result<[Guest; 2]> {
    let number = Number {
        sender: u32::MAX,
        stream: 0,
        seq: 0,
    };
    let frame = numbered(place.macs[1], place.macs[0], number, 1000);
    let options = [Options::default(), Options::default()];
    pair(place, options, &frame, NetHdr::default())
}

pub(super) fn memory(place: &Place, mut dice: Dice) -> Result<Attack> {
    let mut guests = traffic(place)?;
    Ok(Box::new(move || {
        go_on(&mut guests);
        let guest = &mut guests[dice.below(2) as usize];
        match dice.below(3) {
            0 => {
                guest.stop_ring(dice.below(2) as usize)?;
                guest.start_rings()?;
            }
            1 => guest.set_mem_table()?,
            _ => {
                guest.plug(1 << 40, 1 << 20)?;
                guest.unplug(1 << 40)?;
            }
        }
        Ok(())
    }))
}

pub(super) fn shrinks(place: &Place, mut dice: Dice) -> Result<Attack> {
    let place = place.clone();
    Ok(Box::new(move || {
        let mut guests = traffic(&place)?;
        go_on(&mut guests);
        let guest = &guests[dice.below(2) as usize];
        let region = guest.mem().map().iter().nth(1).context("no buffers")?;
        let file = region.file_offset().context("memory without a file")?;
        ftruncate(file.file(), 0)?;
        // (The rings are in another region.)
        for guest in &mut guests {
            for ring in 0..2 {
                guest.ring(ring).kick();
            }
        }
        Ok(())
    }))
}
