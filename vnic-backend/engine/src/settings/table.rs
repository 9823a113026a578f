//! The table of keys, by subject. If documents contradict each other about a default, the WinOF-2 manual counts.

mod completion;
mod congestion;
mod dscp;
mod guard;
mod offload;
mod qos;
mod receive;
mod roce;
mod vlan;

use super::KeyDef;
use super::field::field;

/// Rows of keys whose names differ in a number alone: `$prefix` and the number make the name, `$row` makes the row, and
/// the value's field is the array's element of that number.
macro_rules! family {
    ($prefix:literal, $suffix:literal, $row:expr, $message:literal: $group:ident.$array:ident, $($n:literal => $default:expr),+ $(,)?) => {
        [$($row(concat!($prefix, $n, $suffix), $default).acts(field!($message: $group.$array[$n]))),+]
    };
    ($prefix:literal, $suffix:literal, $row:expr, $group:ident.$array:ident, $($n:literal => $default:expr),+ $(,)?) => {
        [$($row(concat!($prefix, $n, $suffix), $default).acts(field!($group.$array[$n]))),+]
    };
}
use family;

pub(super) use congestion::{
    ENABLE as CONGESTION_ENABLE, OWN as CONGESTION_OWN, PARAMETERS as CONGESTION, ZERO_TOUCH,
};

const PARTS: &[&[KeyDef]] = &[
    receive::KEYS,
    completion::KEYS,
    vlan::KEYS,
    roce::KEYS,
    congestion::ENABLE,
    congestion::PARAMETERS,
    qos::KEYS,
    dscp::SWITCHES,
    dscp::TO_DSCP,
    dscp::TO_PRIORITY,
    dscp::MARKS,
    offload::KEYS,
    guard::KEYS,
];

const COUNT: usize = {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
};

static ALL: [KeyDef; COUNT] = {
    let mut all = [receive::KEYS[0]; COUNT];
    let (mut next, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut row = 0;
        while row < PARTS[part].len() {
            all[next] = PARTS[part][row];
            next += 1;
            row += 1;
        }
        part += 1;
    }
    all
};

/// All keys.
pub static KEYS: &[KeyDef] = &ALL;
