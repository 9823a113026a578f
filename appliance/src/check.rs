//! Checks of single settings. The configuration file, the command line and gRPC share them, so that they refuse the same
//! values with the same texts: the problem, and what is allowed.

pub mod fault;
pub mod qos;
pub mod subnet_group;
mod suggest;
pub mod verbs_fault;
mod violations;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub use suggest::nearest;
pub use violations::Violations;

use crate::http::Url;
use crate::traces::Collector;
use vnic_backend::{
    ApplicationRow, DcbxMode, DcbxWilling, LldpMode, MTU_RANGE, MacAddr, PkeyTable, Prefix,
    QUEUE_PAIRS_RANGE, RDMA_MEMORY_RANGE, SPEED_RANGE, STORM_RANGE, TAP_QUEUES_MAX, VMM_DESCRIPTORS_RANGE,
    VMM_REGIONS_RANGE, WAKE_PATTERNS_MAX, WakeAction, WakePattern,
};

/// Default MTU of an adapter or a port.
pub const MTU_DEFAULT: u16 = 1500;
/// Default number of queue pairs of an adapter.
pub const QUEUE_PAIRS_DEFAULT: u16 = 1;
/// Greatest number of addresses of an adapter.
pub const MACS_MAX: usize = 16;
/// Greatest number of an adapter's `allowed_addresses`: each frame of its guest is compared with all of them.
pub const ALLOWED_ADDRESSES_MAX: usize = 64;
/// Greatest index of a GID table.
pub const GID_INDEX_MAX: u16 = 4095;
/// Greatest length of a Unix socket's path in bytes (`sockaddr_un` has 108 with the terminating zero).
pub const SOCKET_PATH_MAX: usize = 107;

/// A checked value, or an error text: the problem, and what is allowed.
pub type Checked<T> = Result<T, String>;

/// Name of an adapter or a port.
pub fn name(text: &str) -> Checked<String> {
    let tail = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let head = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    match text.as_bytes() {
        [first, rest @ ..] if rest.len() <= 14 && head(*first) && rest.iter().all(|b| tail(*b)) => {
            Ok(text.to_owned())
        }
        _ => Err(format!(
            "{text:?} is not a name: 1 to 15 of a-z, 0-9, '-' and '_', beginning with a letter or digit"
        )),
    }
}

/// IP address or prefix that a guest may use.
pub fn allowed_address(text: &str) -> Checked<Prefix> {
    text.parse().map_err(|e| format!("{text:?}: {e}"))
}

/// P_Key of a table: decimal, or 0x and hexadecimal digits.
pub fn pkey(text: &str) -> Checked<u16> {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse(), |digits| u16::from_str_radix(digits, 16));
    number.map_err(|_| format!("{text:?} is no P_Key: 0x0001 to 0xffff are allowed"))
}

/// P_Keys of an adapter, of which none are named: that of a full member of the default partition.
pub fn pkeys(pkeys: &[u16]) -> Checked<PkeyTable> {
    match pkeys {
        [] => Ok(PkeyTable::default()),
        pkeys => PkeyTable::new(pkeys).map_err(|e| e.to_string()),
    }
}

/// What a magic packet does.
pub fn wake(text: &str) -> Checked<WakeAction> {
    let action: WakeAction = text.parse()?;
    match &action {
        WakeAction::Qmp(path) | WakeAction::Unix(path) => socket_path(path).map(drop)?,
        WakeAction::Http(url) => wake_url(url).map(drop)?,
    }
    Ok(action)
}

/// Patterns of frames that wake.
pub fn wake_patterns<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Checked<Vec<WakePattern>> {
    if texts.len() > WAKE_PATTERNS_MAX {
        return Err(format!(
            "an adapter has at most {WAKE_PATTERNS_MAX} of these, not {}",
            texts.len()
        ));
    }
    texts.map(str::parse).collect()
}

/// URL to which magic packets are posted.
pub fn wake_url(text: &str) -> Checked<Url> {
    Url::parse(text, 80)
}

/// Number of an adapter's `allowed_addresses`.
pub fn allowed_addresses(count: usize) -> Checked<()> {
    match count {
        0..=ALLOWED_ADDRESSES_MAX => Ok(()),
        _ => Err(format!(
            "an adapter has at most {ALLOWED_ADDRESSES_MAX} of these, not {count}"
        )),
    }
}

/// MAC address of an adapter.
pub fn mac(text: &str) -> Checked<MacAddr> {
    let mac: MacAddr = text.parse().map_err(|_| {
        format!("{text:?} is not a MAC address: six hexadecimal bytes such as 02:00:5e:00:00:01")
    })?;
    if mac.is_multicast() {
        return Err(format!(
            "{mac} is a group address: the first byte of an adapter's own address must be even"
        ));
    }
    if mac == MacAddr::default() {
        return Err("the address of all zeros belongs to nobody".to_owned());
    }
    Ok(mac)
}

fn within<T>(value: i64, range: std::ops::RangeInclusive<T>, unit: &str) -> Checked<T>
where
    T: TryFrom<i64> + PartialOrd + std::fmt::Display,
{
    T::try_from(value)
        .ok()
        .filter(|v| range.contains(v))
        .ok_or_else(|| {
            format!(
                "{value} is out of range: {} to {}{unit}",
                range.start(),
                range.end()
            )
        })
}

/// Checks of numbers: each the range that is allowed, and the unit for its error text.
macro_rules! ranges {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $range:expr, $unit:literal;)+) => {
        $($(#[$doc])* pub fn $name(value: i64) -> Checked<$type> {
            within(value, $range, $unit)
        })+
    };
}
use ranges;

ranges! {
    /// MTU of an adapter or a port.
    mtu: u16 = MTU_RANGE, " bytes";
    /// Speed of a port in Mbit/s.
    speed: u32 = SPEED_RANGE, " Mbit/s";
    /// Limit of storm control.
    storm: u32 = STORM_RANGE, " frames a second";
    /// Queues of a TAP device.
    tap_queues: u8 = 1..=TAP_QUEUES_MAX, "";
    /// Index of a GID table. The adapter checks it against the length of its table.
    gid_index: u16 = 0..=GID_INDEX_MAX, "";
    /// Number of queue pairs of an adapter.
    queue_pairs: u16 = QUEUE_PAIRS_RANGE, "";
    /// Memory of an adapter's RDMA function in MiB.
    rdma_memory: u32 = RDMA_MEMORY_RANGE, " MiB";
    /// Memory regions of an adapter's VMMs.
    vmm_regions: u32 = VMM_REGIONS_RANGE, "";
    /// Descriptors of an adapter's VMMs.
    vmm_descriptors: u32 = VMM_DESCRIPTORS_RANGE, "";
    /// Number of events that are kept.
    events_kept: usize = 100..=1_000_000, " events";
    /// VLAN ID.
    vlan_id: u16 = 1..=4094, "";
}

/// A GID, in network order: an IPv6 address, or an IPv4 address, which is mapped.
pub fn gid(text: &str) -> Checked<[u8; 16]> {
    let v4 = |a: Ipv4Addr| a.to_ipv6_mapped().octets();
    let v6 = text.parse().map(|a: Ipv6Addr| a.octets());
    v6.or_else(|_| text.parse().map(v4)).map_err(|_| {
        format!(
            "{text:?} is not a GID: an IPv6 address such as 2001:db8::1, or an IPv4 address such as 10.0.0.1"
        )
    })
}

/// Mode of a Unix socket. Who connects needs the right to write.
pub fn socket_mode(text: &str) -> Checked<u32> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| digits && *mode <= 0o777);
    match mode {
        Some(mode) if mode & 0o222 == 0 => Err(format!(
            "{text:?} lets nobody connect, which takes the right to write: \"0660\" lets owner and group"
        )),
        Some(mode) => Ok(mode),
        None => Err(format!(
            "{text:?} is not a mode: three or four octal digits such as \"0660\", without bits beyond 0777"
        )),
    }
}

/// Number of a user or a group. The greatest stands for none in chown(2).
pub fn account(number: u32) -> Checked<u32> {
    match number {
        u32::MAX => Err(format!(
            "{number} is the number of nobody: 0 to {} are allowed",
            u32::MAX - 1
        )),
        _ => Ok(number),
    }
}

/// CPU of the data core of an adapter or a port.
pub fn data_core(value: i64, data_cores: &[usize]) -> Checked<usize> {
    usize::try_from(value)
        .ok()
        .filter(|core| data_cores.contains(core))
        .ok_or_else(|| format!("CPU {value} is not a data core: {}", list(data_cores)))
}

/// CPUs of the NIC's data cores: at least one, each once, each a CPU on which this process may run.
pub fn data_cores(values: &[usize], allowed: &[usize]) -> Checked<()> {
    if values.is_empty() {
        return Err("at least one data core is needed".to_owned());
    }
    for (i, core) in values.iter().enumerate() {
        if values[..i].contains(core) {
            return Err(format!("CPU {core} is named twice"));
        }
        if !allowed.contains(core) {
            return Err(format!(
                "CPU {core} is not one this process may run on: {}",
                list(allowed)
            ));
        }
    }
    Ok(())
}

/// List of CPUs such as `2,4-6`.
pub fn cpu_list(text: &str) -> Checked<Vec<usize>> {
    let wrong = || format!("{text:?} is not a list of CPUs: numbers and ranges such as 2,4-6");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: usize = from.trim().parse().map_err(|_| wrong())?;
        let to: usize = to.trim().parse().map_err(|_| wrong())?;
        if from > to || to > 65_535 {
            return Err(wrong());
        }
        cpus.extend(from..=to);
    }
    Ok(cpus)
}

/// The mode of link layer discovery of a port.
pub fn lldp(text: &str) -> Checked<LldpMode> {
    let names = LldpMode::ALL.map(LldpMode::name);
    LldpMode::of(text).ok_or_else(|| format!("{text:?}; allowed are {}", names.join(", ")))
}

/// The version of data center bridging exchange of a port.
pub fn dcbx(text: &str) -> Checked<DcbxMode> {
    let names = DcbxMode::ALL.map(DcbxMode::name);
    DcbxMode::of(text).ok_or_else(|| format!("{text:?}; allowed are {}", names.join(", ")))
}

/// Names of the attributes of data center bridging exchange.
const ATTRIBUTES: [&str; 3] = ["ets", "pfc", "applications"];

/// The name of an attribute of data center bridging exchange.
pub fn attribute(text: &str) -> Checked<&'static str> {
    let found = ATTRIBUTES.into_iter().find(|name| *name == text);
    found.ok_or_else(|| format!("{text:?}; allowed are {}", ATTRIBUTES.join(", ")))
}

/// Willing bits of the attributes that are named.
pub fn willing<'n>(names: impl IntoIterator<Item = &'n str>) -> DcbxWilling {
    let mut all = DcbxWilling {
        ets: false,
        pfc: false,
        applications: false,
    };
    for name in names {
        match name {
            "ets" => all.ets = true,
            "pfc" => all.pfc = true,
            _ => all.applications = true,
        }
    }
    all
}

/// Names of the attributes whose willing bit is set.
pub fn willing_names(to: DcbxWilling) -> Vec<&'static str> {
    let bits = [to.ets, to.pfc, to.applications];
    let named = ATTRIBUTES.into_iter().zip(bits).filter(|(_, is)| *is);
    named.map(|(name, _)| name).collect()
}

/// A row of a port's table of applications, such as `udp:4791=3`.
pub fn application(text: &str) -> Checked<ApplicationRow> {
    text.parse()
}

/// Name of a network interface (Linux: 1 to 15 bytes, no `/`, no white space, not `.` or `..`).
pub fn ifname(text: &str) -> Checked<String> {
    let ok = (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':' && b != b'%');
    ok.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "{text:?} is not the name of a network interface: 1 to 15 characters, no '/', ':', '%' or space"
        )
    })
}

/// Path of a Unix socket.
pub fn socket_path(path: &Path) -> Checked<PathBuf> {
    let length = path.as_os_str().len();
    if !path.is_absolute() {
        Err(format!("{} is not an absolute path", path.display()))
    } else if length > SOCKET_PATH_MAX {
        Err(format!(
            "{} has {length} bytes: the path of a Unix socket has at most {SOCKET_PATH_MAX}",
            path.display()
        ))
    } else {
        Ok(path.to_owned())
    }
}

/// Address on which the control interface listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlListen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address, with mutual TLS.
    Tcp(SocketAddr),
}

/// Address of the control interface: `unix:PATH`, an absolute path, `tcp:ADDR:PORT` or `ADDR:PORT`.
pub fn control_listen(text: &str) -> Checked<ControlListen> {
    let path = text
        .strip_prefix("unix:")
        .or_else(|| text.starts_with('/').then_some(text));
    if let Some(path) = path {
        let path = path.strip_prefix("//").unwrap_or(path);
        return socket_path(Path::new(path)).map(ControlListen::Unix);
    }
    let addr: SocketAddr = text
        .strip_prefix("tcp:")
        .unwrap_or(text)
        .parse()
        .map_err(|_| format!("{text:?} is no address to listen on: unix:PATH or tcp:ADDR:PORT"))?;
    Ok(ControlListen::Tcp(addr))
}

/// Address of metrics: `ADDR:PORT`, or `off`.
pub fn metrics_listen(text: &str) -> Checked<Option<SocketAddr>> {
    if text == "off" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| format!("{text:?} is no address for metrics: ADDR:PORT such as 127.0.0.1:9400, or off"))
}

/// Collector of traces: the base of its URL, or `off`.
pub fn collector(text: &str) -> Checked<Option<Collector>> {
    match text {
        "off" => Ok(None),
        url => Collector::parse(url).map(Some),
    }
}

/// Numbers in words.
pub fn list(values: &[usize]) -> String {
    match values {
        [] => "none".to_owned(),
        [one] => format!("only {one}"),
        many => many
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["vf0", "a", "0", "a-b_c", "abcdefghijklmno"] {
            assert!(name(good).is_ok(), "{good}");
        }
        for bad in ["", "VF0", "-a", "a/b", "abcdefghijklmnop", "a b", "ä"] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_unicast_and_not_zero() {
        assert!(mac("02:00:5e:00:00:01").is_ok());
        for bad in [
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
            "02:00",
            "",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_name_what_is_allowed() {
        assert_eq!(mtu(9216), Ok(9216));
        assert_eq!(mtu(67), Err("67 is out of range: 68 to 9216 bytes".to_owned()));
        assert_eq!(vlan_id(0), Err("0 is out of range: 1 to 4094".to_owned()));
        assert_eq!(
            queue_pairs(70_000),
            Err("70000 is out of range: 1 to 16".to_owned())
        );
    }

    #[test]
    fn gids_are_addresses_of_either_kind() {
        assert_eq!(gid("::ffff:10.0.0.1"), gid("10.0.0.1"));
        assert_eq!(gid("fe80::1").map(|g| (g[0], g[15])), Ok((0xfe, 1)));
        for bad in ["", "10.0.0", "fe80", "fe80::1%eth0", "::1/128", "[::1]"] {
            assert!(gid(bad).is_err_and(|e| e.contains("2001:db8::1")), "{bad}");
        }
        assert_eq!(gid_index(4096), Err("4096 is out of range: 0 to 4095".to_owned()));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("2,4-6"), Ok(vec![2, 4, 5, 6]));
        for bad in ["", "a", "3-1", "1,,2", "0-99999999"] {
            assert!(cpu_list(bad).is_err(), "{bad}");
        }
        assert!(data_cores(&[0, 0], &[0, 1]).is_err());
        assert!(data_cores(&[7], &[0, 1]).is_err());
        assert!(data_cores(&[], &[0, 1]).is_err());
    }

    #[test]
    fn the_control_interface_listens_on_sockets_and_addresses() {
        assert_eq!(
            control_listen("unix:/run/x.sock"),
            Ok(ControlListen::Unix("/run/x.sock".into()))
        );
        assert!(control_listen("tcp:127.0.0.1:0").is_ok());
        assert!(control_listen("[::1]:5").is_ok());
        assert!(control_listen("tcp:0.0.0.0:9401").is_ok());
        assert!(control_listen("relative.sock").is_err());
        assert!(control_listen("unix:relative.sock").is_err());
    }
}
