//! C programs that know nothing of our library, with it: before the real one, and in its place. Without a device here;
//! with one they run in the lab.

use std::path::Path;
use std::process::Command;

/// Lists devices, and opens those of ours.
const LIST: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>

int main(void)
{
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    printf("count %d, list %s\n", count, list ? "there" : strerror(errno));
    for (int i = 0; list && list[i]; i++) {
        printf("device %s\n", ibv_get_device_name(list[i]));
        if (!strncmp(ibv_get_device_name(list[i]), "vnic", 4)) {
            printf("index %d, type %s\n", ibv_get_device_index(list[i]), ibv_node_type_str(list[i]->node_type));
            errno = 0;
            struct ibv_context *context = ibv_open_device(list[i]);
            printf("open %s\n", context ? "there" : strerror(errno));
            if (context)
                ibv_close_device(context);
        }
    }
    if (list)
        ibv_free_device_list(list);
    printf("fork %d, rate %d\n", ibv_fork_init(), ibv_rate_to_mbps(IBV_RATE_100_GBPS));
    return 0;
}
"#;

/// Finds the library by itself, as UCX, NCCL and libfabric do.
const LOAD: &str = r#"
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    int count = -1;
    void **(*get)(int *) = dlsym(library, "ibv_get_device_list");
    const char *(*name)(void *) = dlsym(library, "ibv_get_device_name");
    const char *(*status)(int) = dlsym(library, "ibv_wc_status_str");
    void **list = get(&count);
    printf("count %d, first %s, text %s\n", count, list && list[0] ? name(list[0]) : "none", status(0));
    return 0;
}
"#;

/// The library under the name of the real one, in a directory of its own.
fn drop_in(dir: &Path) -> std::path::PathBuf {
    let own = dir.join("drop-in");
    std::fs::create_dir(&own).expect("a directory");
    std::os::unix::fs::symlink(crate::common::library(), own.join("libibverbs.so.1")).expect("a link");
    own
}

fn say(command: &mut Command) -> (String, String) {
    let output = crate::common::run(command);
    (
        crate::common::text(&output.stdout),
        crate::common::text(&output.stderr),
    )
}

#[test]
fn a_device_that_is_not_there_is_listed_and_says_why_it_cannot_be_opened() {
    const NAME: &str = "programs::a_device_that_is_not_there_is_listed_and_says_why_it_cannot_be_opened";
    if !crate::common::can_compile(NAME) || crate::common::real(NAME).is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = crate::common::compile(dir.path(), "list", LIST, &["-libverbs"]);
    let real_ones = say(&mut Command::new(&program)).0;
    let real_names: Vec<&str> = real_ones.lines().filter(|l| l.starts_with("device ")).collect();
    let socket = dir.path().join("nobody.sock");
    let preload = crate::common::library();
    let in_its_place = drop_in(dir.path());
    for (variable, value) in [("LD_PRELOAD", &preload), ("LD_LIBRARY_PATH", &in_its_place)] {
        let mut command = Command::new(&program);
        command.env(variable, value).env("VNIC_SOCKET", &socket);
        let (out, err) = say(&mut command);
        assert!(
            out.contains("device vnic0\nindex -1, type "),
            "{variable}: {out}{err}"
        );
        assert!(out.contains("open No such"), "{variable}: {out}{err}");
        assert!(
            err.contains(&socket.display().to_string()),
            "{variable}: the cause: {err}"
        );
        for real in &real_names {
            assert!(out.contains(real), "{variable}: {real} is there as before: {out}");
        }
        assert!(
            out.contains(&format!("count {}, list there", 1 + real_names.len())),
            "{variable}: {out}"
        );
        assert!(out.contains("rate 103125"), "{variable}: {out}");
    }
}

#[test]
fn without_a_device_of_ours_all_is_as_it_was() {
    const NAME: &str = "programs::without_a_device_of_ours_all_is_as_it_was";
    if !crate::common::can_compile(NAME) || crate::common::real(NAME).is_none() {
        return;
    }
    let found = vnic_verbs::Device::list();
    if std::env::var_os("VNIC_SOCKET").is_some() || found.is_ok_and(|devices| !devices.is_empty()) {
        println!("SKIP {NAME}: this machine has a device of ours");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = crate::common::compile(dir.path(), "list", LIST, &["-libverbs"]);
    let before = say(&mut Command::new(&program));
    let with = say(Command::new(&program).env("LD_PRELOAD", crate::common::library()));
    assert_eq!(before, with);
    let nothing = say(Command::new(&program)
        .env("LD_PRELOAD", crate::common::library())
        .env("VNIC_REAL_LIBIBVERBS", ""));
    assert!(
        nothing.0.starts_with("count 0, list there"),
        "without a real library there is an empty list: {nothing:?}"
    );
}

#[test]
fn in_place_of_the_real_library_it_is_found_by_those_who_load_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = crate::common::compile(dir.path(), "load", LOAD, &["-ldl"]);
    let (out, err) = say(Command::new(&program)
        .env("LD_LIBRARY_PATH", drop_in(dir.path()))
        .env("VNIC_SOCKET", dir.path().join("nobody.sock")));
    assert!(out.contains("first vnic0"), "{out}{err}");
    assert!(out.to_lowercase().contains("text success"), "{out}{err}");
}

/// Loads a library of rdma-core that is bound to libibverbs, and calls a function of the inside of that, by way of us
/// and in the real library.
const PROVIDER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *ours = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void *real = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    unsigned (*by_us)(unsigned, double) = dlsym(ours, "__ioctl_final_num_attrs");
    unsigned (*direct)(unsigned, double) = dlsym(real, "__ioctl_final_num_attrs");
    printf("%s\n", by_us != direct && by_us(5, 1.5) == direct(5, 1.5) && by_us(7, 2.5) == direct(7, 2.5) ? "same" : "not");
    for (int i = 2; i < argc; i++)
        printf("%s\n", dlopen(argv[i], RTLD_NOW) ? "loaded" : dlerror());
    return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn in_place_of_the_real_library_it_serves_those_who_want_its_inside() {
    const NAME: &str = "programs::in_place_of_the_real_library_it_serves_those_who_want_its_inside";
    let Some(real) = crate::common::real(NAME) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = crate::common::compile(dir.path(), "provider", PROVIDER, &["-ldl"]);
    let others: Vec<_> = ["libmlx5.so.1", "librdmacm.so.1", "libefa.so.1"]
        .iter()
        .map(|name| real.with_file_name(name))
        .filter(|path| path.exists())
        .collect();
    let (out, err) = say(Command::new(&program)
        .env("LD_LIBRARY_PATH", drop_in(dir.path()))
        .arg(real)
        .args(&others));
    assert_eq!(out, format!("same\n{}", "loaded\n".repeat(others.len())), "{err}");
}

#[test]
fn programs_that_load_it_themselves_find_it_when_it_is_loaded_first_as_well() {
    const NAME: &str = "programs::programs_that_load_it_themselves_find_it_when_it_is_loaded_first_as_well";
    if crate::common::real(NAME).is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = crate::common::compile(dir.path(), "load", LOAD, &["-ldl"]);
    // `dlsym` on the real library's handle goes past whatever was loaded first: what the drop-in is for.
    let (out, err) = say(Command::new(&program)
        .env("LD_PRELOAD", crate::common::library())
        .env("VNIC_SOCKET", dir.path().join("nobody.sock")));
    assert!(!out.contains("first vnic0"), "{out}{err}");
}
