//! Machines made of files: a device's registers are then plain memory.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use vnic_device::config::{ABI_MAJOR, CONFIG_LEN};
use vnic_device::zerocopy::IntoBytes;

use super::*;

/// A machine's directory.
struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    fn new() -> Made {
        let dir = tempfile::tempdir().expect("directory");
        for path in [
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers/uio_pci_generic",
            "dev",
            "run",
        ] {
            fs::create_dir_all(dir.path().join(path)).expect("directory");
        }
        fs::write(dir.path().join("sys/bus/pci/drivers_probe"), "").expect("file");
        Made { dir }
    }

    fn machine(&self) -> Machine {
        Machine::at(self.dir.path())
    }

    fn file(&self, address: &str, name: &str) -> std::path::PathBuf {
        self.dir
            .path()
            .join("sys/bus/pci/devices")
            .join(address)
            .join(name)
    }

    /// A virtio function with this id, driver and first bytes of its configuration.
    fn plug(&self, address: &str, id: u32, driver: Option<&str>, magic: &[u8; 4]) {
        let put = |name: &str, bytes: &[u8]| fs::write(self.file(address, name), bytes).expect("file");
        fs::create_dir(self.file(address, "")).expect("directory");
        put("vendor", b"0x1af4\n");
        put("device", format!("{:#06x}\n", 0x1040 + id).as_bytes());
        put("driver_override", b"(null)\n");
        let mut space = capability::tests::space();
        // What the window shows.
        space[0x94..0x98].copy_from_slice(magic);
        put("config", &space);
        let config = Config {
            magic: *magic,
            abi_major: ABI_MAJOR,
            config_len: CONFIG_LEN,
            event_queues: 1,
            wake_queues: 1,
            ..Config::default()
        };
        let mut bar = vec![0; 0x4000];
        // All features are offered, and there are three queues of 64 entries.
        bar[4..8].copy_from_slice(&[0xff; 4]);
        bar[0x12] = 3;
        bar[0x18] = 64;
        bar[0x2000..0x2040].copy_from_slice(config.as_bytes());
        put("resource4", &bar);
        if let Some(driver) = driver {
            self.bind(address, driver);
        }
    }

    fn bind(&self, address: &str, driver: &str) {
        let drivers = self.dir.path().join("sys/bus/pci/drivers");
        fs::create_dir_all(drivers.join(driver)).expect("directory");
        fs::write(drivers.join(driver).join("unbind"), "").expect("file");
        symlink(drivers.join(driver), self.file(address, "driver")).expect("link");
        if driver == "virtio-pci" {
            fs::create_dir_all(self.file(address, "virtio7")).expect("directory");
        } else {
            fs::create_dir_all(self.file(address, "uio/uio3")).expect("directory");
            // What a read gives is 4 bytes.
            fs::write(self.dir.path().join("dev/uio3"), [1, 0, 0, 0]).expect("file");
        }
    }

    /// Gives the device that `virtio-pci` has made to a driver.
    fn drive(&self, address: &str, driver: &str) {
        symlink(
            Path::new("/sys/bus/virtio/drivers").join(driver),
            self.file(address, "virtio7/driver"),
        )
        .expect("link");
    }

    fn command(&self, address: &str) -> u16 {
        let space = fs::read(self.file(address, "config")).expect("config");
        u16::from_le_bytes([space[4], space[5]])
    }

    fn open(&self, address: &str) -> Result<PciTransport, Error> {
        PciTransport::open_in(&self.machine(), address.parse()?)
    }

    fn refusal(&self, address: &str) -> String {
        self.open(address).map(drop).expect_err("refused").to_string()
    }
}

#[test]
fn functions_are_found() {
    let made = Made::new();
    assert_eq!(find_in(&made.machine()).expect("list"), []);
    made.plug("0000:00:03.0", 1, Some("virtio-pci"), b"VROC");
    made.drive("0000:00:03.0", "virtio_net");
    made.plug("0000:00:04.0", 42, None, b"????");
    made.plug("0000:00:05.0", 38, Some("uio_pci_generic"), b"????");
    made.plug("0000:00:06.0", 38, Some("virtio-pci"), b"????");
    made.plug("0000:00:07.0", 17, None, b"VROC");
    made.plug("0000:00:08.0", 17, None, b"XROC");
    made.plug("0000:00:09.0", 42, Some("virtio-pci"), b"VROC");
    made.drive("0000:00:09.0", "virtio_rdma");
    made.plug("0000:00:0a.0", 17, Some("vfio-pci"), b"VROC");
    made.plug("0001:02:00.1", 13, Some("virtio-pci"), b"VROC");
    let found: Vec<String> = find_in(&made.machine())
        .expect("list")
        .iter()
        .map(PciAddress::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "0000:00:04.0",
            "0000:00:05.0",
            "0000:00:06.0",
            "0000:00:07.0",
            "0001:02:00.1"
        ]
    );
    // By the window: BAR 4, from 0x2000, 4 bytes.
    let space = fs::read(made.file("0000:00:08.0", "config")).expect("config");
    assert_eq!(space[0x88..0x94], [4, 0, 0, 0, 0, 0x20, 0, 0, 4, 0, 0, 0]);
    let empty = tempfile::tempdir().expect("directory");
    assert_eq!(find_in(&Machine::at(empty.path())).expect("no PCI"), []);
}

#[test]
fn a_device_is_opened_once_and_reset_at_the_end() {
    let made = Made::new();
    let address = "0000:00:05.0";
    made.plug(address, 38, Some("uio_pci_generic"), b"VROC");
    let transport = made.open(address).expect("opened");
    assert_eq!(transport.name(), address);
    assert_eq!(transport.config().magic, MAGIC);
    assert_eq!(transport.queue_size_max(0), 64);
    assert_eq!(made.command(address) & 0x406, 0x006);
    let function = made.machine().function(address.parse().expect("address"));
    assert_eq!(function.recorded().as_ref(), Some(transport.config()));

    assert!(made.refusal(address).contains("in use by another program"));
    let status = || fs::read(made.file(address, "resource4")).expect("registers")[0x14];
    assert_eq!(status(), 3);
    drop(transport);
    assert_eq!(status(), 0);
    made.open(address).expect("opened again");
}

#[test]
fn interrupts_are_acknowledged() {
    let made = Made::new();
    let address = "0000:00:05.0";
    made.plug(address, 38, Some("uio_pci_generic"), b"VROC");
    let transport = made.open(address).expect("opened");
    // As the kernel does when the interrupt comes.
    let space = fs::OpenOptions::new()
        .write(true)
        .open(made.file(address, "config"));
    space.expect("config").write_all_at(&[0x04], 5).expect("written");
    assert_eq!(made.command(address) & 0x400, 0x400);
    transport.acknowledge().expect("acknowledged");
    assert_eq!(made.command(address), 0x006);
    assert!(transport.gone().is_none());
}

#[test]
fn a_function_is_taken_from_the_bus_only() {
    let made = Made::new();
    let address = "0000:00:05.0";
    made.plug(address, 38, Some("virtio-pci"), b"VROC");
    let function = made.machine().function(address.parse().expect("address"));
    assert_eq!(function.holder(), Holder::Bus);
    assert!(made.refusal(address).contains("does not bind"));
    let unbind = made.dir.path().join("sys/bus/pci/drivers/virtio-pci/unbind");
    assert_eq!(fs::read_to_string(&unbind).expect("file"), address);
    fs::write(&unbind, "").expect("file");
    made.drive(address, "virtio_net");
    assert_eq!(function.holder(), Holder::Kernel("virtio_net".into()));
    assert!(
        made.refusal(address)
            .contains("in use by the kernel's driver virtio_net")
    );
    assert_eq!(fs::read_to_string(&unbind).expect("file"), "");
}

#[test]
fn what_stands_in_the_way_is_named_with_its_cure() {
    let made = Made::new();
    assert!(made.refusal("nonsense").contains("not the address"));
    assert!(made.refusal("0000:00:01.0").contains("lspci"));

    made.plug("0000:00:02.0", 42, Some("virtio-pci"), b"VROC");
    made.drive("0000:00:02.0", "virtio_rdma");
    let text = made.refusal("0000:00:02.0");
    assert!(
        text.contains("echo 0000:00:02.0 > /sys/bus/pci/drivers/virtio-pci/unbind"),
        "{text}"
    );

    made.plug("0000:00:03.0", 42, None, b"VROC");
    assert!(made.refusal("0000:00:03.0").contains("does not bind"));
    let written = |path| fs::read_to_string(path).expect("file");
    assert_eq!(
        written(made.dir.path().join("sys/bus/pci/drivers_probe")),
        "0000:00:03.0"
    );
    // Nobody has taken it, so it is as it was: a line end ends the override.
    assert_eq!(
        written(made.file("0000:00:03.0", "driver_override")),
        "\nio_pci_generic"
    );
    fs::remove_dir(made.dir.path().join("sys/bus/pci/drivers/uio_pci_generic")).expect("removed");
    assert!(made.refusal("0000:00:03.0").contains("modprobe uio_pci_generic"));

    made.plug("0000:00:04.0", 42, Some("uio_pci_generic"), b"VROX");
    assert!(
        made.refusal("0000:00:04.0")
            .starts_with("0000:00:04.0: it is no RDMA function")
    );

    made.plug("0000:00:05.0", 42, Some("uio_pci_generic"), b"VROC");
    fs::write(made.file("0000:00:05.0", "resource4"), [0; 0x2000]).expect("short");
    assert!(
        made.refusal("0000:00:05.0")
            .contains("beyond the end of its BAR 4")
    );

    made.plug("0000:00:06.0", 42, Some("uio_pci_generic"), b"VROC");
    fs::write(made.file("0000:00:06.0", "config"), [0; 64]).expect("short");
    assert!(made.refusal("0000:00:06.0").contains("CAP_SYS_ADMIN"));

    fs::create_dir(made.file("0000:00:07.0", "")).expect("directory");
    fs::write(made.file("0000:00:07.0", "vendor"), "0x8086").expect("file");
    assert!(
        made.refusal("0000:00:07.0")
            .contains("not a modern virtio device")
    );
}
