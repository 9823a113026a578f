//! Rules for Rust source.

use super::rooms::core_dirs;
use super::strip::{code, has_word, without_tests};
use super::{Breach, Tree};

/// The only files with `unsafe` code, and why each needs it. They are small, and they stay few.
const UNSAFE: &[(&str, &str)] = &[
    (
        "vnic-backend/src/heap.rs",
        "mallopt(3), for which no safe crate has a name",
    ),
    (
        "vnic-backend/src/mem.rs",
        "guest memory: mapped by the guest's leave, read and written while the guest runs",
    ),
    (
        "vnic-backend/src/datapath/link.rs",
        "cores copy from memory that another core has lent",
    ),
    (
        "vnic-backend/src/datapath/tx/slots.rs",
        "lends guests' buffers to other cores, until they are copied",
    ),
    (
        "vnic-backend/src/datapath/tx/slot.rs",
        "a flooded frame that waits for other cores keeps where it is, as long as its slot is there",
    ),
    (
        "vnic-backend/src/call/signals.rs",
        "asynchronous I/O, for which no safe crate has a name",
    ),
    ("vnic-backend/src/mem/mapping.rs", "maps files that VMMs share"),
    (
        "vnic-backend/src/mem/sigbus.rs",
        "a signal handler, which puts pages in the place of those that are gone",
    ),
    (
        "vnic-backend/src/rdma/memory.rs",
        "payload of RDMA: copied between guests and device memory, changed by atomics",
    ),
    (
        "vnic-backend/src/rdma/shared_ring.rs",
        "rings of the RDMA function live in guest memory; phases and indices are atomics there",
    ),
    (
        "vnic-backend/src/ring/split.rs",
        "virtqueues live in guest memory; their indices are atomics there",
    ),
    (
        "vnic-backend/src/uplink/packet/ring.rs",
        "the ring of a packet socket is memory that the kernel fills",
    ),
    (
        "vnic-backend/src/uplink/xdp/memory.rs",
        "frames and rings of AF_XDP sockets are memory that the kernel shares",
    ),
    (
        "vnic-backend/src/uplink/xdp/bpf.rs",
        "bpf(2), for which no safe crate has a name",
    ),
    (
        "vnic-backend/src/uplink/sys.rs",
        "system calls for which no safe crate has a name",
    ),
    (
        "guest-lib/src/shared.rs",
        "memory that the device writes at any time, reached by atomics alone",
    ),
    (
        "guest-lib/src/memory/region.rs",
        "registers memory that its caller answers for",
    ),
    (
        "guest-lib/src/transport/mod.rs",
        "the seam hands out addresses, and pins memory that its caller answers for",
    ),
    (
        "guest-lib/src/transport/host.rs",
        "pins memory that its caller answers for",
    ),
    (
        "guest-lib/src/transport/host/files.rs",
        "maps files that the program shares already",
    ),
    (
        "guest-lib/src/transport/host/adopt/swap.rs",
        "puts shared pages in the place of private ones",
    ),
    (
        "guest-lib/src/transport/host/adopt/write_protect.rs",
        "tells the kernel of memory by its address, to protect it",
    ),
    (
        "guest-lib/src/transport/host/adopt/stop.rs",
        "stops threads by a signal, which no library of ours speaks of",
    ),
    (
        "guest-lib/src/transport/host/adopt/fork.rs",
        "is called by fork, and parts a child's memory from its parent's",
    ),
    (
        "guest-lib/src/transport/host/adopt/tests/fork.rs",
        "its tests fork",
    ),
    (
        "guest-lib/src/transport/host/adopt/tests.rs",
        "maps, unmaps and writes memory behind the library's back",
    ),
    (
        "guest-lib/src/transport/host/memory.rs",
        "maps memory that is shared with the daemon",
    ),
    (
        "guest-lib/src/driver/fork.rs",
        "is called by fork, and its tests fork",
    ),
    (
        "guest-lib/src/driver/fake.rs",
        "the seam's other side, for tests of the driver half",
    ),
    (
        "guest-lib/src/pages/mapping.rs",
        "maps, unmaps and clears memory for the device",
    ),
    (
        "guest-lib/src/pages/pin.rs",
        "tells the kernel of memory by its address, to pin it",
    ),
    (
        "guest-lib/src/transport/pci.rs",
        "pins memory that its caller answers for",
    ),
    (
        "guest-lib/src/transport/pci/registers.rs",
        "registers of a PCI device, mapped",
    ),
    ("tests/models/src/models/links.rs", "lends what has no memory"),
    (
        "tests/models/src/mem.rs",
        "has the functions of the product's memory",
    ),
    ("tests/tests/rdma/verbs/raw.rs", "registers memory of the heap"),
    (
        "guest-lib/preload/src/abi.rs",
        "functions of an interface in C are unsafe to call, whatever they do",
    ),
    (
        "guest-lib/preload/src/abi/zeros.rs",
        "structures of C begin as zeros",
    ),
    (
        "guest-lib/preload/src/context.rs",
        "finds a context behind the pointer of a program in C, and takes it back",
    ),
    (
        "guest-lib/preload/src/devices.rs",
        "devices are C structures that every thread may read",
    ),
    (
        "guest-lib/preload/src/errno.rs",
        "the C library's place for error numbers",
    ),
    (
        "guest-lib/preload/src/export.rs",
        "where programs in C call: what they promise is taken on trust here",
    ),
    (
        "guest-lib/preload/src/exports/device.rs",
        "lists of pointers to devices, ours and the real library's",
    ),
    (
        "guest-lib/preload/src/exports/private.rs",
        "jumps into the real library, whatever the arguments are",
    ),
    (
        "guest-lib/preload/src/exports/query.rs",
        "writes answers where programs in C want them",
    ),
    (
        "guest-lib/preload/src/exports/texts.rs",
        "calls functions of the real library",
    ),
    (
        "guest-lib/preload/src/handle.rs",
        "finds objects behind the pointers that programs in C hold",
    ),
    (
        "guest-lib/preload/src/real.rs",
        "asks the loader for the real library and its functions",
    ),
    (
        "guest-lib/preload/src/events/calls.rs",
        "follows the pointers in events to the objects that they are about",
    ),
    (
        "guest-lib/preload/src/events/dispatcher.rs",
        "keeps signals from a thread of ours",
    ),
    (
        "guest-lib/preload/src/events/interrupts.rs",
        "asks how the program handles its signals",
    ),
    (
        "guest-lib/preload/src/objects/ah.rs",
        "begins as the structure of the header, and reads GIDs, which are a union there",
    ),
    (
        "guest-lib/preload/src/objects/channel.rs",
        "begins as the structure of the header",
    ),
    (
        "guest-lib/preload/src/objects/cq.rs",
        "begins as the structure of the header; is taken back from the program",
    ),
    (
        "guest-lib/preload/src/objects/dm.rs",
        "begins as the structure of the header",
    ),
    (
        "guest-lib/preload/src/objects/mr.rs",
        "registers memory of programs in C; is taken back from the program",
    ),
    (
        "guest-lib/preload/src/objects/mw.rs",
        "begins as the structure of the header",
    ),
    (
        "guest-lib/preload/src/objects/pd.rs",
        "begins as the structure of the header",
    ),
    (
        "guest-lib/preload/src/objects/qp.rs",
        "begins as the structure of the header; is taken back from the program",
    ),
    (
        "guest-lib/preload/src/objects/qp/modify.rs",
        "keeps the state up to date that programs read",
    ),
    (
        "guest-lib/preload/src/objects/srq.rs",
        "begins as the structure of the header; is taken back from the program",
    ),
    (
        "guest-lib/preload/src/objects/xrcd.rs",
        "begins as the structure of the header; looks at a descriptor of the program's",
    ),
    (
        "guest-lib/preload/src/work/post.rs",
        "walks lists of work requests of programs in C",
    ),
    (
        "guest-lib/preload/src/work/poll.rs",
        "writes completions where programs in C want them",
    ),
    (
        "guest-lib/preload/src/work/fields.rs",
        "reads a completion between calls of programs in C",
    ),
    (
        "guest-lib/preload/src/work/latch.rs",
        "keeps what is taken in one call of programs in C and given back in another",
    ),
    (
        "guest-lib/preload/src/work/wr.rs",
        "follows pointers of programs in C to what they send",
    ),
    (
        "guest-lib/preload/src/work/post/tests.rs",
        "makes lists of work requests as programs in C do",
    ),
    (
        "tests/src/driver/queue.rs",
        "the test driver's buffers are shared with the device under test",
    ),
    (
        "tests/src/driver/ring.rs",
        "the test driver's half of a ring is shared with the device under test",
    ),
];

/// Lines above an `unsafe` in which its reason must be.
const REASON_WITHIN: usize = 8;

/// `unsafe` only where it is allowed, with its reason; no allowance that nobody needs.
pub fn unsafe_code(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let stripped = code(text);
        let raw: Vec<&str> = text.lines().collect();
        let allowed = UNSAFE.iter().any(|(p, _)| *p == path);
        let mut used = false;
        let mentions = stripped
            .lines()
            .enumerate()
            .filter(|(_, l)| has_word(l, "unsafe"));
        for (i, _) in mentions {
            used = true;
            if !allowed {
                breaches.push(Breach::at(
                    path,
                    i + 1,
                    "unsafe code outside the modules that may have it",
                ));
            } else if !raw[i.saturating_sub(REASON_WITHIN)..=i]
                .iter()
                .any(|l| states_reason(l))
            {
                breaches.push(Breach::at(
                    path,
                    i + 1,
                    "unsafe code without a SAFETY comment just above it",
                ));
            }
        }
        if allowed && !used {
            breaches.push(Breach::of(path, "has no unsafe code: take it off the list"));
        }
    }
    for (path, _) in UNSAFE.iter().filter(|(p, _)| !tree.files.contains_key(*p)) {
        breaches.push(Breach::of(
            *path,
            "is gone: take it off the list of unsafe modules",
        ));
    }
    breaches
}

fn states_reason(line: &str) -> bool {
    line.contains("SAFETY:") || line.contains("# Safety")
}

/// The core crates promise what they are.
pub fn core_attributes(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for dir in core_dirs() {
        let path = format!("{dir}/src/lib.rs");
        let Some(text) = tree.files.get(&path) else {
            breaches.push(Breach::of(path, "is not there"));
            continue;
        };
        let code = code(text);
        for wanted in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !code.lines().any(|l| l.trim() == wanted) {
                breaches.push(Breach::of(&path, format!("{wanted} is missing")));
            }
        }
    }
    breaches
}

/// Names that have no place in the core, and whose business they are.
const CORE_BANS: &[(&str, &str)] = &[
    ("std::time::Instant::now", "time is an argument"),
    ("Instant::now", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("std::thread", "threads belong to the shell"),
    ("std::net", "sockets belong to the shell"),
    ("std::os", "descriptors belong to the shell"),
    ("std::fs", "files belong to the shell"),
    ("std::io", "input and output belong to the shell"),
    ("std::env", "settings are arguments"),
    ("std::process", "the core decides nothing about the process"),
    ("println!", "the core emits events, it does not print"),
    ("eprintln!", "the core emits events, it does not print"),
    ("print!", "the core emits events, it does not print"),
    ("tracing::", "the core emits events, it does not log"),
    ("log::", "the core emits events, it does not log"),
];

/// Floors of rooms, what their files do not name, and why.
const FLOORS: &[(&str, &[(&str, &str)])] = &[
    (
        "appliance/src/control",
        &[
            ("tonic", "status codes are gRPC's: say it with `Refused`"),
            ("vnic_control", "messages are gRPC's, and the store's in `stored`"),
            ("prost", "messages are gRPC's, and the store's in `stored`"),
            ("crate::access", "who may do what is asked before"),
            ("crate::cli", "it is a client of gRPC"),
            ("crate::daemon", "it builds control"),
            ("crate::grpc", "it translates into calls of control"),
            ("crate::metrics", "they read control"),
        ],
    ),
    (
        "appliance/src/stored",
        &[
            ("tonic", "status codes are gRPC's"),
            ("crate::control", "it stores"),
            ("crate::grpc", "it translates by this"),
        ],
    ),
    (
        "appliance/src/metrics",
        &[("crate::grpc", "metrics read control")],
    ),
];

/// No clock, thread, socket, file or log in the core crates, outside their tests.
pub fn core_bans(tree: &Tree) -> Vec<Breach> {
    let sources = core_dirs().map(|dir| format!("{dir}/src/"));
    sources
        .flat_map(|sources| named(tree, &sources, "the core", CORE_BANS))
        .collect()
}

/// What belongs to another floor is not named, outside tests.
pub fn floors(tree: &Tree) -> Vec<Breach> {
    let floor = |(floor, bans): &(&str, &[(&'static str, &'static str)])| {
        named(tree, &format!("{floor}/"), floor, bans)
    };
    FLOORS.iter().flat_map(floor).collect()
}

/// Where files of a folder name what they must not.
fn named(tree: &Tree, folder: &str, called: &str, bans: &[(&str, &str)]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let files = tree
        .ending(".rs")
        .filter(|(p, _)| p.starts_with(folder) && !p.ends_with("/tests.rs"));
    for (path, text) in files {
        for (i, line) in without_tests(text).lines().enumerate() {
            // The first that fits names the line; some are parts of others.
            if let Some((ban, why)) = bans.iter().find(|(ban, _)| starts_word(line, ban)) {
                breaches.push(Breach::at(path, i + 1, format!("{ban} in {called}: {why}")));
            }
        }
    }
    breaches
}

fn starts_word(line: &str, what: &str) -> bool {
    line.match_indices(what).any(|(at, _)| {
        let before = at.checked_sub(1).map(|i| line.as_bytes()[i]);
        !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Nothing is left for later. (The words are put together here so that this file passes.)
pub fn markers(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (i, line) in code(text).lines().enumerate() {
            for name in ["todo!", "unimplemented!", "dbg!"] {
                if starts_word(line, name) {
                    breaches.push(Breach::at(path, i + 1, format!("{name} is for work in progress")));
                }
            }
        }
    }
    let notes = [concat!("FIX", "ME"), concat!("XX", "X")];
    for (path, text) in tree.files.iter().filter(|(p, _)| !p.ends_with(".lock")) {
        for (i, line) in text.lines().enumerate() {
            for note in notes.iter().filter(|n| has_word(line, n)) {
                breaches.push(Breach::at(
                    path,
                    i + 1,
                    format!("{note}: do it, or write an issue"),
                ));
            }
        }
    }
    breaches
}

/// A test that is skipped says why.
pub fn ignored_tests(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (i, line) in code(text).lines().enumerate() {
            if line.replace(' ', "").contains("#[ignore]") {
                breaches.push(Breach::at(
                    path,
                    i + 1,
                    "an ignored test without a reason: #[ignore = \"why\"]",
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE_LIB: &str = "//! Docs.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    fn places(breaches: &[Breach]) -> Vec<&str> {
        breaches.iter().map(|b| b.place.as_str()).collect()
    }

    /// A tree in which every allowed module has its `unsafe`, and one file more.
    fn with(path: &str, text: &str) -> Tree {
        let good = "// SAFETY: reason\nunsafe { x() }\n";
        let mut tree = Tree::default();
        tree.files
            .extend(UNSAFE.iter().map(|(p, _)| ((*p).to_owned(), good.to_owned())));
        tree.files.insert(path.into(), text.into());
        tree
    }

    #[test]
    fn unsafe_is_found_where_it_may_not_be() {
        assert_eq!(
            unsafe_code(&with("appliance/src/a.rs", "// unsafe\nfn f() { \"unsafe\"; }\n")),
            []
        );
        let found = unsafe_code(&with("appliance/src/a.rs", "fn f() {\n    unsafe { x() }\n}\n"));
        assert_eq!(places(&found), ["appliance/src/a.rs:2"]);
    }

    #[test]
    fn unsafe_needs_its_reason() {
        let far = format!(
            "// SAFETY: reason\n{}unsafe {{ x() }}\n",
            "\n".repeat(REASON_WITHIN)
        );
        for text in ["unsafe { x() }\n", &far] {
            assert_eq!(unsafe_code(&with(UNSAFE[0].0, text)).len(), 1, "{text}");
        }
        assert_eq!(
            unsafe_code(&with(
                UNSAFE[0].0,
                "/// # Safety\n/// reason\npub unsafe fn f() {}\n"
            )),
            []
        );
    }

    #[test]
    fn the_list_of_unsafe_modules_holds_no_idlers() {
        assert_eq!(
            places(&unsafe_code(&with(UNSAFE[0].0, "fn f() {}\n"))),
            [UNSAFE[0].0]
        );
        let mut tree = with("a.rs", "");
        tree.files.remove(UNSAFE[1].0);
        assert_eq!(places(&unsafe_code(&tree)), [UNSAFE[1].0]);
        assert!(UNSAFE.iter().all(|(_, reason)| !reason.is_empty()));
    }

    #[test]
    fn core_crates_promise() {
        let lib = |c: &str| format!("vnic-backend/{c}/src/lib.rs");
        let mut tree = Tree::default();
        for c in ["wire", "fabric", "engine"] {
            tree.files.insert(lib(c), CORE_LIB.into());
        }
        assert_eq!(core_attributes(&tree), []);
        tree.files
            .insert(lib("wire"), "#![no_std]\n// #![forbid(unsafe_code)]\n".into());
        tree.files
            .insert(lib("fabric"), "#![forbid(unsafe_code)]\n".into());
        tree.files.remove(&lib("engine"));
        assert_eq!(core_attributes(&tree).len(), 3);
    }

    #[test]
    fn the_core_has_no_outside() {
        let path = "vnic-backend/fabric/src/switch.rs";
        for bad in [
            "let t = std::time::Instant::now();",
            "let t = Instant::now();",
            "use std::time::SystemTime;",
            "std::thread::spawn(f);",
            "use std::net::UdpSocket;",
            "std::fs::read(p);",
            "println!(\"x\");",
            "tracing::info!(\"x\");",
        ] {
            assert_eq!(core_bans(&Tree::of([(path, bad)])).len(), 1, "{bad}");
            assert_eq!(
                core_bans(&Tree::of([("vnic-backend/src/a.rs", bad)])),
                [],
                "the shell may: {bad}"
            );
            let test = format!("#[cfg(test)]\nmod tests {{\n    {bad}\n}}\n");
            assert_eq!(
                core_bans(&Tree::of([(path, test.as_str())])),
                [],
                "tests may: {bad}"
            );
        }
        assert_eq!(
            core_bans(&Tree::of([(path, "// std::fs\nuse crate::catalog::x;\n")])),
            []
        );
    }

    #[test]
    fn what_is_above_a_floor_is_found() {
        for bad in [
            "use tonic::Status;",
            "fn f(m: vnic_control::v1::Qos) {}",
            "use crate::grpc::errors;",
        ] {
            assert_eq!(
                floors(&Tree::of([("appliance/src/control/a.rs", bad)])).len(),
                1,
                "{bad}"
            );
            assert_eq!(
                floors(&Tree::of([("appliance/src/grpc/a.rs", bad)])),
                [],
                "gRPC may: {bad}"
            );
        }
        let fine = "// tonic\nuse crate::stored::qos;\n";
        assert_eq!(floors(&Tree::of([("appliance/src/control/a.rs", fine)])), []);
    }

    #[test]
    fn work_in_progress_is_found() {
        for bad in ["todo!()", "unimplemented!()", "dbg!(x)"] {
            assert_eq!(markers(&Tree::of([("a.rs", bad)])).len(), 1, "{bad}");
        }
        for note in [concat!("FIX", "ME"), concat!("XX", "X")] {
            for path in ["a.rs", "b.md", "c"] {
                assert_eq!(
                    markers(&Tree::of([(path, &format!("# {note}: x"))])).len(),
                    1,
                    "{note} in {path}"
                );
            }
        }
        assert_eq!(
            markers(&Tree::of([
                ("a.rs", "\"todo!\" // dbg!"),
                ("Cargo.lock", concat!("XX", "X"))
            ])),
            []
        );
    }

    #[test]
    fn ignored_tests_say_why() {
        assert_eq!(
            ignored_tests(&Tree::of([("a.rs", "#[ignore]\nfn f() {}")])).len(),
            1
        );
        assert_eq!(
            ignored_tests(&Tree::of([("a.rs", "#[ignore = \"needs a moon\"]\nfn f() {}")])),
            []
        );
    }
}
