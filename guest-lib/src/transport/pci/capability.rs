//! Where a device's registers are: the capability list of its PCI configuration space (virtio 1.3, section 4.1.4).

use crate::Error;

/// Identifier of vendor-specific capabilities, which virtio's are.
const VENDOR: u8 = 0x09;
/// Bit of the PCI status register: there is a capability list.
const HAS_LIST: u8 = 1 << 4;
/// More capabilities than this do not fit into the space: the list is a circle.
const LIST_MAX: usize = 48;
/// Base address registers of a function.
pub const BARS: usize = 6;

/// Kinds of capabilities that are used (virtio 1.3, section 4.1.4).
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const ISR: u8 = 3;
const DEVICE: u8 = 4;
const WINDOW: u8 = 5;

/// A piece of a BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Number of the BAR.
    pub bar: u8,
    /// First byte.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Where the registers of a modern virtio device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Common configuration.
    pub common: Region,
    /// Notifications.
    pub notify: Region,
    /// Multiplier of queues' notification offsets, in bytes.
    pub notify_multiplier: u32,
    /// Interrupt status.
    pub isr: Region,
    /// The device's own configuration.
    pub device: Region,
    /// Offset in the PCI configuration space of the window to all of these (section 4.1.4.9), if there is one.
    pub window: Option<u8>,
}

impl Layout {
    /// Parses the first 256 bytes of the PCI configuration space.
    pub fn parse(space: &[u8]) -> Result<Layout, Error> {
        let mut found: [Option<(Region, u32)>; 5] = [None; 5];
        let mut window = None;
        for at in capabilities(space) {
            if let Some([VENDOR, _, 20..=u8::MAX, WINDOW, ..]) = space.get(at..at + 20) {
                window = window.or(u8::try_from(at).ok());
            }
            let Some((kind, region, multiplier)) = virtio(space, at) else {
                continue;
            };
            // The device lists the capability of a kind first that it prefers.
            if let Some(place @ None) = found.get_mut(usize::from(kind)) {
                *place = Some((region, multiplier));
            }
        }
        let get = |kind: u8, name: &str| {
            found[usize::from(kind)].ok_or_else(|| {
                Error::NoDevice(format!(
                    "its PCI capabilities name no memory for virtio's {name}: it is not a modern virtio device"
                ))
            })
        };
        let (notify, notify_multiplier) = get(NOTIFY, "notifications")?;
        let layout = Layout {
            common: get(COMMON, "common configuration")?.0,
            notify,
            notify_multiplier,
            isr: get(ISR, "interrupt status")?.0,
            device: get(DEVICE, "device configuration")?.0,
            window,
        };
        // Section 4.1.4.3: up to queue_device, without the fields of later versions.
        for (what, region, least) in [
            ("common configuration", layout.common, 0x38),
            ("notifications", layout.notify, 2),
            ("interrupt status", layout.isr, 1),
            ("device configuration", layout.device, 4),
        ] {
            if region.len < least {
                return Err(Error::NoDevice(format!(
                    "its {what} has only {} bytes: it is not a modern virtio device of ours",
                    region.len
                )));
            }
        }
        Ok(layout)
    }

    /// All regions.
    pub const fn regions(&self) -> [Region; 4] {
        [self.common, self.notify, self.isr, self.device]
    }
}

/// Offsets of the capabilities.
fn capabilities(space: &[u8]) -> Vec<usize> {
    let byte = |at: usize| space.get(at).copied().unwrap_or_default();
    let mut out = Vec::new();
    if byte(0x06) & HAS_LIST == 0 {
        return out;
    }
    let mut at = usize::from(byte(0x34) & !3);
    while at >= 0x40 && out.len() < LIST_MAX {
        out.push(at);
        at = usize::from(byte(at + 1) & !3);
    }
    out
}

/// Kind, region and multiplier of a virtio capability in memory (not in I/O ports, which are not mapped).
fn virtio(space: &[u8], at: usize) -> Option<(u8, Region, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(space.get(at..at + 4)?.try_into().ok()?));
    let head = space.get(at..at + 16)?;
    if head[0] != VENDOR || head[2] < 16 {
        return None;
    }
    let (kind, bar) = (head[3], head[4]);
    if usize::from(bar) >= BARS || word(0x10 + 4 * usize::from(bar))? & 1 != 0 {
        return None;
    }
    let multiplier = match kind {
        NOTIFY if head[2] < 20 => return None,
        NOTIFY => word(at + 16)?,
        _ => 0,
    };
    let region = Region {
        bar,
        offset: word(at + 8)?,
        len: word(at + 12)?,
    };
    Some((kind, region, multiplier))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Bytes of a capability.
    pub fn capability(
        kind: u8,
        next: u8,
        bar: u8,
        offset: u32,
        len: u32,
        multiplier: Option<u32>,
    ) -> Vec<u8> {
        let size = if multiplier.is_some() { 20 } else { 16 };
        let mut bytes = vec![VENDOR, next, size, kind, bar, 0, 0, 0];
        bytes.extend(offset.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(multiplier.iter().flat_map(|m| m.to_le_bytes()));
        bytes
    }

    /// The space of a device as QEMU makes it: MSI-X, then the capabilities, memory in BAR 4, ports in BAR 0.
    pub fn space() -> Vec<u8> {
        let mut space = vec![0_u8; 256];
        space[..4].copy_from_slice(&[0xf4, 0x1a, 0x66, 0x10]);
        space[0x06] = HAS_LIST;
        space[0x10] = 1;
        space[0x34] = 0x98;
        space[0x98..0x9b].copy_from_slice(&[0x11, 0x84, 0x00]);
        let mut put = |at: usize, bytes: Vec<u8>| space[at..at + bytes.len()].copy_from_slice(&bytes);
        put(0x84, capability(5, 0x70, 0, 0, 0, Some(0)));
        put(0x70, capability(2, 0x60, 4, 0x3000, 0x1000, Some(4)));
        put(0x60, capability(4, 0x50, 4, 0x2000, 0x40, None));
        put(0x50, capability(3, 0x40, 4, 0x1000, 0x1000, None));
        put(0x40, capability(1, 0, 4, 0, 0x1000, None));
        space
    }

    #[test]
    fn a_device_is_understood() {
        let bar4 = |offset, len| Region { bar: 4, offset, len };
        let layout = Layout::parse(&space()).expect("a device");
        assert_eq!(
            layout,
            Layout {
                common: bar4(0, 0x1000),
                notify: bar4(0x3000, 0x1000),
                notify_multiplier: 4,
                isr: bar4(0x1000, 0x1000),
                device: bar4(0x2000, 0x40),
                window: Some(0x84),
            }
        );
    }

    #[test]
    fn ports_and_reserved_bars_are_passed_over_for_the_next() {
        let mut space = space();
        space[0x34] = 0xc0;
        let ports = capability(2, 0xe0, 0, 0, 4, Some(0));
        space[0xc0..0xd4].copy_from_slice(&ports);
        let reserved = capability(1, 0x98, 7, 0, 0x1000, None);
        space[0xe0..0xf0].copy_from_slice(&reserved);
        let layout = Layout::parse(&space).expect("a device");
        assert_eq!((layout.notify.bar, layout.common.bar), (4, 4));
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let text = |space: &[u8]| Layout::parse(space).expect_err("refused").to_string();
        assert!(text(&[]).contains("notifications"));
        let mut none = space();
        none[0x06] = 0;
        assert!(text(&none).contains("not a modern virtio device"));
        // A list in a circle, and one that leaves the space.
        let mut circle = space();
        circle[0x41] = 0x98;
        assert!(Layout::parse(&circle).is_ok());
        circle[0x43] = 9;
        assert!(text(&circle).contains("common configuration"));
        assert!(text(&space()[..0x48]).contains("notifications"));
        let mut short = space();
        short[0x4c..0x50].copy_from_slice(&0x20_u32.to_le_bytes());
        assert!(text(&short).contains("only 32 bytes"));
    }

    #[test]
    fn any_bytes_are_borne() {
        let mut state = 1_u64;
        for _ in 0..2000 {
            let mut space = space();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 40) as usize % space.len();
                space[at] = (state >> 32) as u8;
            }
            let _ = Layout::parse(&space);
        }
    }
}
