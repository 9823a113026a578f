//! Every target takes what its corpus holds, and bytes at random.
//!
//! `VNIC_FUZZ_CASES` sets how many random inputs each target gets, `VNIC_SEED` which.

use std::path::Path;

fn inputs(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(files) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|p| std::fs::read(p).expect("an input"))
        .collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn try_target(name: &str, cases: u64) {
    let target = vnic_fuzz::find(name).expect("a target");
    for input in inputs(name) {
        (target.run)(&input);
    }
    let seed = number("VNIC_SEED").unwrap_or(0);
    for case in 0..number("VNIC_FUZZ_CASES").unwrap_or(cases) {
        println!("{name}: VNIC_SEED={} VNIC_FUZZ_CASES=1", seed + case);
        let mut dice = fastrand::Rng::with_seed(seed + case);
        let input: Vec<u8> = (0..dice.usize(0..3000)).map(|_| dice.u8(..)).collect();
        (target.run)(&input);
    }
}

macro_rules! targets {
    ($($name:ident $cases:literal,)*) => {
        $(#[test]
        fn $name() {
            try_target(stringify!($name), $cases);
        })*

        #[test]
        fn each_target_is_here() {
            let all: Vec<_> = vnic_fuzz::TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(all, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    vhost 100,
    ring 4000,
    packed 4000,
    driver 4000,
    commands 100,
    work 100,
    engine 300,
    roce 2000,
    gids 2000,
    lacp 2000,
    lldp 2000,
    cm 2000,
    mesh 2000,
    grpc 100,
    reg 2000,
    config 2000,
    faults 2000,
    policy 2000,
}
