//! Numbers of the interface, by the names of the header.
//!
//! A test compares each of them with `infiniband/verbs.h`.

#![cfg_attr(not(test), expect(dead_code, reason = "some are said by tests alone"))]

use std::ffi::c_uint;

// ibv_gid_type
pub const IBV_GID_TYPE_ROCE_V1: c_uint = 1;
pub const IBV_GID_TYPE_ROCE_V2: c_uint = 2;

// ibv_node_type
pub const IBV_NODE_CA: c_uint = 1;
pub const IBV_NODE_SWITCH: c_uint = 2;
pub const IBV_NODE_ROUTER: c_uint = 3;
pub const IBV_NODE_RNIC: c_uint = 4;
pub const IBV_NODE_USNIC: c_uint = 5;
pub const IBV_NODE_USNIC_UDP: c_uint = 6;
pub const IBV_NODE_UNSPECIFIED: c_uint = 7;

// ibv_transport_type
pub const IBV_TRANSPORT_IB: c_uint = 0;

// ibv_device_cap_flags
pub const IBV_DEVICE_CURR_QP_STATE_MOD: c_uint = 128;
pub const IBV_DEVICE_PORT_ACTIVE_EVENT: c_uint = 1024;
pub const IBV_DEVICE_SYS_IMAGE_GUID: c_uint = 2048;
pub const IBV_DEVICE_RC_RNR_NAK_GEN: c_uint = 0x1000;
pub const IBV_DEVICE_MEM_WINDOW: c_uint = 0x20000;
pub const IBV_DEVICE_XRC: c_uint = 0x100000;
pub const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 0x200000;
pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 0x1000000;
pub const IBV_DEVICE_RAW_IP_CSUM: c_uint = 0x4000000;
pub const IBV_DEVICE_MANAGED_FLOW_STEERING: c_uint = 0x20000000;

// ibv_raw_packet_caps
pub const IBV_RAW_PACKET_CAP_IP_CSUM: c_uint = 4;

// ibv_flow_attr_type, ibv_flow_flags
pub const IBV_FLOW_ATTR_NORMAL: c_uint = 0;
pub const IBV_FLOW_ATTR_ALL_DEFAULT: c_uint = 1;
pub const IBV_FLOW_ATTR_MC_DEFAULT: c_uint = 2;
pub const IBV_FLOW_ATTR_SNIFFER: c_uint = 3;
pub const IBV_FLOW_ATTR_FLAGS_DONT_TRAP: c_uint = 2;
pub const IBV_FLOW_ATTR_FLAGS_EGRESS: c_uint = 4;

// ibv_flow_spec_type
pub const IBV_FLOW_SPEC_ETH: c_uint = 32;
pub const IBV_FLOW_SPEC_IPV4: c_uint = 48;
pub const IBV_FLOW_SPEC_IPV6: c_uint = 49;
pub const IBV_FLOW_SPEC_IPV4_EXT: c_uint = 50;
pub const IBV_FLOW_SPEC_TCP: c_uint = 64;
pub const IBV_FLOW_SPEC_UDP: c_uint = 65;
pub const IBV_FLOW_SPEC_VXLAN_TUNNEL: c_uint = 80;
pub const IBV_FLOW_SPEC_INNER: c_uint = 256;

// ibv_fork_status
pub const IBV_FORK_UNNEEDED: c_uint = 2;

// ibv_atomic_cap
pub const IBV_ATOMIC_NONE: c_uint = 0;
pub const IBV_ATOMIC_HCA: c_uint = 1;

// ibv_port_state
pub const IBV_PORT_NOP: c_uint = 0;
pub const IBV_PORT_DOWN: c_uint = 1;
pub const IBV_PORT_INIT: c_uint = 2;
pub const IBV_PORT_ARMED: c_uint = 3;
pub const IBV_PORT_ACTIVE: c_uint = 4;
pub const IBV_PORT_ACTIVE_DEFER: c_uint = 5;

// link layer
pub const IBV_LINK_LAYER_ETHERNET: c_uint = 2;

// ibv_port_cap_flags
pub const IBV_PORT_IP_BASED_GIDS: c_uint = 0x4000000;

// ibv_event_type
pub const IBV_EVENT_CQ_ERR: c_uint = 0;
pub const IBV_EVENT_QP_FATAL: c_uint = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_uint = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_uint = 3;
pub const IBV_EVENT_COMM_EST: c_uint = 4;
pub const IBV_EVENT_SQ_DRAINED: c_uint = 5;
pub const IBV_EVENT_PATH_MIG: c_uint = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_uint = 7;
pub const IBV_EVENT_DEVICE_FATAL: c_uint = 8;
pub const IBV_EVENT_PORT_ACTIVE: c_uint = 9;
pub const IBV_EVENT_PORT_ERR: c_uint = 10;
pub const IBV_EVENT_LID_CHANGE: c_uint = 11;
pub const IBV_EVENT_PKEY_CHANGE: c_uint = 12;
pub const IBV_EVENT_SM_CHANGE: c_uint = 13;
pub const IBV_EVENT_SRQ_ERR: c_uint = 14;
pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_uint = 15;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_uint = 16;
pub const IBV_EVENT_CLIENT_REREGISTER: c_uint = 17;
pub const IBV_EVENT_GID_CHANGE: c_uint = 18;
pub const IBV_EVENT_WQ_FATAL: c_uint = 19;

// ibv_wc_status
pub const IBV_WC_SUCCESS: c_uint = 0;
pub const IBV_WC_LOC_LEN_ERR: c_uint = 1;
pub const IBV_WC_LOC_QP_OP_ERR: c_uint = 2;
pub const IBV_WC_LOC_EEC_OP_ERR: c_uint = 3;
pub const IBV_WC_LOC_PROT_ERR: c_uint = 4;
pub const IBV_WC_WR_FLUSH_ERR: c_uint = 5;
pub const IBV_WC_MW_BIND_ERR: c_uint = 6;
pub const IBV_WC_BAD_RESP_ERR: c_uint = 7;
pub const IBV_WC_LOC_ACCESS_ERR: c_uint = 8;
pub const IBV_WC_REM_INV_REQ_ERR: c_uint = 9;
pub const IBV_WC_REM_ACCESS_ERR: c_uint = 10;
pub const IBV_WC_REM_OP_ERR: c_uint = 11;
pub const IBV_WC_RETRY_EXC_ERR: c_uint = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: c_uint = 13;
pub const IBV_WC_LOC_RDD_VIOL_ERR: c_uint = 14;
pub const IBV_WC_REM_INV_RD_REQ_ERR: c_uint = 15;
pub const IBV_WC_REM_ABORT_ERR: c_uint = 16;
pub const IBV_WC_INV_EECN_ERR: c_uint = 17;
pub const IBV_WC_INV_EEC_STATE_ERR: c_uint = 18;
pub const IBV_WC_FATAL_ERR: c_uint = 19;
pub const IBV_WC_RESP_TIMEOUT_ERR: c_uint = 20;
pub const IBV_WC_GENERAL_ERR: c_uint = 21;

// ibv_wc_opcode
pub const IBV_WC_SEND: c_uint = 0;
pub const IBV_WC_RDMA_WRITE: c_uint = 1;
pub const IBV_WC_RDMA_READ: c_uint = 2;
pub const IBV_WC_COMP_SWAP: c_uint = 3;
pub const IBV_WC_FETCH_ADD: c_uint = 4;
pub const IBV_WC_BIND_MW: c_uint = 5;
pub const IBV_WC_LOCAL_INV: c_uint = 6;
pub const IBV_WC_RECV: c_uint = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: c_uint = 129;

// ibv_create_cq_wc_flags
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: c_uint = 128;
pub const IBV_WC_EX_WITH_CVLAN: c_uint = 256;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: c_uint = 2048;

// extended completions
pub const IBV_WC_STANDARD_FLAGS: c_uint = 127;

// ibv_wc_flags
pub const IBV_WC_GRH: c_uint = 1;
pub const IBV_WC_WITH_IMM: c_uint = 2;
pub const IBV_WC_IP_CSUM_OK: c_uint = 4;
pub const IBV_WC_WITH_INV: c_uint = 8;

// ibv_access_flags
pub const IBV_ACCESS_LOCAL_WRITE: c_uint = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_uint = 2;
pub const IBV_ACCESS_REMOTE_READ: c_uint = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_uint = 8;
pub const IBV_ACCESS_ON_DEMAND: c_uint = 64;
pub const IBV_ACCESS_HUGETLB: c_uint = 128;
pub const IBV_ACCESS_RELAXED_ORDERING: c_uint = 0x100000;

// ibv_xrcd_init_attr_mask
pub const IBV_XRCD_INIT_ATTR_FD: c_uint = 1;
pub const IBV_XRCD_INIT_ATTR_OFLAGS: c_uint = 2;

// ibv_rereg_mr_flags
pub const IBV_REREG_MR_CHANGE_TRANSLATION: c_uint = 1;
pub const IBV_REREG_MR_CHANGE_PD: c_uint = 2;
pub const IBV_REREG_MR_CHANGE_ACCESS: c_uint = 4;
pub const IBV_REREG_MR_FLAGS_SUPPORTED: c_uint = 7;

// ibv_mw_type
pub const IBV_MW_TYPE_1: c_uint = 1;
pub const IBV_MW_TYPE_2: c_uint = 2;

// ibv_rate
pub const IBV_RATE_MAX: c_uint = 0;
pub const IBV_RATE_2_5_GBPS: c_uint = 2;
pub const IBV_RATE_5_GBPS: c_uint = 5;
pub const IBV_RATE_10_GBPS: c_uint = 3;
pub const IBV_RATE_20_GBPS: c_uint = 6;
pub const IBV_RATE_30_GBPS: c_uint = 4;
pub const IBV_RATE_40_GBPS: c_uint = 7;
pub const IBV_RATE_60_GBPS: c_uint = 8;
pub const IBV_RATE_80_GBPS: c_uint = 9;
pub const IBV_RATE_120_GBPS: c_uint = 10;
pub const IBV_RATE_14_GBPS: c_uint = 11;
pub const IBV_RATE_56_GBPS: c_uint = 12;
pub const IBV_RATE_112_GBPS: c_uint = 13;
pub const IBV_RATE_168_GBPS: c_uint = 14;
pub const IBV_RATE_25_GBPS: c_uint = 15;
pub const IBV_RATE_100_GBPS: c_uint = 16;
pub const IBV_RATE_200_GBPS: c_uint = 17;
pub const IBV_RATE_300_GBPS: c_uint = 18;
pub const IBV_RATE_28_GBPS: c_uint = 19;
pub const IBV_RATE_50_GBPS: c_uint = 20;
pub const IBV_RATE_400_GBPS: c_uint = 21;
pub const IBV_RATE_600_GBPS: c_uint = 22;
pub const IBV_RATE_800_GBPS: c_uint = 23;
pub const IBV_RATE_1200_GBPS: c_uint = 24;

// ibv_srq_attr_mask
pub const IBV_SRQ_MAX_WR: c_uint = 1;
pub const IBV_SRQ_LIMIT: c_uint = 2;

// ibv_srq_type
pub const IBV_SRQT_BASIC: c_uint = 0;
pub const IBV_SRQT_XRC: c_uint = 1;
pub const IBV_SRQT_TM: c_uint = 2;

// ibv_srq_init_attr_mask
pub const IBV_SRQ_INIT_ATTR_TYPE: c_uint = 1;
pub const IBV_SRQ_INIT_ATTR_PD: c_uint = 2;
pub const IBV_SRQ_INIT_ATTR_XRCD: c_uint = 4;
pub const IBV_SRQ_INIT_ATTR_CQ: c_uint = 8;
pub const IBV_SRQ_INIT_ATTR_TM: c_uint = 16;

// ibv_qp_type
pub const IBV_QPT_RC: c_uint = 2;
pub const IBV_QPT_UC: c_uint = 3;
pub const IBV_QPT_UD: c_uint = 4;
pub const IBV_QPT_RAW_PACKET: c_uint = 8;
pub const IBV_QPT_XRC_SEND: c_uint = 9;
pub const IBV_QPT_XRC_RECV: c_uint = 10;
pub const IBV_QPT_DRIVER: c_uint = 255;

// ibv_qp_init_attr_mask
pub const IBV_QP_INIT_ATTR_PD: c_uint = 1;
pub const IBV_QP_INIT_ATTR_XRCD: c_uint = 2;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: c_uint = 4;
pub const IBV_QP_INIT_ATTR_MAX_TSO_HEADER: c_uint = 8;
pub const IBV_QP_INIT_ATTR_IND_TABLE: c_uint = 16;
pub const IBV_QP_INIT_ATTR_RX_HASH: c_uint = 32;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: c_uint = 64;

// ibv_wq_type, ibv_wq_init_attr_mask
pub const IBV_WQT_RQ: c_uint = 0;
pub const IBV_WQ_INIT_ATTR_FLAGS: c_uint = 1;

// ibv_wq_state
pub const IBV_WQS_RESET: c_uint = 0;
pub const IBV_WQS_RDY: c_uint = 1;
pub const IBV_WQS_ERR: c_uint = 2;

// ibv_wq_attr_mask
pub const IBV_WQ_ATTR_STATE: c_uint = 1;
pub const IBV_WQ_ATTR_CURR_STATE: c_uint = 2;
pub const IBV_WQ_ATTR_FLAGS: c_uint = 4;

// ibv_rx_hash_function_flags, ibv_rx_hash_fields
pub const IBV_RX_HASH_FUNC_TOEPLITZ: c_uint = 1;
pub const IBV_RX_HASH_SRC_IPV4: c_uint = 1;
pub const IBV_RX_HASH_DST_IPV4: c_uint = 2;
pub const IBV_RX_HASH_SRC_IPV6: c_uint = 4;
pub const IBV_RX_HASH_DST_IPV6: c_uint = 8;
pub const IBV_RX_HASH_SRC_PORT_TCP: c_uint = 16;
pub const IBV_RX_HASH_DST_PORT_TCP: c_uint = 32;
pub const IBV_RX_HASH_SRC_PORT_UDP: c_uint = 64;
pub const IBV_RX_HASH_DST_PORT_UDP: c_uint = 128;
pub const IBV_RX_HASH_INNER: c_uint = 0x80000000;

// ibv_qp_create_send_ops_flags
pub const IBV_QP_EX_WITH_RDMA_WRITE: c_uint = 1;
pub const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: c_uint = 2;
pub const IBV_QP_EX_WITH_SEND: c_uint = 4;
pub const IBV_QP_EX_WITH_SEND_WITH_IMM: c_uint = 8;
pub const IBV_QP_EX_WITH_RDMA_READ: c_uint = 16;
pub const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: c_uint = 32;
pub const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: c_uint = 64;
pub const IBV_QP_EX_WITH_LOCAL_INV: c_uint = 128;
pub const IBV_QP_EX_WITH_BIND_MW: c_uint = 256;
pub const IBV_QP_EX_WITH_SEND_WITH_INV: c_uint = 512;
pub const IBV_QP_EX_WITH_TSO: c_uint = 1024;
pub const IBV_QP_EX_WITH_ATOMIC_WRITE: c_uint = 0x1000;

// ibv_qp_open_attr_mask
pub const IBV_QP_OPEN_ATTR_NUM: c_uint = 1;
pub const IBV_QP_OPEN_ATTR_XRCD: c_uint = 2;
pub const IBV_QP_OPEN_ATTR_CONTEXT: c_uint = 4;
pub const IBV_QP_OPEN_ATTR_TYPE: c_uint = 8;

// ibv_qp_attr_mask
pub const IBV_QP_STATE: c_uint = 1;
pub const IBV_QP_CUR_STATE: c_uint = 2;
pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_uint = 4;
pub const IBV_QP_ACCESS_FLAGS: c_uint = 8;
pub const IBV_QP_PKEY_INDEX: c_uint = 16;
pub const IBV_QP_PORT: c_uint = 32;
pub const IBV_QP_QKEY: c_uint = 64;
pub const IBV_QP_AV: c_uint = 128;
pub const IBV_QP_PATH_MTU: c_uint = 256;
pub const IBV_QP_TIMEOUT: c_uint = 512;
pub const IBV_QP_RETRY_CNT: c_uint = 1024;
pub const IBV_QP_RNR_RETRY: c_uint = 2048;
pub const IBV_QP_RQ_PSN: c_uint = 0x1000;
pub const IBV_QP_MAX_QP_RD_ATOMIC: c_uint = 0x2000;
pub const IBV_QP_ALT_PATH: c_uint = 0x4000;
pub const IBV_QP_MIN_RNR_TIMER: c_uint = 0x8000;
pub const IBV_QP_SQ_PSN: c_uint = 0x10000;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_uint = 0x20000;
pub const IBV_QP_PATH_MIG_STATE: c_uint = 0x40000;
pub const IBV_QP_CAP: c_uint = 0x80000;
pub const IBV_QP_DEST_QPN: c_uint = 0x100000;
pub const IBV_QP_RATE_LIMIT: c_uint = 33554432;

// ibv_qp_state
pub const IBV_QPS_RESET: c_uint = 0;
pub const IBV_QPS_INIT: c_uint = 1;
pub const IBV_QPS_RTR: c_uint = 2;
pub const IBV_QPS_RTS: c_uint = 3;
pub const IBV_QPS_ERR: c_uint = 6;

// ibv_mig_state
pub const IBV_MIG_MIGRATED: c_uint = 0;

// ibv_wr_opcode
pub const IBV_WR_RDMA_WRITE: c_uint = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub const IBV_WR_SEND: c_uint = 2;
pub const IBV_WR_SEND_WITH_IMM: c_uint = 3;
pub const IBV_WR_RDMA_READ: c_uint = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;
pub const IBV_WR_LOCAL_INV: c_uint = 7;
pub const IBV_WR_BIND_MW: c_uint = 8;
pub const IBV_WR_SEND_WITH_INV: c_uint = 9;
pub const IBV_WR_TSO: c_uint = 10;
pub const IBV_WR_ATOMIC_WRITE: c_uint = 15;

// ibv_send_flags
pub const IBV_SEND_FENCE: c_uint = 1;
pub const IBV_SEND_SIGNALED: c_uint = 2;
pub const IBV_SEND_SOLICITED: c_uint = 4;
pub const IBV_SEND_INLINE: c_uint = 8;
pub const IBV_SEND_IP_CSUM: c_uint = 16;

// ibv_cq_init_attr_mask
pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: c_uint = 1;
pub const IBV_CQ_INIT_ATTR_MASK_PD: c_uint = 2;

// ibv_create_cq_attr_flags
pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: c_uint = 1;

// ibv_parent_domain_init_attr_mask
pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS: c_uint = 1;
pub const IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT: c_uint = 2;

// ibv_advise_mr_advice, and its flag
pub const IBV_ADVISE_MR_ADVICE_PREFETCH: c_uint = 0;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: c_uint = 1;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: c_uint = 2;
pub const IBV_ADVISE_MR_FLAG_FLUSH: c_uint = 1;

// ibv_odp_general_caps, ibv_odp_transport_cap_bits
pub const IBV_ODP_SUPPORT: c_uint = 1;
pub const IBV_ODP_SUPPORT_IMPLICIT: c_uint = 2;
pub const IBV_ODP_SUPPORT_SEND: c_uint = 1;
pub const IBV_ODP_SUPPORT_RECV: c_uint = 2;
pub const IBV_ODP_SUPPORT_WRITE: c_uint = 4;
pub const IBV_ODP_SUPPORT_READ: c_uint = 8;
pub const IBV_ODP_SUPPORT_ATOMIC: c_uint = 16;
pub const IBV_ODP_SUPPORT_SRQ_RECV: c_uint = 32;

// ibv_values_mask
pub const IBV_VALUES_MASK_RAW_CLOCK: c_uint = 1;
