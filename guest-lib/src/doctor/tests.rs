//! Machines made of files, each with one thing wrong.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use vnic_device::config::{ABI_MAJOR, CONFIG_LEN, Config, MAGIC};

use super::*;

/// A machine where all is well: a VM, root, the driver loaded, one device that was opened before.
struct Made {
    dir: tempfile::TempDir,
    system: System,
}

const DEVICE: &str = "sys/bus/pci/devices/0000:00:05.0";

impl Made {
    fn new() -> Made {
        let dir = tempfile::tempdir().expect("directory");
        let system = System {
            machine: Machine::at(dir.path()),
            sockets: Vec::new(),
            pagemap: Ok(()),
            pin: Ok(()),
            write_protect: Ok(()),
            stop: true,
        };
        let made = Made { dir, system };
        made.put("sys/class/dmi/id/sys_vendor", "QEMU\n");
        made.put(
            "sys/class/dmi/id/product_name",
            "Standard PC (Q35 + ICH9, 2009)\n",
        );
        made.put(
            "proc/cpuinfo",
            "processor : 0\nflags : fpu sse hypervisor lahf_lm\n",
        );
        made.capabilities(0x1ff_ffff_ffff);
        made.put("proc/self/uid_map", "         0          0 4294967295\n");
        made.put(
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              8388608              bytes\n",
        );
        made.put("proc/sys/kernel/osrelease", "6.1.0-44-amd64\n");
        made.put(
            "sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        );
        made.put(
            "lib/modules/6.1.0-44-amd64/modules.dep",
            "kernel/drivers/uio/uio_pci_generic.ko: \n",
        );
        made.put("sys/bus/pci/drivers/uio_pci_generic/new_id", "");
        made.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
        made.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "60\n");
        made.plug("0000:00:05.0", 38);
        made.driver("uio_pci_generic");
        made.record(&Config {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            config_len: CONFIG_LEN,
            event_queues: 1,
            wake_queues: 1,
            mac: [2, 0, 0, 0, 0, 7],
            ..Config::default()
        });
        made
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().expect("parent")).expect("directory");
        fs::write(self.path(path), text).expect("file");
    }

    fn remove(&self, path: &str) {
        fs::remove_dir_all(self.path(path)).expect("removed");
    }

    fn capabilities(&self, set: u64) {
        self.put("proc/self/status", &format!("Name:\tx\nCapEff:\t{set:016x}\n"));
    }

    fn plug(&self, address: &str, id: u32) {
        let file = |name| format!("sys/bus/pci/devices/{address}/{name}");
        self.put(&file("vendor"), "0x1af4\n");
        self.put(&file("device"), &format!("{:#06x}\n", 0x1040 + id));
    }

    /// Gives the device to a driver.
    fn driver(&self, name: &str) {
        let link = self.path(DEVICE).join("driver");
        let _ = fs::remove_file(&link);
        symlink(Path::new("/sys/bus/pci/drivers").join(name), link).expect("link");
    }

    fn record(&self, config: &Config) {
        let function = self.system.machine.function("00:05.0".parse().expect("address"));
        function.record(config).expect("recorded");
    }

    fn findings(&self) -> Vec<Finding> {
        examine_system(&self.system)
    }

    /// The one finding that is not good.
    fn bad(&self) -> Finding {
        let mut bad: Vec<Finding> = self
            .findings()
            .into_iter()
            .filter(|f| f.verdict != Verdict::Ok)
            .collect();
        assert_eq!(bad.len(), 1, "{bad:#?}");
        bad.remove(0)
    }

    /// Asserts what it is about, what it says, and the cure.
    fn expect(&self, verdict: Verdict, what: &str, detail: &str, cure: &str) {
        let bad = self.bad();
        let shown = format!("{bad:#?}");
        assert_eq!(bad.verdict, verdict, "{shown}");
        assert!(bad.what.contains(what), "{shown}");
        assert!(bad.detail.contains(detail), "{shown}");
        assert!(bad.cure.is_some_and(|c| c.contains(cure)), "{shown}");
    }

    fn problem(&self, what: &str, detail: &str, cure: &str) {
        self.expect(Verdict::Problem, what, detail, cure);
    }
}

#[test]
fn a_machine_that_is_well() {
    let made = Made::new();
    let findings = made.findings();
    let all: String = findings
        .iter()
        .map(|f| format!("{} {}: {} {:?}\n", f.verdict, f.what, f.detail, f.cure))
        .collect();
    assert!(
        findings
            .iter()
            .all(|f| f.verdict == Verdict::Ok && f.cure.is_none()),
        "{all}"
    );
    for text in [
        "QEMU Standard PC (Q35",
        "VNIC_SOCKET: not set",
        "driver uio_pci_generic: loaded",
        "device 0000:00:05.0: virtio id 38, ready; contract 1.0, adapter 02:00:00:00:00:07",
        "60 of 64 are free",
    ] {
        assert!(all.contains(text), "{text} in\n{all}");
    }
}

#[test]
fn privileges() {
    let made = Made::new();
    made.capabilities(0);
    let bad: Vec<Finding> = made
        .findings()
        .into_iter()
        .filter(|f| f.verdict != Verdict::Ok)
        .collect();
    assert!(
        bad[0].cure.as_ref().is_some_and(|c| c.contains("sudo")),
        "{bad:?}"
    );
    // Without CAP_IPC_LOCK the limit counts, and 8 MiB are little.
    assert_eq!(bad[1].what, "limit of locked memory");
    made.capabilities(1 << 21 | 1 << 14);
    made.expect(Verdict::Warning, "privileges", "CAP_DAC_OVERRIDE", "sudo");
    let made = Made::new();
    made.put("proc/self/uid_map", "0 100000 65536\n");
    made.problem("privileges", "user namespace", "outside");
}

#[test]
fn locked_memory() {
    let made = Made::new();
    made.capabilities(1 << 21 | 1 << 1);
    made.expect(
        Verdict::Warning,
        "locked memory",
        "8192 KiB",
        "ulimit -l unlimited",
    );
    for limit in ["unlimited", "1073741824"] {
        made.put(
            "proc/self/limits",
            &format!("Max locked memory   {limit}   {limit}   bytes\n"),
        );
        assert!(made.findings().iter().all(|f| f.verdict == Verdict::Ok));
    }
}

#[test]
fn the_driver() {
    let made = Made::new();
    made.remove("sys/bus/pci/drivers/uio_pci_generic");
    made.problem("driver uio_pci_generic", "not loaded", "modprobe uio_pci_generic");
    made.put(
        "lib/modules/6.1.0-44-amd64/modules.dep",
        "kernel/drivers/uio/uio.ko: \n",
    );
    made.problem(
        "driver",
        "6.1.0-44-amd64 does not have it",
        "apt install linux-image",
    );
    made.remove("lib");
    made.problem("driver", "no modules of kernel", "modprobe");
}

#[test]
fn lockdown() {
    let made = Made::new();
    made.put(
        "sys/kernel/security/lockdown",
        "none [integrity] confidentiality\n",
    );
    made.problem("lock-down", "integrity", "Secure Boot");
    fs::remove_file(made.path("sys/kernel/security/lockdown")).expect("removed");
    assert!(made.findings().iter().all(|f| f.verdict == Verdict::Ok));
}

#[test]
fn no_device() {
    let made = Made::new();
    made.remove("sys/bus/pci/devices");
    made.problem("device", "no other virtio device", "vhost-user-test-device-pci");
    made.plug("0000:00:03.0", 1);
    made.problem("device", "1 other virtio devices", "virtio-id=38");
}

#[test]
fn devices_and_who_has_them() {
    let made = Made::new();
    made.driver("vfio-pci");
    made.expect(
        Verdict::Warning,
        "device 0000:00:05.0",
        "the kernel's driver vfio-pci has it",
        "echo 0000:00:05.0 > /sys/bus/pci/drivers/vfio-pci/unbind",
    );
    // The bus has it, and nobody uses it.
    made.driver("virtio-pci");
    assert!(
        made.findings()
            .iter()
            .any(|f| f.detail.contains("made ready when it is opened"))
    );
    // A plugged-in successor at the same place: what was written down is of another.
    made.remove("run");
    let text = format!("{:?}", made.findings());
    assert!(text.contains("its version is not known"), "{text}");
}

#[test]
fn another_version() {
    let made = Made::new();
    made.record(&Config {
        magic: MAGIC,
        abi_major: 7,
        ..Config::default()
    });
    made.problem("device", "contract 7.0", "from one release");
}

#[test]
fn memory_that_cannot_be_used() {
    let mut made = Made::new();
    made.system.pagemap = Err("hidden".into());
    made.problem("pagemap", "hidden", "sudo");

    let mut made = Made::new();
    made.system.pin = Err("no io_uring".into());
    made.put("proc/sys/kernel/io_uring_disabled", "2\n");
    made.expect(
        Verdict::Warning,
        "pinning",
        "Only memory that the library itself",
        "sysctl -w kernel.io_uring_disabled=0",
    );
    made.put("proc/sys/kernel/io_uring_disabled", "0\n");
    made.expect(Verdict::Warning, "pinning", "no io_uring", "seccomp");
    made.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    let bad: Vec<Finding> = made
        .findings()
        .into_iter()
        .filter(|f| f.verdict == Verdict::Problem)
        .collect();
    assert_eq!(bad.len(), 2);
    assert!(
        bad.iter()
            .all(|f| f.cure.as_ref().is_some_and(|c| c.contains("vm.nr_hugepages")))
    );

    let made = Made::new();
    made.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    assert!(made.findings().iter().all(|f| f.verdict == Verdict::Ok));
}

#[test]
fn no_virtual_machine() {
    let made = Made::new();
    made.put("proc/cpuinfo", "processor : 0\nflags : fpu sse\n");
    made.expect(
        Verdict::Warning,
        "machine",
        "no virtual machine",
        "export VNIC_SOCKET",
    );
    // A processor that does not say.
    made.put("proc/cpuinfo", "processor : 0\nFeatures : fp asimd\n");
    assert!(made.findings().iter().all(|f| f.verdict == Verdict::Ok));
}

#[test]
fn a_socket() {
    let mut made = Made::new();
    made.put("proc/cpuinfo", "flags : fpu sse\n");
    let path = made.path("a-rdma.sock");
    made.system.sockets = vec![path.clone()];
    made.problem("VNIC_SOCKET", "there is no", "start vnicd");
    made.put("a-rdma.sock", "");
    made.problem("VNIC_SOCKET", "is no socket", "ls -l");
    fs::remove_file(&path).expect("removed");
    let listener = UnixListener::bind(&path).expect("socket");
    let findings = made.findings();
    assert!(findings.iter().all(|f| f.verdict == Verdict::Ok), "{findings:?}");
    assert_eq!(
        findings.len(),
        3,
        "a process of the host needs no device: {findings:?}"
    );
    made.system.write_protect = Err("not permitted".to_owned());
    let said = made.findings().pop().expect("the last one");
    assert!(
        said.verdict == Verdict::Ok && said.detail.contains("stopped by a signal"),
        "{said:?}"
    );
    made.system.stop = false;
    made.expect(
        Verdict::Warning,
        "userfaultfd",
        "may be refused",
        "unset VNIC_STOP_THREADS",
    );
    made.system.write_protect = Ok(());
    drop(listener);
    made.problem("VNIC_SOCKET", "nobody listens", "systemctl restart vnicd");
    let ethernet = made.path("a-eth.sock");
    let _listener = UnixListener::bind(&ethernet).expect("socket");
    made.system.sockets = vec![ethernet];
    made.problem("VNIC_SOCKET", "Ethernet function", "a-rdma.sock");
}

#[test]
fn this_machine_can_be_examined() {
    let findings = examine();
    assert!(findings.iter().any(|f| f.what == "machine"));
    assert!(
        findings
            .iter()
            .all(|f| (f.verdict == Verdict::Ok) == f.cure.is_none())
    );
}
