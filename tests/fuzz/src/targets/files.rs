//! Files that people write: the daemon's configuration, fault rules, policies of a subnet, `.reg` files. What is wrong is told with the file's name.

use std::path::Path;

use vnic_appliance::config::{Environment, Overrides, Settings, faults_from_text};
use vnic_appliance::registry::reg_file;
use vnic_backend::subnet::{self, Port, Query};

/// `vnicd.toml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let environment = Environment {
        runtime_directory: Some("/run/vnic".into()),
        state_directory: Some("/var/lib/vnic".into()),
        xdg_runtime_dir: None,
        root: true,
        cpus: vec![0, 1],
        machine_id: "fuzz".into(),
    };
    let read = Settings::from_text(Path::new("vnicd.toml"), text, &Overrides::default(), &environment);
    if let Err(wrong) = read {
        assert!(wrong.to_string().contains("vnicd.toml"), "{wrong}");
    }
}

/// A file of fault rules.
pub fn faults(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(wrong) = faults_from_text(Path::new("rules.toml"), text) {
        assert!(wrong.to_string().contains("rules.toml"), "{wrong}");
    }
}

/// A policy of a subnet. One that can be read answers each query, and what is wrong with another stands within its text.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let policy = match subnet::parse(text) {
        Ok(policy) => policy,
        Err(wrong) => {
            let lines = text.split('\n').count();
            assert!((1..=lines).contains(&(wrong.line as usize)), "{wrong}");
            return;
        }
    };
    let port = |node, guid, pkeys| Port {
        guid,
        node,
        number: 1,
        mtu: 4,
        rate: 3,
        pkeys,
    };
    let ends = [
        port("vs1", 0x10_0001, &[0xffff, 0x8123]),
        port("st1", 0x10_0005, &[0xffff, 0x0123]),
    ];
    assert!(subnet::notes(&policy, &ends).len() <= 100, "as many as are told");
    for n in [0u16, 77, 0x123, 0x7fff] {
        let query = Query {
            source: &ends[0],
            destination: &ends[1],
            service_id: Some(n.into()),
            qos_class: Some(n & 0xfff),
            pkey: (n > 77).then_some(n),
            sl: None,
        };
        if let Ok(path) = subnet::resolve(Some(&policy), &query) {
            assert!(path.sl < 16 && path.mtu <= 4 && path.packet_life < 64, "{path:?}");
        }
    }
}

/// A `.reg` file, as `vnicctl` sends it.
pub fn reg(bytes: &[u8]) {
    if let Err(wrong) = reg_file::parse(bytes) {
        assert!(!wrong.is_empty(), "an error that names nothing");
    }
}
