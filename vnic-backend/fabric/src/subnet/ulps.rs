//! The section `qos-ulps` of a policy file: service levels of upper layer protocols ("QoS Management in OpenSM", section 6). A line
//! becomes a rule with a level of its service level only.

use alloc::format;
use alloc::string::String;

use super::cursor::{Cursor, Place, Read};
use super::parse::{PKEY_BASE, Parts, unknown};
use super::policy::{Level, PortGroup, Rule};
use super::ranges::Ranges;

/// Service-IDs of the sockets direct protocol (IBTA annex A4): a port behind it.
const SDP: u64 = 0x1_0000;
/// Service-IDs of RDMA communication management for TCP ports (IBTA annex A11), by which RDS and iSER connect.
const RDMA_CM_TCP: u64 = 0x106_0000;
/// Port of RDS.
const RDS_PORT: u64 = 0x48ca;
/// Port of iSER (RFC 7145: iSCSI's).
const ISER_PORT: u64 = 0x0cbc;
/// P_Key of the default partition, without the bit of full members.
const DEFAULT_PARTITION: u64 = 0x7fff;

/// What a line is about.
enum About {
    Services(Ranges),
    Pkeys(Ranges),
    Ipoib(Ranges),
    Source(Ranges),
    Destination(Ranges),
    Both(Ranges),
}

/// Reads a line: a protocol, what else has to hold, and the service level.
pub(super) fn entry(text: &mut Cursor<'_>, at: Place, word: &str, parts: &mut Parts) -> Read<()> {
    let protocol = word.to_ascii_lowercase();
    let key = match text.accept(',') {
        true => text.word()?,
        false => "",
    };
    let ports = |text: &mut Cursor<'_>, base: u64| {
        let ports = text.ranges("port", 0xffff, u64::MAX)?;
        let mut services = Ranges::default();
        ports
            .iter()
            .for_each(|(first, last)| services.add(Ranges::one(base | first, base | last)));
        Ok(About::Services(services))
    };
    let one = |n: u64| About::Services(Ranges::one(n, n));
    let guids = |text: &mut Cursor<'_>| text.ranges("GUID", u64::MAX, u64::MAX);
    let pkeys = |text: &mut Cursor<'_>| text.ranges("P_Key", 0xffff, PKEY_BASE);
    let about = match (protocol.as_str(), key) {
        ("default", "") => None,
        ("sdp", "") => Some(About::Services(Ranges::one(SDP, SDP | 0xffff))),
        ("sdp", "port-num") => Some(ports(text, SDP)?),
        ("rds", "") => Some(one(RDMA_CM_TCP | RDS_PORT)),
        ("iser", "") => Some(one(RDMA_CM_TCP | ISER_PORT)),
        ("rds" | "iser", "port-num") => Some(ports(text, RDMA_CM_TCP)?),
        ("ipoib", "") => Some(About::Ipoib(Ranges::one(DEFAULT_PARTITION, DEFAULT_PARTITION))),
        ("ipoib", "pkey") => Some(About::Ipoib(pkeys(text)?)),
        ("any", "service-id") => Some(About::Services(text.ranges("Service-ID", u64::MAX, u64::MAX)?)),
        ("any", "pkey") => Some(About::Pkeys(pkeys(text)?)),
        ("any" | "srp", "target-port-guid") => Some(About::Destination(guids(text)?)),
        ("any", "source-port-guid") => Some(About::Source(guids(text)?)),
        ("any", "source-target-port-guid") => Some(About::Both(guids(text)?)),
        ("default" | "sdp" | "rds" | "iser" | "ipoib" | "any" | "srp", _) => {
            let allowed = match protocol.as_str() {
                "default" => "`default: SL`",
                "sdp" | "rds" | "iser" => "nothing or `port-num`",
                "ipoib" => "nothing or `pkey`",
                "srp" => "`target-port-guid`",
                _ => {
                    "`service-id`, `pkey`, `target-port-guid`, `source-port-guid` or `source-target-port-guid`"
                }
            };
            return Err(at.error(format!("`{protocol}` takes {allowed}")));
        }
        _ => return unknown(at, word, "default, sdp, rds, iser, srp, ipoib or any"),
    };
    text.expect(':', "what the service level is for")?;
    let sl = text.byte("service level", 0, 15)?;
    text.finish("the service level")?;
    let level = simple(parts, sl);
    match about {
        None => parts.default = Some(level),
        Some(about) => {
            let description = match key {
                "" => protocol,
                key => format!("{protocol}, {key}"),
            };
            add(parts, at, (description, level), about);
        }
    }
    Ok(())
}

/// The level of nothing but a service level. It has no line, and no rule can name it.
fn simple(parts: &mut Parts, sl: u8) -> usize {
    let levels = &mut parts.policy.levels;
    levels
        .iter()
        .position(|l| l.line == 0 && l.sl == sl)
        .unwrap_or_else(|| {
            let name = format!("SL {sl}");
            levels.push(Level {
                name,
                sl,
                ..Level::default()
            });
            levels.len() - 1
        })
}

fn add(parts: &mut Parts, at: Place, (description, level): (String, usize), about: About) {
    let mut rule = Rule {
        line: at.line,
        description,
        level,
        ..Rule::default()
    };
    // A group without a name: no rule can name it.
    let mut group = |guids| {
        let groups = &mut parts.policy.groups;
        groups.push(PortGroup {
            line: at.line,
            guids,
            ..PortGroup::default()
        });
        [groups.len() - 1]
    };
    match about {
        About::Services(services) => rule.services = services,
        About::Pkeys(pkeys) => rule.pkeys = pkeys,
        About::Ipoib(pkeys) => (rule.pkeys, rule.ipoib) = (pkeys, true),
        About::Source(guids) => rule.sources.extend(group(guids)),
        About::Destination(guids) => rule.destinations.extend(group(guids)),
        About::Both(guids) => {
            let group = group(guids);
            rule.sources.extend(group);
            rule.destinations.extend(group);
        }
    }
    parts.ulps.push(rule);
}
