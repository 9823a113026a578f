//! Addresses for adapters without one: locally administered, the same at each start of the same daemon (a guest must not
//! lose its address when the daemon restarts), and different between daemons.

use std::collections::BTreeSet;
use std::path::Path;

use vnic_backend::MacAddr;

/// Source of addresses that are derived from the identity of machine and daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacSource {
    seed: u64,
}

impl MacSource {
    /// Makes the source of the daemon with the directories `state_dir` and `socket_dir` on the machine `machine_id`.
    pub fn new(machine_id: &str, state_dir: &Path, socket_dir: &Path) -> MacSource {
        let mut seed = FNV_OFFSET;
        for part in [
            machine_id.trim().as_bytes(),
            state_dir.as_os_str().as_encoded_bytes(),
            socket_dir.as_os_str().as_encoded_bytes(),
        ] {
            seed = fnv1a(seed, part);
        }
        MacSource { seed }
    }

    /// Address of the adapter `name` that is not in `taken`.
    pub fn derive(&self, name: &str, taken: &BTreeSet<MacAddr>) -> MacAddr {
        let mut hash = fnv1a(self.seed, name.as_bytes());
        loop {
            let b = mix(hash).to_be_bytes();
            // U/L bit set (locally administered), I/G bit clear (unicast): IEEE 802 clause 8.2.
            let mac = MacAddr([b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]);
            if !taken.contains(&mac) {
                return mac;
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// GUID of the team `name`; another `salt` gives another GUID. Its version is 8 (RFC 9562 clause 5.8).
    pub fn guid(&self, name: &str, salt: u64) -> u128 {
        let hash = fnv1a(fnv1a(self.seed, &salt.to_be_bytes()), name.as_bytes());
        let both = u128::from(mix(hash)) << 64 | u128::from(mix(!hash));
        both & !(0xf << 76 | 0x3 << 62) | 0x8 << 76 | 0x2 << 62
    }
}

/// Text that identifies this machine and survives reboots; the host name if there is no machine ID.
pub fn machine_id() -> String {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .find(|text| !text.trim().is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

// FNV-1a (draft-eastlake-fnv) is stable for ever, unlike the standard library's hashers.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Adds `bytes` and an end byte to `hash`.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .chain(&[0xff])
        .fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(FNV_PRIME))
}

/// The finalizer of MurmurHash3: each input bit affects each output bit.
fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(machine: &str, state: &str, sockets: &str) -> MacSource {
        MacSource::new(machine, Path::new(state), Path::new(sockets))
    }

    #[test]
    fn the_same_daemon_gets_the_same_address_for_ever() {
        // Another derivation would change the addresses of running guests: this value must not change.
        let mac = source("0123456789abcdef", "/var/lib/vnic", "/run/vnic").derive("vf0", &BTreeSet::new());
        assert_eq!(mac.to_string(), "e2:24:cb:94:52:3a");
    }

    #[test]
    fn machine_directories_and_name_all_matter() {
        let all: BTreeSet<MacAddr> = [
            ("m", "/a", "/b", "vf0"),
            ("n", "/a", "/b", "vf0"),
            ("m", "/x", "/b", "vf0"),
            ("m", "/a", "/x", "vf0"),
            ("m", "/a", "/b", "vf1"),
        ]
        .map(|(m, s, d, n)| source(m, s, d).derive(n, &BTreeSet::new()))
        .into();
        assert_eq!(all.len(), 5);
        for mac in all {
            assert_eq!(mac.0[0] & 3, 2, "{mac} is locally administered and unicast");
        }
    }

    #[test]
    fn teams_have_guids() {
        let source = source("m", "/a", "/b");
        let all: BTreeSet<u128> = [("a", 0), ("b", 0), ("a", 1)]
            .map(|(name, salt)| source.guid(name, salt))
            .into();
        assert_eq!(all.len(), 3);
        for guid in all {
            assert_eq!((guid >> 76 & 0xf, guid >> 62 & 3), (8, 2), "{guid:x}");
        }
    }

    #[test]
    fn a_taken_address_is_avoided() {
        let source = source("m", "/a", "/b");
        let first = source.derive("vf0", &BTreeSet::new());
        let second = source.derive("vf0", &BTreeSet::from([first]));
        assert_ne!(first, second);
    }
}
