//! Parsers of rates, lists and maps of quality of service.

pub mod message;

use vnic_control::v1;
use vnic_control::v1::qos::Color;

use super::Checked;

/// Number of priorities, and of traffic classes.
pub const COUNT: usize = 8;
/// Last virtual lane; those up to 7 are the traffic classes.
pub const LANE_MAX: u32 = 14;

/// Rate in bit/s: `5G`, `1.5G`, `500M`, `64k`, or a plain number; `0`, `none` or `unlimited` for no limit.
pub fn rate(text: &str) -> Checked<u64> {
    let wrong =
        || format!("{text:?} is not a rate: such as 5G, 1.5G, 500M or 64k (bit/s), or 0 for no limit");
    let text = text.trim();
    if ["none", "unlimited"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
    {
        return Ok(0);
    }
    let number = text
        .strip_suffix("bps")
        .or_else(|| text.strip_suffix("bit/s"))
        .or_else(|| text.strip_suffix("bit"))
        .unwrap_or(text)
        .trim_end();
    let (number, zeros) = match number.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&number[..at], 3),
        Some((at, 'm' | 'M')) => (&number[..at], 6),
        Some((at, 'g' | 'G')) => (&number[..at], 9),
        Some((at, 't' | 'T')) => (&number[..at], 12),
        _ => (number, 0),
    };
    let (whole, part) = number
        .trim_end()
        .split_once('.')
        .unwrap_or((number.trim_end(), ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let part = part.trim_end_matches('0');
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > zeros {
        return Err(wrong());
    }
    let padded = format!("{whole}{part:0<zeros$}");
    let rate: u64 = padded.parse().map_err(|_| wrong())?;
    if (1..1000).contains(&rate) && zeros == 0 {
        return Err(format!(
            "{text}: a number alone is in bit/s, and the least is 1000; {text}G is {text} Gbit/s"
        ));
    }
    Ok(rate)
}

/// Speed of a link in Mbit/s: a plain number, or a rate with a unit, such as `10G`; `0` for that of the device.
pub fn speed_mbps(text: &str) -> Checked<u32> {
    if let Ok(mbps) = text.parse() {
        return Ok(mbps);
    }
    const MBPS: u64 = 1_000_000;
    let whole = rate(text).ok().filter(|rate| rate % MBPS == 0);
    let mbps = whole.and_then(|rate| u32::try_from(rate / MBPS).ok());
    mbps.ok_or_else(|| format!("{text:?} is not a speed: whole Mbit/s, such as 10000, 10G or 500M"))
}

/// Text of a rate, as [`rate`] parses it, in the unit in which it is short.
pub fn rate_text(rate: u64) -> String {
    let (unit, word) = match rate {
        0 => return "unlimited".to_owned(),
        1..1_000_000 => (1_000, "Kbps"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbps"),
        _ => (1_000_000_000u64, "Gbps"),
    };
    let digits = unit.ilog10() as usize;
    let part = format!("{:0digits$}", rate % unit);
    match part.trim_end_matches('0') {
        "" => format!("{} {word}", rate / unit),
        part => format!("{}.{part} {word}", rate / unit),
    }
}

/// Eight values separated by commas, one for each priority or traffic class.
pub fn eight<T: Copy + Default>(
    text: &str,
    of: &str,
    one: impl Fn(&str) -> Checked<T>,
) -> Checked<[T; COUNT]> {
    let parts: Vec<&str> = text
        .trim()
        .trim_end_matches(',')
        .split(',')
        .map(str::trim)
        .collect();
    if parts.len() != COUNT {
        return Err(format!(
            "{} values; {COUNT} are needed, separated by commas: one for each {of}, 0 to 7",
            parts.len()
        ));
    }
    let mut all = [T::default(); COUNT];
    for (i, (part, place)) in parts.into_iter().zip(&mut all).enumerate() {
        *place = one(part).map_err(|problem| format!("{of} {i}: {problem}"))?;
    }
    Ok(all)
}

/// Integer up to `max`.
pub fn up_to(text: &str, max: u32) -> Checked<u32> {
    text.parse()
        .ok()
        .filter(|v| *v <= max)
        .ok_or_else(|| format!("{text:?} is out of range: 0 to {max}"))
}

/// Critical watermark of storm prevention in milliseconds: a number, or a word of `pfc_stall_prevention` in the cards' sysfs.
pub fn watermark(text: &str) -> Checked<u32> {
    match text {
        "auto" => Ok(100),
        "default" => Ok(8000),
        _ => text
            .parse()
            .map_err(|_| format!("{text:?}: milliseconds, auto and default are allowed")),
    }
}

/// EtherType: a number, decimal or with 0x.
pub fn ethertype(text: &str) -> Checked<u32> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number
        .filter(|n| (0x0600..=0xffff).contains(n))
        .ok_or_else(|| format!("{text:?} is no EtherType: 0x0600 to 0xffff, such as 0x88a8"))
}

/// Traffic class or virtual lane of each priority: eight of 0 to 14.
pub fn classes(text: &str) -> Checked<[u32; COUNT]> {
    eight(text, "priority", |t| up_to(t, LANE_MAX))
}

/// Number of each priority: eight of 0 to 7.
pub fn eighths(text: &str) -> Checked<[u32; COUNT]> {
    eight(text, "priority", |t| up_to(t, 7))
}

/// Traffic class or virtual lane of each service level: sixteen of 0 to 14, or eight, for which those of 8 to 15 are the same.
pub fn levels(text: &str) -> Checked<Vec<u32>> {
    match text.trim_end_matches(',').split(',').count() {
        16 => sixteen(text, "service level", LANE_MAX),
        _ => classes(text).map(Vec::from),
    }
}

/// Number of each of something: sixteen of 0 to `max`.
pub fn sixteen(text: &str, of: &str, max: u32) -> Checked<Vec<u32>> {
    let all: Vec<&str> = text.trim_end_matches(',').split(',').map(str::trim).collect();
    if all.len() != 16 {
        return Err(format!(
            "{} values; 16 are needed, separated by commas: one for each {of}, 0 to 15",
            all.len()
        ));
    }
    let one = |(i, text): (usize, &&str)| up_to(text, max).map_err(|problem| format!("{of} {i}: {problem}"));
    all.iter().enumerate().map(one).collect()
}

/// Switch of each priority or traffic class: eight of 0 and 1.
pub fn switches(text: &str, of: &str) -> Checked<[bool; COUNT]> {
    eight(text, of, |t| match t {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{t:?}: 0 and 1 are allowed")),
    })
}

/// Per cent of each traffic class: eight of 0 to 100.
pub fn percents(text: &str) -> Checked<[u32; COUNT]> {
    eight(text, "traffic class", |t| up_to(t.trim_end_matches('%'), 100))
}

/// Sizes of eight buffers in bytes.
pub fn sizes(text: &str) -> Checked<[u32; COUNT]> {
    eight(text, "buffer", bytes)
}

/// Rate of each traffic class.
pub fn rates(text: &str) -> Checked<[u64; COUNT]> {
    eight(text, "traffic class", rate)
}

/// Change of the ECN profile of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileOrder {
    /// Traffic class.
    pub class: usize,
    /// Profile; `None`: ECN and WRED are disabled, and the thresholds stay.
    pub profile: Option<v1::EcnProfile>,
}

impl ProfileOrder {
    /// Applies the change.
    pub fn put(&self, all: &mut Vec<v1::EcnProfile>) {
        all.resize(COUNT, v1::EcnProfile::default());
        if let Some(place) = all.get_mut(self.class) {
            *place = self.profile.unwrap_or(v1::EcnProfile {
                ecn: false,
                wred: false,
                ..*place
            });
        }
    }
}

/// Number of bytes, with an optional k (1000) or Ki (1024).
pub fn bytes(text: &str) -> Checked<u32> {
    let (number, unit) = match text.strip_suffix("Ki") {
        Some(number) => (number, 1024),
        None => text
            .strip_suffix(['k', 'K'])
            .map_or((text, 1), |number| (number, 1000)),
    };
    let read = number.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    read.ok_or_else(|| format!("{text:?} is no number of bytes: such as 5000, 5k or 64Ki"))
}

/// Per cent with up to four decimals, as parts per million.
pub fn ppm(text: &str) -> Checked<u32> {
    let wrong = || format!("{text:?} is out of range: 0 to 100 per cent, with four decimals at most");
    let number = text.trim_end_matches('%');
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || part.len() > 4 || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let ppm: u32 = format!("{whole}{part:0<4}").parse().map_err(|_| wrong())?;
    if ppm > 1_000_000 { Err(wrong()) } else { Ok(ppm) }
}

/// Change of an ECN profile: `3=5000:200000:1%`, with an optional `:wred`, `:drop`, `:enqueue`, `:average=9`,
/// `:yellow=MIN:MAX:PERCENT` and `:red=…`; thresholds of all colors in bytes, or with `%` behind each; or `3=off`.
pub fn profile(text: &str) -> Checked<ProfileOrder> {
    let wrong = || {
        format!(
            "{text:?}: TC=MIN:MAX:PERCENT[:yellow=MIN:MAX:PERCENT][:red=MIN:MAX:PERCENT][:wred|:drop][:enqueue]\
             [:average=N] and TC=off are allowed"
        )
    };
    let (class, rest) = text.split_once('=').ok_or_else(wrong)?;
    let class = up_to(class.trim(), 7).map_err(|e| format!("traffic class {e}"))? as usize;
    if rest == "off" {
        return Ok(ProfileOrder { class, profile: None });
    }
    let mut parts = rest.split(':').map(str::trim);
    let mut in_percent = Vec::new();
    let mut curve = |first: Option<&str>, parts: &mut dyn Iterator<Item = &str>| {
        let mut threshold = |text: &str| {
            in_percent.push(text.ends_with('%'));
            match text.strip_suffix('%') {
                Some(percent) => up_to(percent, 100),
                None => bytes(text),
            }
        };
        let (min, max) = (first.ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
        Ok::<_, String>(v1::EcnCurve {
            min_bytes: threshold(min)?,
            max_bytes: threshold(max)?,
            max_probability_ppm: ppm(parts.next().ok_or_else(wrong)?)?,
        })
    };
    let green = curve(parts.next(), &mut parts)?;
    let mut profile = v1::EcnProfile {
        ecn: true,
        min_bytes: green.min_bytes,
        max_bytes: green.max_bytes,
        max_probability_ppm: green.max_probability_ppm,
        ..v1::EcnProfile::default()
    };
    while let Some(word) = parts.next() {
        match word.split_once('=') {
            Some(("yellow", min)) => profile.yellow = Some(curve(Some(min), &mut parts)?),
            Some(("red", min)) => profile.red = Some(curve(Some(min), &mut parts)?),
            Some(("average", weight)) => profile.average_weight = up_to(weight, 15)?,
            None if word == "wred" => profile.wred = true,
            None if word == "drop" => (profile.ecn, profile.wred) = (false, true),
            None if word == "enqueue" => profile.at_enqueue = true,
            _ => return Err(wrong()),
        }
    }
    profile.thresholds_in_percent = in_percent.contains(&true);
    if profile.thresholds_in_percent && in_percent.contains(&false) {
        return Err(format!(
            "{text:?}: thresholds are all in bytes, or all in per cent"
        ));
    }
    Ok(ProfileOrder {
        class,
        profile: Some(profile),
    })
}

/// Fields of a register with values: `ee=1,ew=0`, decimal or with 0x.
pub fn assignments(text: &str) -> Checked<Vec<(String, u32)>> {
    let one = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim();
        let number = match value.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => value.parse(),
        };
        Some((name.trim().to_ascii_lowercase(), number.ok()?))
    };
    text.split(',')
        .map(|part| one(part).ok_or_else(|| format!("{part:?} is not of the form FIELD=NUMBER")))
        .collect()
}

/// Change of the map from DSCP to priority, as in `mlnx_qos --dscp2prio`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapOrder {
    /// `set,DSCP,PRIORITY`.
    Set(u8, u8),
    /// `del,DSCP,PRIORITY`: back to the default.
    Delete(u8, u8),
    /// `flush`: all back to the default.
    Flush,
}

/// Parses a change of the map.
pub fn map_order(text: &str) -> Checked<MapOrder> {
    const FORMS: &str = "set,DSCP,PRIORITY, del,DSCP,PRIORITY (such as set,30,5) and flush are allowed";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let small = |what: &str, text: &str, max| {
        let number = up_to(text, max).map_err(|problem| format!("{what} {problem}"))?;
        u8::try_from(number).map_err(|e| e.to_string())
    };
    let two = |dscp, priority| Ok::<_, String>((small("DSCP", dscp, 63)?, small("priority", priority, 7)?));
    match parts.as_slice() {
        ["set", dscp, priority] => two(dscp, priority).map(|(d, p)| MapOrder::Set(d, p)),
        ["del" | "delete", dscp, priority] => two(dscp, priority).map(|(d, p)| MapOrder::Delete(d, p)),
        ["flush"] => Ok(MapOrder::Flush),
        _ => Err(format!("{text:?}: {FORMS}")),
    }
}

impl MapOrder {
    /// Applies the change.
    pub fn put(self, priorities: &mut [u32]) -> Checked<()> {
        // Default: eight values for each priority.
        let plain = |dscp: u8| u32::from(dscp / 8);
        match self {
            MapOrder::Set(dscp, priority) => {
                if let Some(place) = priorities.get_mut(usize::from(dscp)) {
                    *place = priority.into();
                }
            }
            MapOrder::Delete(dscp, priority) => {
                if let Some(place) = priorities.get_mut(usize::from(dscp)) {
                    if *place != u32::from(priority) {
                        return Err(format!("DSCP {dscp} has priority {place}, not {priority}"));
                    }
                    *place = plain(dscp);
                }
            }
            MapOrder::Flush => {
                for (dscp, place) in (0..).zip(priorities) {
                    *place = plain(dscp);
                }
            }
        }
        Ok(())
    }
}

/// Change of a map by tag: `PCP=VALUE`, for both drop eligible indicators, `PCP.DEI=VALUE`, or `flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagOrder<T> {
    /// These elements, and their value.
    Set(usize, usize, T),
    /// All back to the default.
    Flush,
}

/// Parses a change of a map by tag.
pub fn tag_order<T>(text: &str, value: impl Fn(&str) -> Checked<T>) -> Checked<TagOrder<T>> {
    if text == "flush" {
        return Ok(TagOrder::Flush);
    }
    let wrong = || format!("{text:?}: PCP=VALUE, PCP.DEI=VALUE (such as 5.1=3) and flush are allowed");
    let (tag, to) = text.split_once('=').ok_or_else(wrong)?;
    let to = value(to.trim())?;
    let of = |text: &str, what: &str, most| up_to(text.trim(), most).map_err(|e| format!("{what} {e}"));
    let (first, count) = match tag.split_once('.') {
        Some((pcp, dei)) => (2 * of(pcp, "PCP", 7)? + of(dei, "DEI", 1)?, 1),
        None => (2 * of(tag, "PCP", 7)?, 2),
    };
    Ok(TagOrder::Set(first as usize, count, to))
}

impl<T: Copy> TagOrder<T> {
    /// Applies the change to a map, which is empty while it is the default one.
    pub fn put(self, map: &mut Vec<T>, default: impl Fn(usize) -> T) {
        match self {
            TagOrder::Flush => map.clear(),
            TagOrder::Set(first, count, to) => {
                if map.is_empty() {
                    map.extend((0..16).map(default));
                }
                map.iter_mut()
                    .skip(first)
                    .take(count)
                    .for_each(|place| *place = to);
            }
        }
    }
}

/// Color of a packet, as the number of `vnic.v1.Qos.Color`.
pub fn color(text: &str) -> Checked<i32> {
    match text {
        "green" => Ok(Color::Green.into()),
        "yellow" => Ok(Color::Yellow.into()),
        "red" => Ok(Color::Red.into()),
        _ => Err(format!("{text:?}: green, yellow and red are allowed")),
    }
}

/// Checks the shares of ETS classes: together 100 if there are such classes, and 0 for all others. With `weights` the sum may be less.
pub fn shares(ets: &[bool], percents: &[u32], weights: bool) -> Checked<()> {
    for (tc, (ets, share)) in ets.iter().zip(percents).enumerate() {
        if !ets && *share > 0 {
            return Err(format!(
                "traffic class {tc} has {share} %, and is not ets: give 0 for it (-t), or make it ets (-s)"
            ));
        }
    }
    let sum: u32 = percents.iter().sum();
    match sum {
        _ if !ets.contains(&true) => Ok(()),
        100 => Ok(()),
        1..=99 if weights => Ok(()),
        _ => Err(format!(
            "the shares of the ets classes add up to {sum} %: they must add up to 100 (-t){}",
            if (1..=99).contains(&sum) {
                ", or be weights (--weights)"
            } else {
                ""
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_exactly() {
        for (text, rate_bps) in [
            ("5G", 5_000_000_000),
            ("1.5g", 1_500_000_000),
            ("0.25M", 250_000),
            ("500 Mbps", 500_000_000),
            ("64k", 64_000),
            ("12345678", 12_345_678),
            ("10Gbit/s", 10_000_000_000),
            ("0", 0),
            ("unlimited", 0),
        ] {
            assert_eq!(rate(text), Ok(rate_bps), "{text}");
        }
        for text in [
            "",
            "G",
            "5X",
            "-5G",
            "1.0000000001G",
            "1.5",
            "5 5G",
            "99999999999999999999",
        ] {
            assert!(rate(text).is_err_and(|e| e.contains("such as 5G")), "{text}");
        }
        assert!(rate("5").is_err_and(|e| e.contains("5G is 5 Gbit/s")));
        for rate_bps in [0, 1000, 64_000, 1_500_000, 2_500_000_001, 100_000_000_000] {
            assert_eq!(rate(&rate_text(rate_bps)), Ok(rate_bps));
        }
        assert_eq!(rate_text(1_500_000_000), "1.5 Gbps");
        assert_eq!(rate_text(500_000_000), "500 Mbps");
    }

    #[test]
    fn speeds_are_whole_megabits() {
        for (text, mbps) in [
            ("10000", 10_000),
            ("0", 0),
            ("10G", 10_000),
            ("2.5G", 2500),
            ("500M", 500),
        ] {
            assert_eq!(speed_mbps(text), Ok(mbps), "{text}");
        }
        for bad in ["", "-1", "64k", "fast", "5000000000G", "4294967296"] {
            let error = speed_mbps(bad).expect_err(bad);
            assert!(error.contains("10G"), "{error}");
        }
    }

    #[test]
    fn lists_have_eight_values() {
        assert_eq!(classes("1,0,2,3,4,5,6,7"), Ok([1, 0, 2, 3, 4, 5, 6, 7]));
        assert_eq!(
            switches("0,0,0,1,0,0,0,0,", "priority"),
            Ok([false, false, false, true, false, false, false, false])
        );
        assert_eq!(
            rates("5G,0,0,0,0,0,0,64k").map(|r| (r[0], r[7])),
            Ok((5_000_000_000, 64_000))
        );
        assert!(classes("1,2").is_err_and(|e| e.contains("2 values; 8 are needed")));
        assert!(
            classes("15,0,0,0,0,0,0,0").is_err_and(|e| e == "priority 0: \"15\" is out of range: 0 to 14")
        );
        assert!(eighths("8,0,0,0,0,0,0,0").is_err_and(|e| e == "priority 0: \"8\" is out of range: 0 to 7"));
        assert!(switches("2,0,0,0,0,0,0,0", "priority").is_err_and(|e| e.contains("0 and 1")));
        assert!(percents("101,0,0,0,0,0,0,0").is_err_and(|e| e.contains("0 to 100")));
    }

    #[test]
    fn orders_of_mlnx_qos() {
        assert_eq!(map_order("set,30,5"), Ok(MapOrder::Set(30, 5)));
        assert_eq!(map_order("del,30,5"), Ok(MapOrder::Delete(30, 5)));
        assert_eq!(map_order("flush"), Ok(MapOrder::Flush));
        for (text, problem) in [
            ("set,64,5", "DSCP \"64\" is out of range: 0 to 63"),
            ("set,30,8", "priority \"8\" is out of range: 0 to 7"),
            ("add,30,5", "set,30,5"),
            ("", "flush"),
        ] {
            assert!(map_order(text).is_err_and(|e| e.contains(problem)), "{text}");
        }
    }

    #[test]
    fn maps_by_tag() {
        let number = |t: &str| up_to(t, 7);
        let mut map = Vec::new();
        let plain = |i: usize| (i / 2) as u32;
        for text in ["5=1", "5.1=0", "0.1=7"] {
            tag_order(text, number).expect(text).put(&mut map, plain);
        }
        assert_eq!(map, [0, 7, 1, 1, 2, 2, 3, 3, 4, 4, 1, 0, 6, 6, 7, 7]);
        tag_order("flush", number).expect("flush").put(&mut map, plain);
        assert!(map.is_empty());
        for (text, problem) in [
            ("8=1", "PCP \"8\" is out of range: 0 to 7"),
            ("1.2=1", "DEI \"2\" is out of range: 0 to 1"),
            ("1=8", "0 to 7"),
            ("1", "PCP.DEI=VALUE"),
        ] {
            assert!(
                tag_order(text, number).is_err_and(|e| e.contains(problem)),
                "{text}"
            );
        }
        assert!(tag_order("1=blue", color).is_err_and(|e| e.contains("green, yellow and red")));
    }

    #[test]
    fn profiles_have_curves_by_color() {
        let read = |text| profile(text).map(|order| order.profile.expect("a profile"));
        let of = |min_bytes, max_bytes, max_probability_ppm| v1::EcnCurve {
            min_bytes,
            max_bytes,
            max_probability_ppm,
        };
        let all =
            read("3=64Ki:256Ki:10:yellow=32Ki:128Ki:20%:red=0:0:100:wred:enqueue:average=9").expect("fine");
        assert_eq!(
            (all.min_bytes, all.max_bytes, all.max_probability_ppm),
            (65_536, 262_144, 100_000)
        );
        assert_eq!(all.yellow, Some(of(32_768, 131_072, 200_000)));
        assert_eq!(all.red, Some(of(0, 0, 1_000_000)));
        assert_eq!(
            (all.ecn, all.wred, all.at_enqueue, all.average_weight),
            (true, true, true, 9)
        );
        assert!(!all.thresholds_in_percent);
        let parts = read("0=10%:60%:5:yellow=5%:30%:5").expect("fine");
        assert_eq!(
            (parts.min_bytes, parts.max_bytes, parts.thresholds_in_percent),
            (10, 60, true)
        );
        assert_eq!(parts.yellow, Some(of(5, 30, 50_000)));
        for (text, problem) in [
            ("0=10%:60:5", "all in bytes, or all in per cent"),
            ("0=10%:101%:5", "0 to 100"),
            ("0=1:2:3:average=16", "0 to 15"),
            ("0=1:2:3:blue=1:2:3", "TC=MIN:MAX:PERCENT"),
            ("0=1:2:3:red=1:2", "TC=MIN:MAX:PERCENT"),
        ] {
            assert!(profile(text).is_err_and(|e| e.contains(problem)), "{text}");
        }
    }

    #[test]
    fn shares_add_up() {
        let ets = [true, true, false, false, false, false, false, false];
        assert!(shares(&ets, &[50, 50, 0, 0, 0, 0, 0, 0], false).is_ok());
        assert!(shares(&[false; 8], &[0; 8], false).is_ok());
        assert!(shares(&ets, &[16, 80, 0, 0, 0, 0, 0, 0], true).is_ok());
        let refused = |percents: [u32; 8], weights| shares(&ets, &percents, weights).expect_err("refused");
        assert!(refused([16, 80, 0, 0, 0, 0, 0, 0], false).contains("--weights"));
        assert!(refused([60, 80, 0, 0, 0, 0, 0, 0], true).contains("140 %"));
        assert!(refused([0; 8], true).contains("add up to 0 %"));
        assert!(refused([50, 40, 10, 0, 0, 0, 0, 0], false).contains("traffic class 2"));
    }
}
