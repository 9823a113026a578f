//! libFuzzer around the target that `VNIC_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vnic_fuzz::{Target, find};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("VNIC_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("VNIC_FUZZ_TARGET={name:?}: there is no such target"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
