//! Further addresses of an adapter (`mac-address-list`): what its guest gets and may send.

use anyhow::Result;
use vnic_backend::settings::AdapterSettings;
use vnic_backend::{DropReason, MacAddr};
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, Options};

const MORE: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
const LAST: MacAddr = MacAddr([2, 0, 0, 0, 9, 128]);

fn frame(to: MacAddr, from: MacAddr, seq: u64) -> Vec<u8> {
    let n = Number {
        sender: 1,
        stream: 0,
        seq,
    };
    numbered(to, from, n, 60)
}

fn pass(from: &mut Guest, to: &mut Guest, frame: &[u8]) {
    from.send_wait(0, frame, NetHdr::default());
    let (_, _, got) = to.recv(0, deadline()).expect("a frame");
    assert!(got == frame, "{got:02x?} instead of {frame:02x?}");
}

fn macs(rig: &Rig, name: &str, macs: Vec<MacAddr>) -> Result<()> {
    let settings = AdapterSettings {
        macs,
        ..AdapterSettings::default()
    };
    Ok(rig.nic.configure_adapter(name, &settings)?)
}

fn statics(rig: &Rig, owner: &str) -> Vec<MacAddr> {
    let mine = rig
        .nic
        .fdb()
        .into_iter()
        .filter(|e| e.owner == owner && e.is_static);
    mine.map(|e| e.mac).collect()
}

#[test]
fn the_guest_has_the_addresses_of_its_list() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add_with("a", |s| s.anti_spoofing = true)?;
        let b = rig.add("b")?;
        rig.add("c")?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let mut gc = rig.attach("c", Options::default())?;

        // Nobody's address: flooded; as a source: refused.
        pass(&mut gb, &mut gc, &frame(MORE, b, 1));
        assert!(ga.recv(0, deadline()).is_some());
        ga.send_wait(0, &frame(b, MORE, 2), NetHdr::default());
        ga.drain();
        assert_eq!(rig.drops("a", DropReason::SpoofedSource), 1);

        // The guest's own, at once, without a restart: only it gets the frames, and it may send them.
        let list: Vec<MacAddr> = (1..=128).map(|i| MacAddr([2, 0, 0, 0, 9, i])).collect();
        macs(&rig, "a", list)?;
        assert_eq!(statics(&rig, "a").len(), 129);
        for to in [MORE, LAST, a] {
            pass(&mut gb, &mut ga, &frame(to, b, 3));
            pass(&mut ga, &mut gb, &frame(b, to, 4));
        }
        assert!(gc.try_recv(0).is_none());
        // Learning does not take an address of the list away.
        gc.send_wait(0, &frame(b, MORE, 5), NetHdr::default());
        gb.recv(0, deadline()).expect("a frame");
        pass(&mut gb, &mut ga, &frame(MORE, b, 6));
        // Both are there: the one that left the list is nobody's again.
        macs(&rig, "a", vec![LAST])?;
        assert_eq!(statics(&rig, "a"), [a, LAST]);
        ga.send_wait(0, &frame(b, MORE, 7), NetHdr::default());
        ga.drain();
        assert_eq!(rig.drops("a", DropReason::SpoofedSource), 2);
        pass(&mut gb, &mut ga, &frame(LAST, b, 8));
        drop((ga, gb, gc));
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
