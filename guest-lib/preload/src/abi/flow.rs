//! Flows, and the layers of headers by which they take frames. Numbers in filters are big-endian.

use super::*;

interface! {
    struct ibv_flow {
        comp_mask: u32,
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_flow_attr {
        comp_mask: u32,
        type_: c_uint,
        size: u16,
        priority: u16,
        num_of_specs: u8,
        port: u8,
        flags: u32,
    }

    struct ibv_flow_spec_action_drop {
        type_: c_uint,
        size: u16,
    }

    struct ibv_flow_eth_filter {
        dst_mac: [u8; 6],
        src_mac: [u8; 6],
        ether_type: u16,
        vlan_tag: u16,
    }

    struct ibv_flow_spec_eth {
        type_: c_uint,
        size: u16,
        val: ibv_flow_eth_filter,
        mask: ibv_flow_eth_filter,
    }

    struct ibv_flow_ipv4_filter {
        src_ip: u32,
        dst_ip: u32,
    }

    struct ibv_flow_spec_ipv4 {
        type_: c_uint,
        size: u16,
        val: ibv_flow_ipv4_filter,
        mask: ibv_flow_ipv4_filter,
    }

    struct ibv_flow_ipv4_ext_filter {
        src_ip: u32,
        dst_ip: u32,
        proto: u8,
        tos: u8,
        ttl: u8,
        flags: u8,
    }

    struct ibv_flow_spec_ipv4_ext {
        type_: c_uint,
        size: u16,
        val: ibv_flow_ipv4_ext_filter,
        mask: ibv_flow_ipv4_ext_filter,
    }

    struct ibv_flow_ipv6_filter {
        src_ip: [u8; 16],
        dst_ip: [u8; 16],
        flow_label: u32,
        next_hdr: u8,
        traffic_class: u8,
        hop_limit: u8,
    }

    struct ibv_flow_spec_ipv6 {
        type_: c_uint,
        size: u16,
        val: ibv_flow_ipv6_filter,
        mask: ibv_flow_ipv6_filter,
    }

    struct ibv_flow_tcp_udp_filter {
        dst_port: u16,
        src_port: u16,
    }

    struct ibv_flow_spec_tcp_udp {
        type_: c_uint,
        size: u16,
        val: ibv_flow_tcp_udp_filter,
        mask: ibv_flow_tcp_udp_filter,
    }

    struct ibv_flow_tunnel_filter {
        tunnel_id: u32,
    }

    struct ibv_flow_spec_tunnel {
        type_: c_uint,
        size: u16,
        val: ibv_flow_tunnel_filter,
        mask: ibv_flow_tunnel_filter,
    }
}
