//! What the NIC remembers of a receive ring without room is about the ring as it was then.

use anyhow::Result;
use vnic_backend::QosSpec;
use vnic_backend::settings::{QosKeys, Trust};
use vnic_tests::driver::packets::{Number, number_of, numbered, tagged};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, Options};

/// Sends so many frames of the lossless priority.
fn send(g: &mut Guest, frame: &[u8], n: u16) {
    for _ in 0..n {
        g.send_wait(0, frame, NetHdr::default());
    }
}

fn expect(g: &mut Guest, n: u16) {
    for i in 0..n {
        let (_, _, f) = g.recv(0, deadline()).unwrap_or_else(|| panic!("{i} of {n} came"));
        let plain = [&f[..12], &f[16..]].concat();
        assert!(number_of(&plain).is_some());
    }
}

/// The index of a ring comes again after 65,536 buffers. A frame for which there was no room then has room now.
#[test]
fn an_index_that_comes_again_is_another_one() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (to, from) = (rig.add("to")?, rig.add("from")?);
    for name in ["to", "from"] {
        let mut settings = rig.nic.adapter_settings(name)?;
        settings.qos = QosKeys {
            priorities: Trust::Pcp.into(),
            ..QosKeys::default()
        };
        rig.nic.apply_qos_keys(name, &settings)?;
        let spec = QosSpec {
            pfc: 1 << 3,
            ..QosSpec::default()
        };
        rig.nic.set_qos(name, spec)?;
    }
    let options = Options {
        post: 4,
        repost: false,
        ..Options::default()
    };
    let mut gt = rig.attach("to", options)?;
    let mut gf = rig.attach("from", Options::default())?;
    let n = Number {
        sender: 0,
        stream: 0,
        seq: 0,
    };
    let frame = tagged(&numbered(to, from, n, 100), 3 << 13);
    // Four have room; the fifth waits, and the NIC remembers that four buffers were not enough.
    send(&mut gf, &frame, 5);
    expect(&mut gt, 4);
    rig.settle()?;
    assert_eq!(gt.post(0, 32), 32);
    expect(&mut gt, 1);
    // From here on there is always room, until the guest has offered as many as then, and 65,536 more.
    while gt.ring(0).avail_idx != 4 {
        assert_eq!(gt.post(0, 32), 32);
        send(&mut gf, &frame, 32);
        expect(&mut gt, 32);
    }
    gf.drain();
    rig.finish(Copies::Extra(0))
}
