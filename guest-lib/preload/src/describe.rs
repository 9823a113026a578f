//! Attributes of the device, in the terms of the header.

use std::ffi::{c_int, c_uint};

use vnic_verbs::{AtomicScope, Capabilities, DeviceAttributes, GidEntry, GidKind, PortAttributes, PortState};

use crate::abi::*;
use crate::devices::fill;
use crate::objects::wq;

/// Frequency of the device's clock in kHz: it counts nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;
/// Sizes of pages that regions may have: all from 4 KiB. The device maps memory by extents.
const PAGE_SIZES: u64 = 0xffff_f000;
/// Types of queue pairs that send, and so may have a rate.
const SENDERS: u32 =
    1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD | 1 << IBV_QPT_RAW_PACKET | 1 << IBV_QPT_XRC_SEND;
/// The only port.
pub const PORT: u32 = 1;
/// Most P_Keys of the port.
const PKEYS_MAX: u16 = 16;

/// `ibv_port_attr.phys_state` (IBTA volume 1, `PortPhysicalState`).
const LINK_UP: u8 = 5;
const LINK_DISABLED: u8 = 3;
/// `ibv_port_attr.flags`: every packet on Ethernet has a GRH.
const GRH_REQUIRED: u8 = 1;

/// A number for fields that are signed though they cannot be negative.
fn count(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// Environment variable with the part number that programs are told. Some decide by it which calls they make: perftest has DC, and sends
/// that are built call by call, for adapters that it knows (4119: ConnectX-5).
const PART_VARIABLE: &str = "VNIC_VENDOR_PART_ID";

fn part_id() -> Option<u32> {
    std::env::var(PART_VARIABLE).ok()?.parse().ok()
}

/// Answer of `ibv_query_device`.
pub fn device(device: &DeviceAttributes) -> ibv_device_attr {
    let guid = u64::from_ne_bytes(device.node_guid);
    let mut attr = ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: device.max_mr_size,
        page_size_cap: PAGE_SIZES,
        vendor_id: device.vendor_id,
        vendor_part_id: part_id().unwrap_or(device.vendor_part_id),
        hw_ver: device.hardware_version,
        max_qp: count(device.max_qp),
        max_qp_wr: count(device.max_qp_wr),
        device_cap_flags: capabilities(device.capabilities()),
        max_sge: count(device.max_sge),
        max_sge_rd: count(device.max_sge),
        max_cq: count(device.max_cq),
        max_cqe: count(device.max_cqe),
        max_mr: count(device.max_mr),
        max_pd: count(device.max_pd),
        max_qp_rd_atom: count(device.max_rd_atomic),
        max_res_rd_atom: count(device.max_rd_atomic.saturating_mul(device.max_qp)),
        max_qp_init_rd_atom: count(device.max_rd_atomic),
        atomic_cap: atomics(device.atomic_scope()),
        max_mw: count(device.max_mw),
        max_raw_ethy_qp: if device.capabilities().contains(Capabilities::RAW_PACKET) {
            count(device.max_qp)
        } else {
            0
        },
        max_mcast_grp: count(device.max_mcast_groups),
        max_mcast_qp_attach: count(device.max_mcast_qp_per_group),
        max_total_mcast_qp_attach: count(
            device
                .max_mcast_groups
                .saturating_mul(device.max_mcast_qp_per_group),
        ),
        max_ah: count(device.max_ah),
        max_srq: count(device.max_srq),
        max_srq_wr: count(device.max_srq_wr),
        max_srq_sge: count(device.max_srq_sge),
        max_pkeys: PKEYS_MAX,
        local_ca_ack_delay: u8::try_from(device.local_ack_delay).unwrap_or(u8::MAX),
        phys_port_cnt: 1,
        ..zeros()
    };
    fill(&mut attr.fw_ver, &device.firmware());
    attr
}

/// Programs ask for HCA by name (UCX), as real devices have it; GLOB, which has HCA in it, they take for none.
fn atomics(scope: AtomicScope) -> c_uint {
    match scope {
        AtomicScope::None => IBV_ATOMIC_NONE,
        AtomicScope::Device | AtomicScope::Global => IBV_ATOMIC_HCA,
    }
}

fn capabilities(has: Capabilities) -> c_uint {
    let always = IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_PORT_ACTIVE_EVENT
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN;
    [
        (Capabilities::XRC, IBV_DEVICE_XRC),
        (Capabilities::INVALIDATE, IBV_DEVICE_MEM_MGT_EXTENSIONS),
        (Capabilities::MW_TYPE_1, IBV_DEVICE_MEM_WINDOW),
        (Capabilities::MW_TYPE_2, IBV_DEVICE_MEM_WINDOW_TYPE_2B),
        (
            Capabilities::RAW_PACKET,
            IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING,
        ),
    ]
    .iter()
    .filter(|(needs, _)| has.contains(*needs))
    .fold(always, |all, (_, flag)| all | flag)
}

/// What may be done with pages on demand, by RC and XRC.
const ON_DEMAND: c_uint = IBV_ODP_SUPPORT_SEND
    | IBV_ODP_SUPPORT_RECV
    | IBV_ODP_SUPPORT_WRITE
    | IBV_ODP_SUPPORT_READ
    | IBV_ODP_SUPPORT_ATOMIC
    | IBV_ODP_SUPPORT_SRQ_RECV;

/// Bytes of payload that a frame has room for, which the device cuts into segments: an IP packet of the largest size with headers of 256
/// bytes.
const MAX_TSO: u32 = 65_535 - 256;

/// Answer of `ibv_query_device_ex`.
/// `on_demand`: whether pages can be given on demand.
pub fn device_ex(attributes: &DeviceAttributes, on_demand: bool) -> ibv_device_attr_ex {
    let orig_attr = device(attributes);
    let has = |capability| attributes.capabilities().contains(capability);
    let rates = attributes.qp_rates();
    ibv_device_attr_ex {
        orig_attr,
        completion_timestamp_mask: if has(Capabilities::COMPLETION_TIME) {
            u64::MAX
        } else {
            0
        },
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: orig_attr.device_cap_flags.into(),
        packet_pacing_caps: rates.map_or(zeros(), |rates| ibv_packet_pacing_caps {
            qp_rate_limit_min: *rates.start(),
            qp_rate_limit_max: *rates.end(),
            supported_qpts: SENDERS,
        }),
        odp_caps: if on_demand {
            ibv_odp_caps {
                general_caps: (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT).into(),
                per_transport_caps: ibv_odp_transport_caps {
                    rc_odp_caps: ON_DEMAND,
                    ..zeros()
                },
            }
        } else {
            zeros()
        },
        xrc_odp_caps: if on_demand { ON_DEMAND } else { 0 },
        tso_caps: if has(Capabilities::SEGMENTS) {
            ibv_tso_caps {
                max_tso: MAX_TSO,
                supported_qpts: 1 << IBV_QPT_RAW_PACKET,
            }
        } else {
            zeros()
        },
        rss_caps: if has(Capabilities::RSS) {
            ibv_rss_caps {
                supported_qpts: 1 << IBV_QPT_RAW_PACKET,
                max_rwq_indirection_tables: attributes.max_hash_qp,
                max_rwq_indirection_table_size: attributes.max_hash_entries,
                rx_hash_fields_mask: wq::FIELDS.into(),
                rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ as u8,
            }
        } else {
            zeros()
        },
        max_wq_type_rq: if has(Capabilities::RSS) {
            attributes.max_qp
        } else {
            0
        },
        raw_packet_caps: if has(Capabilities::RAW_PACKET) {
            IBV_RAW_PACKET_CAP_IP_CSUM
        } else {
            0
        },
        max_dm_size: attributes.max_dm_size,
        phys_port_cnt_ex: 1,
        ..zeros()
    }
}

/// Answer of `ibv_query_port`.
pub fn port(port: &PortAttributes) -> ibv_port_attr {
    let up = port.state() == PortState::Active;
    let (active_width, active_speed) = port.lanes();
    ibv_port_attr {
        state: if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: port.max_mtu().number().into(),
        active_mtu: port.active_mtu().number().into(),
        gid_tbl_len: port.gid_table_len.into(),
        port_cap_flags: IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: port.max_message,
        bad_pkey_cntr: port.bad_pkeys,
        pkey_tbl_len: port.pkey_table_len,
        max_vl_num: 1,
        active_width,
        active_speed,
        phys_state: if up { LINK_UP } else { LINK_DISABLED },
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: GRH_REQUIRED,
        ..zeros()
    }
}

/// Answer of `ibv_query_gid_ex`; `None` for an empty entry.
pub fn gid(entry: &GidEntry) -> Option<ibv_gid_entry> {
    let gid_type = match entry.kind {
        GidKind::None => return None,
        GidKind::RoceV1 => IBV_GID_TYPE_ROCE_V1,
        GidKind::RoceV2 => IBV_GID_TYPE_ROCE_V2,
    };
    Some(ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: entry.index.into(),
        port_num: PORT,
        gid_type,
        ndev_ifindex: entry.interface().0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_works() {
        assert_eq!(atomics(AtomicScope::Global), IBV_ATOMIC_HCA);
        assert_eq!(atomics(AtomicScope::None), IBV_ATOMIC_NONE);
        // IBV_DEVICE_SRQ_RESIZE: a shared receive queue has the room that it was made with.
        assert_eq!(capabilities(Capabilities::all()) & 0x2000, 0);
    }

    #[test]
    fn entries_that_are_empty_are_none() {
        let mut entry = GidEntry {
            index: 3,
            gid: "10.0.0.7".parse().expect("a GID"),
            kind: GidKind::RoceV2,
            vlan: 0,
            mac: vnic_verbs::MacAddress([2, 0, 0, 0, 0, 9]),
        };
        let there = gid(&entry).expect("an entry");
        assert_eq!(
            (there.gid_index, there.port_num, there.gid_type),
            (3, 1, IBV_GID_TYPE_ROCE_V2)
        );
        entry.kind = GidKind::None;
        assert!(gid(&entry).is_none());
    }
}
