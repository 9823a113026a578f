//! Commands about the device as a whole (`SPEC.md`, sections 4.1 and 5.4), and about objects that are only handles.

use vnic_device::command::Range;
use vnic_device::command::device::{
    ClockReply, CounterRecord, DeviceReply, GidRecord, Hello, HelloReply, PortReply, ResourceRecord,
    capabilities,
};
use vnic_device::config::{ABI_MAJOR, ABI_MINOR};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{AtomicScope, GidKind as Kind, PortState};
use vnic_engine::gids::{GidError, GidSource};
use vnic_engine::rdma::steering::{ENTRIES_MAX, HASH_QPS_MAX};
use vnic_engine::rdma::{
    Counters, GidEntry, GidKind, MESSAGE_MAX, Mtu, PdHandle, RATE_MAX_KBPS, RATE_MIN_KBPS, XrcdHandle,
};
use vnic_wire::gid::Gid;
use vnic_wire::pkey::ENTRIES_MAX as PKEYS_MAX;

use crate::rdma::config::{SPEED_MBPS, guid};
use crate::rdma::device_memory::DEVICE_MEMORY_MAX;
use crate::rdma::doorbells::DOORBELL_RINGS_MAX;
use crate::rdma::function::Function;
use crate::rdma::request::{COMMAND_MAX, Outcome, Request, fail, reserved};

/// A name in ASCII, padded with zeros.
fn name<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let n = text.len().min(N);
    out[..n].copy_from_slice(&text.as_bytes()[..n]);
    out
}

impl Function {
    pub(super) fn hello(&mut self, mut r: Request<'_>) -> Outcome {
        let hello: Hello = r.only_body()?;
        r.room_for::<HelloReply>()?;
        reserved(hello.reserved)?;
        if self.session.hello {
            return fail(S::WrongState, "HELLO was said already; RESET begins anew");
        }
        if hello.abi_major != ABI_MAJOR || hello.minor_min > ABI_MINOR || hello.minor_min > hello.minor_max {
            let text = format!(
                "the driver speaks {}.{} to {}.{}, this device {ABI_MAJOR}.0 to {ABI_MAJOR}.{ABI_MINOR}",
                hello.abi_major, hello.minor_min, hello.abi_major, hello.minor_max
            );
            return fail(S::NotSupported, text);
        }
        if let Some(why) = self.off() {
            return fail(S::NotPermitted, why);
        }
        self.session.hello = true;
        self.session.minor = hello.minor_max.min(ABI_MINOR);
        r.reply(&HelloReply {
            minor: self.session.minor,
            ..HelloReply::default()
        });
        Ok(())
    }

    /// GUID of the node, first byte first.
    pub(super) fn node_guid(&self) -> [u8; 8] {
        guid(self.identity.claimant.mac).to_be_bytes()
    }

    pub(super) fn query_device(&mut self, mut r: Request<'_>) -> Outcome {
        r.no_body()?;
        let watched_posts = self.begin_watching(r.now);
        let limits = self.device.limits();
        let (known, len) = match self.session.minor {
            0 => (capabilities::ALL_1_0, DeviceReply::LEN_1_0),
            1 => (capabilities::ALL_1_1, DeviceReply::LEN_1_1),
            2 => (capabilities::ALL_1_2, DeviceReply::LEN_1_1),
            3 => (capabilities::ALL_1_3, DeviceReply::LEN_1_1),
            4 => (capabilities::ALL_1_4, DeviceReply::LEN_1_1),
            5 => (capabilities::ALL_1_5, DeviceReply::LEN_1_1),
            6 => (capabilities::ALL_1_6, DeviceReply::LEN_1_1),
            7 => (capabilities::ALL_1_7, DeviceReply::LEN_1_1),
            _ => (capabilities::ALL, size_of::<DeviceReply>()),
        };
        let (min_qp_rate, max_qp_rate) = match self.session.minor {
            0 => (0, 0),
            _ => (RATE_MIN_KBPS, RATE_MAX_KBPS),
        };
        let reply = DeviceReply {
            // All capabilities that the engine has and the driver's version knows.
            capabilities: known,
            max_mr_size: limits.max_mr_size,
            max_dm_size: DEVICE_MEMORY_MAX,
            node_guid: self.node_guid(),
            firmware: name(concat!("vnic ", env!("CARGO_PKG_VERSION"))),
            // Vendor of virtio devices, and the virtio device ID.
            vendor_id: 0x1af4,
            vendor_part_id: vnic_device::config::VIRTIO_ID.into(),
            hardware_version: 1,
            atomic_scope: AtomicScope::Global.number(),
            max_command_len: COMMAND_MAX,
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            max_send_blocks: max_send_blocks(limits.max_qp_wr),
            max_sge: limits.max_sge,
            max_inline: limits.max_inline,
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_mr: limits.max_mr,
            max_mr_extents: limits.max_mr_extents,
            max_mw: limits.max_mw,
            max_pd: limits.max_pd,
            max_srq: limits.max_srq,
            max_srq_wr: limits.max_srq_wr,
            max_srq_sge: limits.max_srq_sge,
            max_ah: limits.max_ah,
            max_xrcd: limits.max_xrcd,
            max_mcast_groups: limits.max_mcast_groups,
            max_mcast_qp_per_group: limits.max_mcast_qp_per_group,
            max_rd_atomic: limits.max_rd_atomic.into(),
            gid_table_len: limits.gid_table_len.into(),
            max_doorbell_rings: DOORBELL_RINGS_MAX,
            local_ack_delay: 0,
            min_qp_rate,
            max_qp_rate,
            watched_posts,
            max_hash_qp: HASH_QPS_MAX as u32,
            max_hash_entries: ENTRIES_MAX as u32,
        };
        r.reply_cut(&reply, len)
    }

    pub(super) fn query_port(&mut self, mut r: Request<'_>) -> Outcome {
        r.no_body()?;
        let port = self.outage.port;
        let table = self.device.pkeys();
        let mut pkeys = [0; PKEYS_MAX];
        pkeys[..table.as_slice().len()].copy_from_slice(table.as_slice());
        let len = match self.session.minor {
            ..9 => PortReply::LEN_1_0,
            _ => size_of::<PortReply>(),
        };
        let limits = self.device.limits();
        let reply = PortReply {
            // The port of the embedded switch is up while a guest is attached, unless an operator pretends otherwise.
            state: match port.down {
                true => PortState::Down.number(),
                false => PortState::Active.number(),
            },
            max_mtu: Mtu::Mtu4096 as u8,
            active_mtu: port.mtu.unwrap_or(self.config.mtu as u8),
            speed: port.speed.unwrap_or(SPEED_MBPS),
            max_message: MESSAGE_MAX,
            gid_table_len: limits.gid_table_len,
            pkey_table_len: table.len(),
            pkeys,
            bad_pkeys: self.device.counters().drop_pkey_mismatch as u32,
            mac: self.identity.claimant.mac.0,
            ..PortReply::default()
        };
        r.reply_cut(&reply, len)
    }

    pub(super) fn query_gids(&mut self, mut r: Request<'_>) -> Outcome {
        let first = range(&r)?;
        let gids = self.device.gids().iter();
        let records = gids
            .filter(|(index, _)| u32::from(*index) >= first)
            .map(|(index, entry)| GidRecord {
                gid: entry.gid.0,
                index,
                vlan: entry.vlan.unwrap_or(0),
                kind: match entry.kind {
                    GidKind::RoceV1 => Kind::RoceV1.number(),
                    GidKind::RoceV2 => Kind::RoceV2.number(),
                },
                mac: entry.mac.0,
                ..GidRecord::default()
            });
        r.reply_list(records)
    }

    pub(super) fn set_gid_by_driver(&mut self, r: Request<'_>) -> Outcome {
        let record: GidRecord = r.only_body()?;
        reserved(record.reserved)?;
        reserved(record.reserved_kind)?;
        if self.config.place.is_some() {
            let text = "processes share the function, and its GIDs: the operator sets them (vnicctl gid set)";
            return fail(S::NotPermitted, text);
        }
        let kind = match Kind::from_number(record.kind) {
            None => {
                let text = format!("there is no kind {} of GID", record.kind);
                return fail(S::NotSupported, text);
            }
            Some(Kind::None) => None,
            Some(Kind::RoceV1) => Some(GidKind::RoceV1),
            Some(Kind::RoceV2) => Some(GidKind::RoceV2),
        };
        let len = self.device.limits().gid_table_len;
        if record.index >= len {
            let text = format!("index {}; the table has {len} entries", record.index);
            return fail(S::OutOfRange, text);
        }
        let entry = match kind {
            None => None,
            Some(kind) => {
                if record.vlan > 4094 {
                    let text = format!("VLAN {}; allowed are 1 to 4094, or 0", record.vlan);
                    return fail(S::OutOfRange, text);
                }
                let tag = (record.vlan != 0).then_some(record.vlan);
                if self.identity.vlans.classify(tag).is_none() {
                    let text = format!("the adapter is not in VLAN {}", record.vlan);
                    return fail(S::NotPermitted, text);
                }
                let own = record.mac == [0; 6];
                if !own && record.mac != self.identity.claimant.mac.0 {
                    return fail(S::NotPermitted, "a GID has the Ethernet address of its adapter");
                }
                Some(GidEntry {
                    gid: Gid(record.gid),
                    kind,
                    vlan: tag,
                    mac: self.identity.claimant.mac,
                })
            }
        };
        match self.set_gid(Some(record.index), entry, GidSource::Driver) {
            Ok(_) => Ok(()),
            Err(error) => {
                let status = match error {
                    GidError::Index { .. } | GidError::Vlan(_) => S::OutOfRange,
                    GidError::Mac(_) | GidError::Kind | GidError::NotAllowed(_) | GidError::Held { .. } => {
                        S::NotPermitted
                    }
                    _ => S::Invalid,
                };
                fail(status, error.to_string())
            }
        }
    }

    pub(super) fn query_counters(&mut self, mut r: Request<'_>) -> Outcome {
        let first = range(&r)?;
        let values = self.counter_values();
        let records = Counters::NAMES
            .iter()
            .zip(values)
            .skip(first as usize)
            .map(|(counter, value)| CounterRecord {
                name: name(counter),
                value,
            });
        r.reply_list(records)
    }

    pub(super) fn query_resources(&mut self, mut r: Request<'_>) -> Outcome {
        let first = range(&r)?;
        let rows = self.resource_rows();
        let records = rows.into_iter().skip(first as usize).map(|row| ResourceRecord {
            name: name(row.name),
            used: row.used,
            limit: row.limit,
        });
        r.reply_list(records)
    }

    pub(super) fn query_clock(&mut self, mut r: Request<'_>) -> Outcome {
        r.no_body()?;
        r.room_for::<ClockReply>()?;
        let now = self.clock.at(r.now);
        r.reply(&ClockReply { now });
        Ok(())
    }

    pub(super) fn reset_by_driver(&mut self, r: Request<'_>) -> Outcome {
        r.no_body()?;
        self.reset();
        // Entries that the driver has put into the GID table end, too.
        self.gids.learner.driver_down();
        self.apply_gids();
        Ok(())
    }

    pub(super) fn domain(&mut self, mut r: Request<'_>) -> Outcome {
        use vnic_device::command::Opcode as O;
        match r.opcode {
            O::AllocPd | O::OpenXrcd => {
                r.no_body()?;
                r.room_for::<vnic_device::command::Object>()?;
                let handle = if r.opcode == O::AllocPd {
                    self.device.alloc_pd()?.0
                } else {
                    self.device.open_xrcd()?.0
                };
                r.reply_object(handle);
            }
            O::DeallocPd => self.device.dealloc_pd(PdHandle(r.object()?))?,
            _ => self.device.close_xrcd(XrcdHandle(r.object()?))?,
        }
        Ok(())
    }
}

fn range(r: &Request<'_>) -> Result<u32, super::Failure> {
    let range: Range = r.only_body()?;
    reserved(range.reserved)?;
    Ok(range.first)
}

/// Largest number of blocks of a send ring: two for each work request, so that a full queue of usual requests fits.
pub(super) fn max_send_blocks(max_qp_wr: u32) -> u32 {
    (2 * max_qp_wr)
        .next_power_of_two()
        .min(vnic_device::ring::ENTRIES_MAX)
}
