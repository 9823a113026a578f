//! A device is played behind the registers, and objects to whatever virtio 1.3 forbids a driver.

use vnic_device::config::{ABI_MAJOR, CONFIG_LEN, MAGIC};
use vnic_device::zerocopy::IntoBytes;

use super::*;
use crate::transport::pci::capability::{self, Layout};

/// What a queue was told.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Queue {
    size: u16,
    vector: u16,
    enabled: u16,
    addresses: [u32; 6],
}

#[derive(Debug)]
struct State {
    /// What the driver did, in order.
    log: Vec<String>,
    status: u8,
    selects: [u32; 2],
    accepted: [u32; 2],
    queue: u16,
    queues: Vec<Queue>,
    config: Vec<u8>,
    isr: u8,
    // Ways to be different.
    offered: [u32; 2],
    takes_features: bool,
    resets: bool,
    notify_off: u16,
}

/// A device with three queues of 64 entries.
struct Played(Mutex<State>);

impl Played {
    fn new(change: impl FnOnce(&mut State)) -> Device<Played> {
        let config = Config {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            config_len: CONFIG_LEN,
            event_queues: 1,
            wake_queues: 1,
            mac: [2, 0, 0, 0, 0, 9],
            ..Config::default()
        };
        let mut state = State {
            log: Vec::new(),
            status: 0xf,
            selects: [0; 2],
            accepted: [0; 2],
            queue: 0,
            queues: vec![
                Queue {
                    size: 64,
                    ..Queue::default()
                };
                3
            ],
            config: config.as_bytes().to_vec(),
            isr: 0,
            offered: [1 << 28 | 1 << 29, 1],
            takes_features: true,
            resets: true,
            notify_off: 0,
        };
        change(&mut state);
        let layout = Layout::parse(&capability::tests::space()).expect("a layout");
        Device::new(Played(Mutex::new(state)), layout)
    }
}

impl Device<Played> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.registers.0.lock().expect("lock")
    }
}

impl State {
    fn read(&mut self, bar: u8, offset: u32) -> u64 {
        assert_eq!(bar, 4);
        if let Some(at) = offset.checked_sub(0x2000).filter(|&at| at < 0x40) {
            assert!(self.status & status::DRIVER != 0, "configuration before DRIVER");
            self.log.push(format!("config {at}"));
            let word = &self.config[at as usize..][..4];
            return u64::from(u32::from_le_bytes(word.try_into().expect("4 bytes")));
        }
        let queue = self
            .queues
            .get(usize::from(self.queue))
            .copied()
            .unwrap_or_default();
        match offset {
            common::DEVICE_FEATURE => u64::from(self.offered[self.selects[0] as usize]),
            common::NUM_QUEUES => self.queues.len() as u64,
            common::DEVICE_STATUS => u64::from(self.status),
            common::QUEUE_SIZE => u64::from(queue.size),
            common::QUEUE_ENABLE => u64::from(queue.enabled),
            common::QUEUE_NOTIFY_OFF => u64::from(self.queue + self.notify_off),
            0x1000 => u64::from(std::mem::take(&mut self.isr)),
            other => panic!("read of {other:#x}"),
        }
    }

    fn write(&mut self, bar: u8, offset: u32, value: u32) {
        assert_eq!(bar, 4);
        let index = usize::from(self.queue);
        let mut queue = self.queues.get(index).copied().unwrap_or_default();
        match offset {
            common::DEVICE_FEATURE_SELECT => self.selects[0] = value,
            common::DRIVER_FEATURE_SELECT => self.selects[1] = value,
            common::DRIVER_FEATURE => {
                assert_eq!(self.status, 3, "features after ACKNOWLEDGE and DRIVER only");
                self.accepted[self.selects[1] as usize] = value;
            }
            common::CONFIG_MSIX_VECTOR => assert_eq!(value, 0xffff),
            common::DEVICE_STATUS => {
                self.log.push(format!("status {value}"));
                match value as u8 {
                    0 if self.resets => self.status = 0,
                    0 => {}
                    bits => {
                        assert_eq!(bits & self.status, self.status, "bits are only added");
                        let refused = bits & status::FEATURES_OK & !self.status != 0 && !self.takes_features;
                        self.status = if refused {
                            bits & !status::FEATURES_OK
                        } else {
                            bits
                        };
                    }
                }
            }
            common::QUEUE_SELECT => self.queue = value as u16,
            common::QUEUE_SIZE => queue.size = value as u16,
            common::QUEUE_MSIX_VECTOR => queue.vector = value as u16,
            common::QUEUE_ENABLE => {
                assert_eq!((value, self.status), (1, 0xb), "queues after FEATURES_OK only");
                self.log.push(format!("enable {index}"));
                queue.enabled = 1;
            }
            0x20..0x38 => {
                assert_eq!(queue.enabled, 0, "addresses before the queue is enabled");
                queue.addresses[(offset as usize - 0x20) / 4] = value;
            }
            0x3000..0x4000 => {
                assert_eq!(self.status & status::DRIVER_OK, status::DRIVER_OK);
                self.log.push(format!("notify {value} at {:#x}", offset - 0x3000));
            }
            other => panic!("write of {other:#x}"),
        }
        if let Some(place) = self.queues.get_mut(index) {
            *place = queue;
        }
    }
}

impl Registers for Played {
    fn read8(&self, bar: u8, offset: u32) -> u8 {
        assert!(matches!(offset, common::DEVICE_STATUS | 0x1000), "width");
        self.0.lock().expect("lock").read(bar, offset) as u8
    }
    fn read16(&self, bar: u8, offset: u32) -> u16 {
        assert!((0x10..0x20).contains(&offset), "width");
        self.0.lock().expect("lock").read(bar, offset) as u16
    }
    fn read32(&self, bar: u8, offset: u32) -> u32 {
        assert!(!(0x10..0x2000).contains(&offset), "width");
        self.0.lock().expect("lock").read(bar, offset) as u32
    }
    fn write8(&self, bar: u8, offset: u32, value: u8) {
        assert_eq!(offset, common::DEVICE_STATUS, "width");
        self.0.lock().expect("lock").write(bar, offset, value.into());
    }
    fn write16(&self, bar: u8, offset: u32, value: u16) {
        assert!((0x10..0x20).contains(&offset) || offset >= 0x3000, "width");
        self.0.lock().expect("lock").write(bar, offset, value.into());
    }
    fn write32(&self, bar: u8, offset: u32, value: u32) {
        assert!(offset < 0x10 || (0x20..0x38).contains(&offset), "width");
        self.0.lock().expect("lock").write(bar, offset, value);
    }
}

fn queues() -> Vec<Virtqueue> {
    (0..3)
        .map(|i| Virtqueue {
            size: 16 << i,
            descriptors: 0x1_0000_0000 + (i << 16),
            available: 0x1_0000_1000 + (i << 16),
            used: 0x2_0000_2000 + (i << 16),
        })
        .collect()
}

fn refusal<T>(result: Result<T, Error>) -> String {
    result.map(drop).expect_err("refused").to_string()
}

#[test]
fn everything_in_order() {
    let device = Played::new(|_| {});
    let config = device.identify().expect("ours");
    assert_eq!(config.mac, [2, 0, 0, 0, 0, 9]);
    assert_eq!([0, 2, 3].map(|q| device.queue_size_max(q)), [64, 64, 0]);
    device.notify(0);
    device.start(&queues()).expect("started");
    device.notify(0);
    device.notify(2);
    device.notify(3);
    assert_eq!(device.gone(), None);
    let state = device.state();
    let log: Vec<&str> = state
        .log
        .iter()
        .map(String::as_str)
        .filter(|l| !l.starts_with("config"))
        .collect();
    assert_eq!(
        log,
        [
            "status 0",
            "status 1",
            "status 3",
            "status 11",
            "enable 0",
            "enable 1",
            "enable 2",
            "status 15",
            "notify 0 at 0x0",
            "notify 2 at 0x8",
        ]
    );
    assert_eq!(state.accepted, [0, 1]);
    assert_eq!(
        state.queues[1],
        Queue {
            size: 32,
            vector: 0xffff,
            enabled: 1,
            addresses: [0x1_0000, 1, 0x1_1000, 1, 0x1_2000, 2],
        }
    );
}

#[test]
fn the_configuration_is_read_once() {
    let device = Played::new(|_| {});
    device.identify().expect("ours");
    device.start(&queues()).expect("started");
    let state = device.state();
    let reads: Vec<_> = state.log.iter().filter(|l| l.starts_with("config")).collect();
    let words: Vec<String> = (0..16).map(|i| format!("config {}", 4 * i)).collect();
    assert_eq!(reads, words.iter().collect::<Vec<_>>());
}

#[test]
fn of_another_device_only_the_magic_is_read() {
    let device = Played::new(|s| s.config[0] = b'X');
    assert!(refusal(device.identify()).contains("VROC"));
    let state = device.state();
    assert_eq!(state.status & status::FAILED, status::FAILED);
    assert_eq!(state.log.iter().filter(|l| l.starts_with("config")).count(), 1);
}

#[test]
fn a_device_that_does_not_fit_is_refused_with_the_cure() {
    let device = Played::new(|s| s.queues.truncate(2));
    assert!(refusal(device.identify()).contains("num_vqs=3"));
    let device = Played::new(|s| s.config[4] = 2);
    assert!(refusal(device.identify()).contains("version 2.0"));

    let device = Played::new(|s| s.offered[1] = 0);
    device.identify().expect("ours");
    assert!(refusal(device.start(&queues())).contains("VERSION_1"));
    assert_eq!(device.status() & status::FAILED, status::FAILED);

    let device = Played::new(|s| s.takes_features = false);
    device.identify().expect("ours");
    assert!(refusal(device.start(&queues())).contains("iommu_platform"));

    let device = Played::new(|s| s.notify_off = 1023);
    device.identify().expect("ours");
    assert!(refusal(device.start(&queues())).contains("virtqueue 1 cannot be set up"));
}

#[test]
fn queues_are_checked() {
    for size in [0, 65, 128, 3] {
        let device = Played::new(|_| {});
        device.identify().expect("ours");
        let mut queues = queues();
        queues[1].size = size;
        assert!(refusal(device.start(&queues)).contains("it may have 64"));
    }
    let device = Played::new(|_| {});
    device.identify().expect("ours");
    let mut four = queues();
    four.push(four[0]);
    assert!(refusal(device.start(&four)).contains("virtqueue 3"));
    let odd = Played::new(|s| s.queues[1].size = 100);
    assert_eq!(odd.queue_size_max(1), 64);
}

#[test]
fn a_device_that_has_gone_is_noticed() {
    let device = Played::new(|_| {});
    device.identify().expect("ours");
    device.start(&queues()).expect("started");
    device.state().status |= status::NEEDS_RESET;
    assert!(device.gone().expect("gone").contains("failed"));
    device.state().status = 0;
    assert!(device.gone().expect("gone").contains("reset"));
    device.state().status = 0xff;
    assert!(device.gone().expect("gone").contains("unplugged"));
    device.state().resets = false;
    device.reset().expect("unplugged devices need no reset");
}

#[test]
fn interrupts_are_taken_back() {
    let device = Played::new(|s| s.isr = 1);
    assert_eq!(device.interrupt_status(), 1);
    assert_eq!(device.interrupt_status(), 0);
}
