//! Whether a configuration space is that of a device of ours (`SPEC.md`, section 2.2).

use vnic_device::config::{ABI_MAJOR, CONFIG_LEN, Config, MAGIC};

use crate::Error;

/// Checks whether this library can drive the device.
pub fn check(config: &Config) -> Result<(), Error> {
    if config.magic != MAGIC {
        return Err(Error::NoDevice(format!(
            "it is no RDMA function of vnic: its configuration begins with {:02x?} instead of \"VROC\"",
            config.magic
        )));
    }
    if config.abi_major != ABI_MAJOR {
        return Err(Error::Version(format!(
            "the device speaks version {}.{} of the contract, this library {ABI_MAJOR}.x: take the library and the \
             daemon of one release",
            config.abi_major, config.abi_minor
        )));
    }
    let queues = 1 + u32::from(config.event_queues) + u32::from(config.wake_queues);
    if config.config_len < CONFIG_LEN
        || config.event_queues == 0
        || config.wake_queues == 0
        || queues > u32::from(u16::MAX)
    {
        return Err(Error::Version(format!(
            "the device breaks the contract: its configuration has {} bytes, {} event queues, {} wake-up queues",
            config.config_len, config.event_queues, config.wake_queues
        )));
    }
    Ok(())
}

/// Number of virtqueues of a device that was checked.
pub const fn virtqueues(config: &Config) -> u16 {
    config
        .event_queues
        .saturating_add(config.wake_queues)
        .saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Config {
        Config {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            config_len: CONFIG_LEN,
            event_queues: 1,
            wake_queues: 2,
            ..Config::default()
        }
    }

    #[test]
    fn ours_pass_and_newer_minors_too() {
        check(&good()).expect("good");
        let newer = Config {
            abi_minor: 9,
            config_len: 40,
            reserved: [7; 44],
            ..good()
        };
        check(&newer).expect("newer");
        assert_eq!(virtqueues(&newer), 4);
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let text = |c: Config| check(&c).expect_err("refused").to_string();
        let change = |f: fn(&mut Config)| {
            let mut c = good();
            f(&mut c);
            text(c)
        };
        assert!(text(Config::default()).contains("VROC"));
        assert!(change(|c| c.abi_major = 2).contains("version 2.0"));
        assert!(change(|c| c.config_len = 19).contains("19 bytes"));
        assert!(change(|c| c.event_queues = 0).contains("0 event queues"));
        assert!(change(|c| c.wake_queues = 0).contains("0 wake-up queues"));
        assert!(change(|c| (c.event_queues, c.wake_queues) = (0x8000, 0x7fff)).contains("32767 wake"));
    }
}
