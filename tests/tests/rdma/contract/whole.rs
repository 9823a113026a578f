//! The device as a whole: identity, what it says of itself, GIDs, counters, the clock (sections 2 and 5.4).

use anyhow::Result;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vnic_backend::settings::AdapterSettings;
use vnic_backend::{GidKind, GidSetting};
use vnic_device::command::Opcode as O;
use vnic_device::command::device::{DeviceReply, GidRecord, Hello, PortReply, capabilities};
use vnic_device::config::MAGIC;
use vnic_device::event::EventKind;
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::rdma::{Driver, Options, World};

use super::{fine, refused};

/// An adapter whose settings say that it has no RDMA.
pub fn not_permitted(world: &mut World) -> Result<Driver> {
    let nic = &world.rig.nic;
    let off = AdapterSettings {
        network_direct: false,
        ..AdapterSettings::default()
    };
    nic.configure_adapter("a", &off)?;
    nic.restart_adapter("a")?;
    let mut driver = Driver::attach(world.socket("a"), Options::default())?;
    let hello = Hello {
        abi_major: 1,
        ..Hello::default()
    };
    let reply = driver.command(O::Hello, hello.as_bytes(), &[]);
    assert_eq!(reply.status, S::NotPermitted, "{reply}");
    nic.configure_adapter("a", &AdapterSettings::default())?;
    nic.restart_adapter("a")?;
    Ok(driver)
}

pub fn all(world: &mut World) -> Result<Driver> {
    let mut d = world.driver("a")?;
    let mac = world.rig.nic.adapter("a")?.spec.macs[0].0;
    let config = d.config()?;
    assert_eq!(
        (config.magic, config.abi_major, config.config_len),
        (MAGIC, 1, 20)
    );
    assert!(config.event_queues >= 1 && config.wake_queues >= 1);
    assert_eq!((config.mac, config.reserved), (mac, [0; 44]));

    // Beyond its end a VMM may show its guest zeros; writes mean nothing.
    let f = d.frontend()?;
    assert_eq!(
        f.get_queue_num()?,
        1 + u64::from(config.event_queues + config.wake_queues)
    );
    assert!(f.get_max_mem_slots()? >= 32);
    let (_, tail) = f.get_config(60, 8, VhostUserConfigFlags::empty(), &[0; 8])?;
    assert_eq!(tail, [0; 8]);
    f.set_config(0, VhostUserConfigFlags::WRITABLE, &[0xff; 8])?;
    assert_eq!(d.config()?, config);

    let device: DeviceReply = d.device();
    assert_eq!(device.capabilities & !capabilities::ALL, 0);
    assert!(device.max_send_blocks.is_power_of_two());
    let at_least_one = [
        device.max_qp,
        device.max_qp_wr,
        device.max_sge,
        device.max_cq,
        device.max_cqe,
        device.max_mr,
        device.max_mr_extents,
        device.max_pd,
        device.max_srq,
        device.max_srq_wr,
        device.max_srq_sge,
        device.max_ah,
        device.max_xrcd,
        device.max_rd_atomic,
        device.gid_table_len,
        device.max_doorbell_rings,
    ];
    assert!(at_least_one.iter().all(|n| *n > 0), "{device:?}");
    assert!(std::str::from_utf8(&device.firmware).is_ok_and(|f| f.starts_with("vnic ")));
    assert_eq!(device.watched_posts, 0, "there is no rule");

    let port = fine(&mut d, O::QueryPort, &[0u8; 0], &[]);
    let port = PortReply::read_from_bytes(&port.bytes).expect("a port");
    assert_eq!(
        (port.state, port.max_mtu, port.active_mtu, port.max_message),
        (4, 5, 3, 1 << 31)
    );
    assert_eq!((port.mac, port.pkey_table_len), (mac, 1));
    assert_eq!(u32::from(port.gid_table_len), device.gid_table_len);

    let resources = d.resources();
    for name in [
        "pd",
        "cq",
        "qp",
        "mr",
        "mw",
        "srq",
        "ah",
        "xrcd",
        "cm_id",
        "dm",
        "doorbells",
    ] {
        let row = resources.iter().find(|r| r.0 == name);
        let Some((_, used, limit)) = row else {
            panic!("no {name} in {resources:?}")
        };
        assert!(*used == 0 && *limit > 0, "{row:?}");
    }
    gids(world, &mut d, mac)?;
    counters(world, &mut d)?;
    Ok(d)
}

fn gids(world: &mut World, d: &mut Driver, mac: [u8; 6]) -> Result<()> {
    let table_len = d.device().gid_table_len as u16;
    let defaults = d.gids();
    assert!(defaults.iter().any(|g| g.kind == 1) && defaults.iter().any(|g| g.kind == 2));
    assert!(
        defaults
            .iter()
            .all(|g| g.mac == mac && g.reserved == 0 && g.reserved_kind == 0)
    );
    let ip = |last| {
        *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x00\x00"
            .first_chunk::<15>()
            .expect("15 bytes")
            .iter()
            .copied()
            .chain([last])
            .collect::<Vec<u8>>()
            .first_chunk::<16>()
            .expect("16 bytes")
    };
    let entry = |index, last| GidRecord {
        gid: ip(last),
        index,
        kind: 2,
        ..GidRecord::default()
    };
    assert_eq!(d.count_events(EventKind::GidChange), 0);
    fine(d, O::SetGid, &entry(40, 1), &[]);
    assert_eq!(d.event(EventKind::GidChange).object, 40);
    fine(
        d,
        O::SetGid,
        &GidRecord {
            kind: 1,
            mac,
            vlan: 4094,
            ..entry(41, 1)
        },
        &[],
    );
    assert_eq!(d.event(EventKind::GidChange).object, 41);
    let by_index = |d: &mut Driver, i| d.gids().into_iter().find(|g| g.index == i);
    assert_eq!(by_index(d, 40), Some(GidRecord { mac, ..entry(40, 1) }));
    assert_eq!(by_index(d, 41).map(|g| (g.kind, g.vlan)), Some((1, 4094)));
    let sorted = d.gids();
    assert!(sorted.is_sorted_by_key(|g| g.index), "{sorted:?}");

    refused(d, O::SetGid, &entry(table_len, 2), &[], S::OutOfRange);
    refused(
        d,
        O::SetGid,
        &GidRecord {
            vlan: 4095,
            ..entry(42, 2)
        },
        &[],
        S::OutOfRange,
    );
    // There already, and what is no unicast address.
    refused(d, O::SetGid, &entry(42, 1), &[], S::Invalid);
    let group = GidRecord {
        gid: [0xff; 16],
        ..entry(42, 2)
    };
    refused(d, O::SetGid, &group, &[], S::Invalid);
    refused(
        d,
        O::SetGid,
        &GidRecord {
            gid: [0; 16],
            ..entry(42, 2)
        },
        &[],
        S::Invalid,
    );
    // Another's Ethernet address; what the device and the operator have set.
    refused(
        d,
        O::SetGid,
        &GidRecord {
            mac: [2, 9, 9, 9, 9, 9],
            ..entry(42, 2)
        },
        &[],
        S::NotPermitted,
    );
    refused(
        d,
        O::SetGid,
        &GidRecord {
            kind: 0,
            ..entry(defaults[0].index, 0)
        },
        &[],
        S::NotPermitted,
    );
    let setting = GidSetting {
        gid: ip(77),
        kind: GidKind::RoceV2,
        vlan: None,
    };
    world.rig.nic.set_gid("a", Some(60), Some(setting))?;
    assert_eq!(d.event(EventKind::GidChange).object, 60);
    refused(d, O::SetGid, &entry(60, 3), &[], S::NotPermitted);
    refused(
        d,
        O::SetGid,
        &GidRecord {
            kind: 0,
            ..entry(60, 0)
        },
        &[],
        S::NotPermitted,
    );
    // Cleared, also twice.
    for index in [40, 41] {
        fine(
            d,
            O::SetGid,
            &GidRecord {
                index,
                ..GidRecord::default()
            },
            &[],
        );
        assert_eq!(d.event(EventKind::GidChange).object, u32::from(index));
        fine(
            d,
            O::SetGid,
            &GidRecord {
                index,
                ..GidRecord::default()
            },
            &[],
        );
        assert_eq!(by_index(d, index), None);
    }
    world.rig.nic.set_gid("a", Some(60), None)?;
    assert_eq!(d.event(EventKind::GidChange).object, 60);
    assert_eq!(d.count_events(EventKind::GidChange), 0);
    assert_eq!(d.gids(), defaults);
    Ok(())
}

/// The same names as in the metrics.
fn counters(world: &mut World, d: &mut Driver) -> Result<()> {
    let reply = d.command_in(O::QueryCounters, &[0; 8], &[], 65536);
    assert_eq!(reply.status, S::Ok);
    let names: Vec<String> = reply
        .bytes
        .chunks(64)
        .map(|r| {
            String::from_utf8_lossy(&r[..56])
                .trim_end_matches('\0')
                .to_owned()
        })
        .collect();
    let metrics = world.rig.nic.counters();
    let metrics: Vec<&str> = metrics
        .iter()
        .filter(|s| s.owner == "a")
        .map(|s| s.def.name)
        .collect();
    for name in &names {
        assert!(metrics.contains(&name.as_str()), "{name} is no metric");
    }
    assert!(names.len() > 10, "{names:?}");
    Ok(())
}
