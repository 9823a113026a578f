//! Texts of numbers, and rates: functions that need no device.
//!
//! The real library has the texts that programs know. If there is none, the terms are those of IBTA volume 1.

#![expect(unsafe_code, reason = "calls functions of the real library")]

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::abi::*;
use crate::real::Symbol;

type Text = (c_uint, &'static CStr);

const NODES: &[Text] = &[
    (IBV_NODE_CA, c"Channel Adapter"),
    (IBV_NODE_SWITCH, c"Switch"),
    (IBV_NODE_ROUTER, c"Router"),
    (IBV_NODE_RNIC, c"RNIC"),
    (IBV_NODE_USNIC, c"usNIC"),
    (IBV_NODE_USNIC_UDP, c"usNIC UDP"),
    (IBV_NODE_UNSPECIFIED, c"Unspecified"),
];

const PORT_STATES: &[Text] = &[
    (IBV_PORT_NOP, c"No State Change"),
    (IBV_PORT_DOWN, c"Down"),
    (IBV_PORT_INIT, c"Initialize"),
    (IBV_PORT_ARMED, c"Armed"),
    (IBV_PORT_ACTIVE, c"Active"),
    (IBV_PORT_ACTIVE_DEFER, c"Active Defer"),
];

/// Names of events (IBTA volume 1, 11.6.3).
const EVENTS: &[Text] = &[
    (IBV_EVENT_CQ_ERR, c"CQ Error"),
    (IBV_EVENT_QP_FATAL, c"Local Work Queue Catastrophic Error"),
    (IBV_EVENT_QP_REQ_ERR, c"Invalid Request Local Work Queue Error"),
    (
        IBV_EVENT_QP_ACCESS_ERR,
        c"Local Access Violation Work Queue Error",
    ),
    (IBV_EVENT_COMM_EST, c"Communication Established"),
    (IBV_EVENT_SQ_DRAINED, c"Send Queue Drained"),
    (IBV_EVENT_PATH_MIG, c"Path Migrated"),
    (IBV_EVENT_PATH_MIG_ERR, c"Path Migration Request Error"),
    (IBV_EVENT_DEVICE_FATAL, c"Local Catastrophic Error"),
    (IBV_EVENT_PORT_ACTIVE, c"Port Active"),
    (IBV_EVENT_PORT_ERR, c"Port Error"),
    (IBV_EVENT_LID_CHANGE, c"LID Change"),
    (IBV_EVENT_PKEY_CHANGE, c"P_Key Change"),
    (IBV_EVENT_SM_CHANGE, c"SM Change"),
    (IBV_EVENT_SRQ_ERR, c"SRQ Catastrophic Error"),
    (IBV_EVENT_SRQ_LIMIT_REACHED, c"SRQ Limit Reached"),
    (IBV_EVENT_QP_LAST_WQE_REACHED, c"Last WQE Reached"),
    (IBV_EVENT_CLIENT_REREGISTER, c"Client Reregistration"),
    (IBV_EVENT_GID_CHANGE, c"GID Change"),
];

/// Names of completion statuses (IBTA volume 1, 11.6.2).
const STATUSES: &[Text] = &[
    (IBV_WC_SUCCESS, c"Success"),
    (IBV_WC_LOC_LEN_ERR, c"Local Length Error"),
    (IBV_WC_LOC_QP_OP_ERR, c"Local QP Operation Error"),
    (IBV_WC_LOC_EEC_OP_ERR, c"Local EE Context Operation Error"),
    (IBV_WC_LOC_PROT_ERR, c"Local Protection Error"),
    (IBV_WC_WR_FLUSH_ERR, c"Work Request Flushed Error"),
    (IBV_WC_MW_BIND_ERR, c"Memory Management Operation Error"),
    (IBV_WC_BAD_RESP_ERR, c"Bad Response Error"),
    (IBV_WC_LOC_ACCESS_ERR, c"Local Access Error"),
    (IBV_WC_REM_INV_REQ_ERR, c"Remote Invalid Request Error"),
    (IBV_WC_REM_ACCESS_ERR, c"Remote Access Error"),
    (IBV_WC_REM_OP_ERR, c"Remote Operation Error"),
    (IBV_WC_RETRY_EXC_ERR, c"Transport Retry Counter Exceeded"),
    (IBV_WC_RNR_RETRY_EXC_ERR, c"RNR Retry Counter Exceeded"),
    (IBV_WC_LOC_RDD_VIOL_ERR, c"Local RDD Violation Error"),
    (IBV_WC_REM_INV_RD_REQ_ERR, c"Remote Invalid RD Request Error"),
    (IBV_WC_REM_ABORT_ERR, c"Remote Abort Error"),
    (IBV_WC_INV_EECN_ERR, c"Invalid EE Context Number"),
    (IBV_WC_INV_EEC_STATE_ERR, c"Invalid EE Context State"),
    (IBV_WC_FATAL_ERR, c"Fatal Error"),
    (IBV_WC_RESP_TIMEOUT_ERR, c"Response Timeout Error"),
    (IBV_WC_GENERAL_ERR, c"General Error"),
];

/// The real library's text for a number, or else the table's.
fn text(table: &[Text], number: c_uint, real: &'static Symbol) -> *mut c_char {
    // SAFETY: all functions that are looked up here have this type.
    if let Some(real) = unsafe { real.find::<c_fn!(fn(c_uint) -> *mut c_char)>() } {
        // SAFETY: any number may be asked for.
        return unsafe { real(number) };
    }
    let found = table.iter().find(|(n, _)| *n == number);
    found.map_or(c"Unknown", |(_, text)| text).as_ptr().cast_mut()
}

/// A rate: its number, multiple of 2.5 Gb/s (0: it is none), Mb/s.
const RATES: &[(c_uint, c_int, c_int)] = &[
    (IBV_RATE_2_5_GBPS, 1, 2_500),
    (IBV_RATE_5_GBPS, 2, 5_000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, 0, 14_062),
    (IBV_RATE_56_GBPS, 0, 56_250),
    (IBV_RATE_112_GBPS, 0, 112_500),
    (IBV_RATE_168_GBPS, 0, 168_750),
    (IBV_RATE_25_GBPS, 0, 25_781),
    (IBV_RATE_100_GBPS, 0, 103_125),
    (IBV_RATE_200_GBPS, 0, 206_250),
    (IBV_RATE_300_GBPS, 0, 309_375),
    (IBV_RATE_28_GBPS, 11, 28_125),
    (IBV_RATE_50_GBPS, 20, 53_125),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// Answer for an unknown rate.
const NO_RATE: c_int = -1;

own! {
    /// `man 3 ibv_event_type_str`.
    fn ibv_node_type_str(kind: c_uint) -> *mut c_char, as pointer {
        Ok(text(NODES, kind, real_function!(ibv_node_type_str, "IBVERBS_1.1")))
    }

    /// `man 3 ibv_event_type_str`.
    fn ibv_port_state_str(state: c_uint) -> *mut c_char, as pointer {
        Ok(text(PORT_STATES, state, real_function!(ibv_port_state_str, "IBVERBS_1.1")))
    }

    /// `man 3 ibv_event_type_str`.
    fn ibv_event_type_str(event: c_uint) -> *mut c_char, as pointer {
        Ok(text(EVENTS, event, real_function!(ibv_event_type_str, "IBVERBS_1.1")))
    }

    /// The name of a completion's status.
    fn ibv_wc_status_str(status: c_uint) -> *mut c_char, as pointer {
        Ok(text(STATUSES, status, real_function!(ibv_wc_status_str, "IBVERBS_1.1")))
    }

    /// `man 3 ibv_rate_to_mult`.
    fn ibv_rate_to_mult(rate: c_uint) -> c_int, as plain {
        Ok(RATES.iter().find(|r| r.0 == rate && r.1 != 0).map_or(NO_RATE, |r| r.1))
    }

    /// `man 3 ibv_rate_to_mult`.
    fn mult_to_ibv_rate(multiple: c_int) -> c_uint, as plain {
        Ok(RATES.iter().find(|r| r.1 == multiple && r.1 != 0).map_or(IBV_RATE_MAX, |r| r.0))
    }

    /// `man 3 ibv_rate_to_mbps`.
    fn ibv_rate_to_mbps(rate: c_uint) -> c_int, as plain {
        Ok(RATES.iter().find(|r| r.0 == rate).map_or(NO_RATE, |r| r.2))
    }

    /// `man 3 ibv_rate_to_mbps`.
    fn mbps_to_ibv_rate(mbps: c_int) -> c_uint, as plain {
        Ok(RATES.iter().find(|r| r.2 == mbps).map_or(IBV_RATE_MAX, |r| r.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_told_apart() {
        // SAFETY: numbers alone.
        unsafe {
            for (rate, multiple, mbps) in RATES {
                assert_eq!((ibv_rate_to_mbps(*rate), mbps_to_ibv_rate(*mbps)), (*mbps, *rate));
                if *multiple != 0 {
                    assert_eq!(
                        (ibv_rate_to_mult(*rate), mult_to_ibv_rate(*multiple)),
                        (*multiple, *rate)
                    );
                }
            }
            assert_eq!(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
            assert_eq!((ibv_rate_to_mbps(IBV_RATE_MAX), ibv_rate_to_mbps(99)), (-1, -1));
            assert_eq!(
                (mult_to_ibv_rate(0), mult_to_ibv_rate(3), mbps_to_ibv_rate(7)),
                (0, 0, 0)
            );
        }
    }

    #[test]
    fn numbers_have_texts() {
        for table in [NODES, PORT_STATES, EVENTS, STATUSES] {
            for (i, (number, text)) in table.iter().enumerate() {
                assert_eq!(*number, table[0].0 + i as c_uint, "one after the other: {text:?}");
            }
        }
        let statuses: Vec<_> = STATUSES.iter().map(|(_, text)| text).collect();
        assert!(
            statuses
                .iter()
                .enumerate()
                .all(|(i, t)| !statuses[..i].contains(t)),
            "each of its own"
        );
    }
}
