//! Settings of adapters (`Nic::configure_adapter`): what is refused, and that a refusal changes nothing.

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, Burst, RecvCompletion, SendCompletion};
use vnic_backend::{AdapterSetup, AdapterSpec, MacAddr, NicError, VlanMode};
use vnic_tests::driver::packets::{Number, number_of, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{NetHdr, Options};

fn settings(change: impl FnOnce(&mut AdapterSettings)) -> AdapterSettings {
    let mut settings = AdapterSettings::default();
    change(&mut settings);
    settings
}

#[test]
fn a_refusal_names_the_key_and_changes_nothing() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let own = rig.add("vf0")?;
    let other = rig.add_with("vf1", |s| s.vlan = VlanMode::Access(7))?;
    let more = MacAddr([2, 0, 0, 0, 9, 1]);
    let legal = settings(|s| (s.vlan_prio, s.macs) = (3, vec![more]));
    rig.nic.configure_adapter("vf0", &legal)?;

    let refused = |name: &str, key: &str, problem: &str, s: &AdapterSettings| {
        for error in [
            rig.nic.configure_adapter(name, s).err(),
            rig.nic.check_adapter_settings(name, s).err(),
        ] {
            match error {
                Some(NicError::Invalid { field, problem: p }) => {
                    assert_eq!(field, key);
                    assert!(p.contains(problem), "{p}");
                }
                other => panic!("{key}: {other:?}"),
            }
        }
    };
    let wrong = |key: &str, problem: &str, change: &dyn Fn(&mut AdapterSettings)| {
        refused("vf0", key, problem, &settings(change));
    };
    wrong("TxMaxPostSendsCoalescing", "1 to 256", &|s| s.tx_coalescing = 0);
    wrong("TxMaxPostSendsCoalescing", "1 to 256", &|s| s.tx_coalescing = 257);
    wrong("TxMaxPostSendsCoalescing", "at most 32", &|s| {
        (s.send_completion, s.tx_coalescing) = (SendCompletion::NdisPoll, 33);
    });
    wrong("RecvCompletionMethod", "AsyncReceiveIndicate", &|s| {
        (s.recv_completion, s.burst) = (RecvCompletion::NdisPoll, Burst::Poll);
    });
    wrong("VlanPrio", "0 to 7", &|s| s.vlan_prio = 8);
    wrong("VlanID", "0 to 4094", &|s| s.vlan_id = 4095);
    wrong("mac-address-list", "no unicast address", &|s| {
        s.macs = vec![MacAddr([1, 0, 0, 0, 0, 1])]
    });
    wrong("mac-address-list", "no unicast address", &|s| {
        s.macs = vec![MacAddr::default()]
    });
    wrong("mac-address-list", "twice", &|s| s.macs = vec![more, more]);
    wrong("mac-address-list", "own address", &|s| s.macs = vec![own]);
    wrong("mac-address-list", "belongs to adapter vf1", &|s| {
        s.macs = vec![more, other]
    });
    wrong("mac-address-list", "at most 128", &|s| {
        s.macs = (0..129).map(|i| MacAddr([2, 0, 0, 1, 0, i])).collect();
    });
    refused(
        "vf1",
        "mac-address-list",
        "belongs to adapter vf0",
        &settings(|s| s.macs = vec![more]),
    );
    refused("vf1", "VlanID", "allows 0 and 7", &settings(|s| s.vlan_id = 8));

    assert_eq!(rig.nic.adapter_settings("vf0")?, legal);
    // The list of addresses acts at once, the priority at the next restart.
    let acting = rig.nic.adapter("vf0")?.settings;
    assert_eq!((acting.vlan_prio, acting.macs), (0, legal.macs.clone()));
    assert_eq!(rig.nic.restart_adapter("vf0")?.settings, legal);
    assert_eq!(rig.nic.adapter_settings("vf1")?, AdapterSettings::default());
    rig.nic.configure_adapter("vf1", &settings(|s| s.vlan_id = 7))?;
    let unknown = rig.nic.configure_adapter("vf9", &legal);
    assert!(matches!(unknown, Err(NicError::NotFound { .. })), "{unknown:?}");
    // A new adapter cannot have an address that was added to another.
    let taken = rig.add_with("vf2", |s| s.macs = vec![more]);
    assert!(taken.is_err_and(|e| e.to_string().contains("belongs to adapter vf0")));
    // What is not listed any more is free again.
    rig.nic.configure_adapter("vf0", &AdapterSettings::default())?;
    rig.add_with("vf2", |s| s.macs = vec![more])?;
    rig.finish(Copies::Extra(0))
}

/// What is stored for an adapter acts before anybody can attach, what takes a restart otherwise included.
#[test]
fn an_adapter_is_made_with_its_settings() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let inside = settings(|s| (s.vlan_id, s.vlan_prio) = (10, 3));
    let setup = |spec: AdapterSpec| AdapterSetup {
        settings: inside.clone(),
        ..spec.into()
    };
    let spec = rig.spec("vf0");
    let made = rig.nic.add_adapter(setup(spec))?;
    assert_eq!(made.settings, inside);
    assert_eq!(rig.nic.adapter("vf0")?.settings, inside);
    let peer = rig.add_with("vf1", |s| s.vlan = VlanMode::Access(10))?;
    let stranger = rig.add_with("vf2", |s| s.vlan = VlanMode::Access(20))?;
    let mut guests = Vec::new();
    for name in ["vf0", "vf1", "vf2"] {
        guests.push(rig.attach(name, Options::default())?);
    }
    let [a, b, c] = &mut guests[..] else {
        unreachable!()
    };
    let own = rig.nic.adapter("vf0")?.spec.macs[0];
    let number = |seq| Number {
        sender: 0,
        stream: 0,
        seq,
    };
    // The switch knows the VLAN as well: a neighbour in it is reached, one outside is not.
    a.send_wait(0, &numbered(stranger, own, number(0), 60), NetHdr::default());
    a.send_wait(0, &numbered(peer, own, number(1), 60), NetHdr::default());
    let mut frame = b.recv(0, deadline()).expect("a frame").2;
    while number_of(&frame) != Some(number(1)) {
        // One for nobody in the VLAN is flooded in it.
        frame = b.recv(0, deadline()).expect("a frame").2;
    }
    assert!(c.try_recv(0).is_none());

    // What contradicts the adapter's configuration is refused with its key, and nothing is left.
    let mut spec = rig.spec("vf3");
    spec.vlan = VlanMode::Access(7);
    match rig.nic.add_adapter(setup(spec)) {
        Err(NicError::Invalid { field, .. }) => assert_eq!(field, "VlanID"),
        other => panic!("{other:?}"),
    }
    assert!(rig.nic.adapter("vf3").is_err());
    rig.finish(Copies::Unknown)
}
