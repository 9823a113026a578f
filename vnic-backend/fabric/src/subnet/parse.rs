//! Reads a policy file: "QoS Management in OpenSM", sections 2 to 6. The language is OpenSM's; what OpenSM cuts off (a service level
//! of 16) or leaves out without a word (a QoS level of an unknown name) is an error here.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::cursor::{Cursor, Place, PolicyError, Read};
use super::policy::{Level, Policy, PortGroup, Rule, Sl2VlScope, VlArbScope, same};
use super::ulps;

/// Most bytes of a policy file.
pub const TEXT_MAX: usize = 256 << 10;

/// What counts of a P_Key: bit 15 says that a member is a full one.
pub const PKEY_BASE: u64 = 0x7fff;

/// A name in a file, and where it stands.
pub type Named = (Place, String);

/// A rule whose names are not yet found.
#[derive(Default)]
struct Draft {
    rule: Rule,
    sources: Vec<Named>,
    destinations: Vec<Named>,
    level: Option<Named>,
}

/// Names of the groups of a scope.
type Groups = [Vec<Named>; 3];

/// What was read so far.
#[derive(Default)]
pub(super) struct Parts {
    pub policy: Policy,
    drafts: Vec<Draft>,
    arbitration: Vec<Groups>,
    lanes: Vec<Groups>,
    /// Rules of `qos-ulps`, which stand behind the others.
    pub ulps: Vec<Rule>,
    /// Level of `default` in `qos-ulps`.
    pub default: Option<usize>,
}

/// Reads a policy file.
///
/// # Errors
/// The first thing that is wrong, with line and column.
pub fn parse(text: &str) -> Result<Policy, PolicyError> {
    let start = Place { line: 1, column: 1 };
    if text.len() > TEXT_MAX {
        return Err(start.error(format!(
            "the file has {} bytes; at most {TEXT_MAX} are allowed",
            text.len()
        )));
    }
    let mut text = Cursor::new(text);
    let mut parts = Parts::default();
    while text.next_word() {
        let place = text.place();
        match text.word()? {
            "port-groups" => entries(&mut text, ("port-groups", place), |text, at, word| match word {
                "port-group" => group(text, at, &mut parts),
                _ => unknown(at, word, "port-group"),
            }),
            "qos-setup" => entries(&mut text, ("qos-setup", place), |text, at, word| {
                setup(text, at, word, &mut parts)
            }),
            "qos-levels" => entries(&mut text, ("qos-levels", place), |text, at, word| match word {
                "qos-level" => level(text, at, &mut parts),
                _ => unknown(at, word, "qos-level"),
            }),
            "qos-match-rules" => entries(
                &mut text,
                ("qos-match-rules", place),
                |text, at, word| match word {
                    "qos-match-rule" => rule(text, at, &mut parts),
                    _ => unknown(at, word, "qos-match-rule"),
                },
            ),
            "qos-ulps" => entries(&mut text, ("qos-ulps", place), |text, at, word| {
                ulps::entry(text, at, word, &mut parts)
            }),
            word => unknown(
                place,
                word,
                "port-groups, qos-setup, qos-levels, qos-match-rules or qos-ulps",
            ),
        }?;
    }
    finish(parts, start)
}

/// Error that a word is not known where it stands.
pub(super) fn unknown<T>(place: Place, word: &str, allowed: &str) -> Read<T> {
    Err(place.error(format!("`{word}` is unknown here: {allowed} is allowed")))
}

/// Reads a section: words of entries, up to its end.
fn entries<'a>(
    text: &mut Cursor<'a>,
    (section, begin): (&str, Place),
    mut entry: impl FnMut(&mut Cursor<'a>, Place, &'a str) -> Read<()>,
) -> Read<()> {
    while text.next_word() {
        let place = text.place();
        let word = text.word()?;
        if word.strip_prefix("end-") == Some(section) {
            return Ok(());
        }
        entry(text, place, word)?;
    }
    Err(begin.error(format!("`{section}` has no `end-{section}`")))
}

/// Reads a section of `key: value` entries. Behind the value the line ends.
fn fields<'a>(
    text: &mut Cursor<'a>,
    section: (&str, Place),
    mut field: impl FnMut(&mut Cursor<'a>, Place, &'a str) -> Read<()>,
) -> Read<()> {
    entries(text, section, |text, place, key| {
        text.expect(':', &format!("`{key}`"))?;
        field(text, place, key)?;
        text.finish(&format!("the value of `{key}`"))
    })
}

/// Sets what may be set once.
fn once<T>(place: &mut Option<T>, at: Place, key: &str, value: T) -> Read<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(at.error(format!("`{key}` is given twice"))),
    }
}

/// What a section cannot do without.
fn required<T>(value: Option<T>, begin: Place, section: &str, key: &str) -> Read<T> {
    value.ok_or_else(|| begin.error(format!("`{section}` has no `{key}`")))
}

fn group(text: &mut Cursor<'_>, begin: Place, parts: &mut Parts) -> Read<()> {
    let (mut name, mut description) = (None, None);
    let mut group = PortGroup {
        line: begin.line,
        ..PortGroup::default()
    };
    fields(text, ("port-group", begin), |text, at, key| match key {
        "name" => once(&mut name, at, key, text.string("the name")?),
        "use" => once(&mut description, at, key, text.string("the text")?),
        "port-guid" => {
            group.guids.add(text.ranges("GUID", u64::MAX, u64::MAX)?);
            Ok(())
        }
        "port-name" => {
            for (at, name) in text.strings("the port's name")? {
                group.ports.push(port_name(at, &name)?);
            }
            Ok(())
        }
        "pkey" => {
            group.pkeys.add(text.ranges("P_Key", 0xffff, PKEY_BASE)?);
            Ok(())
        }
        "partition" => {
            let names = text.strings("the partition's name")?;
            group.partitions.extend(names.into_iter().map(|(_, name)| name));
            Ok(())
        }
        "node-type" => {
            for (at, kind) in text.strings("the node's type")? {
                node_type(&mut group, at, &kind)?;
            }
            Ok(())
        }
        _ => unknown(
            at,
            key,
            "name, use, port-guid, port-name, pkey, partition or node-type",
        ),
    })?;
    group.name = required(name, begin, "port-group", "name")?;
    group.description = description.unwrap_or_default();
    parts.policy.groups.push(group);
    Ok(())
}

/// NodeDescription and number of a port: `vf0/P1`.
fn port_name(at: Place, text: &str) -> Read<(String, u8)> {
    let split = text.rsplit_once('/').and_then(|(node, port)| {
        let digits = port.trim().strip_prefix(['p', 'P'])?;
        let number = digits.parse().ok().filter(|n| (1..=254).contains(n))?;
        Some((String::from(node.trim()), number))
    });
    split.ok_or_else(|| at.error(format!("{text:?} is no port: NODE/P1 to NODE/P254")))
}

fn node_type(group: &mut PortGroup, at: Place, kind: &str) -> Read<()> {
    let all = kind.eq_ignore_ascii_case("ALL");
    let is = |word: &str| kind.eq_ignore_ascii_case(word);
    let flags = [
        all || is("CA"),
        all || is("SWITCH"),
        all || is("ROUTER"),
        is("SELF"),
    ];
    if !flags.contains(&true) {
        return Err(at.error(format!(
            "{kind:?} is no type of a node: CA, SWITCH, ROUTER, ALL or SELF"
        )));
    }
    let [adapters, switches, routers, manager] = flags;
    group.adapters |= adapters;
    group.switches |= switches;
    group.routers |= routers;
    group.manager |= manager;
    Ok(())
}

fn setup(text: &mut Cursor<'_>, at: Place, word: &str, parts: &mut Parts) -> Read<()> {
    match word {
        "vlarb-tables" => entries(text, (word, at), |text, at, word| match word {
            "vlarb-scope" => arbitration(text, at, parts),
            _ => unknown(at, word, "vlarb-scope"),
        }),
        "sl2vl-tables" => entries(text, (word, at), |text, at, word| match word {
            "sl2vl-scope" => lanes(text, at, parts),
            _ => unknown(at, word, "sl2vl-scope"),
        }),
        _ => unknown(at, word, "vlarb-tables or sl2vl-tables"),
    }
}

/// Entries of an arbitration table: IBTA volume 1, 7.6.9.2 allows 64.
fn weights(text: &mut Cursor<'_>, at: Place, key: &str, table: &mut Vec<(u8, u8)>) -> Read<()> {
    table.extend(text.list(|text| {
        let lane = text.byte("virtual lane", 0, 14)?;
        text.expect(':', "the virtual lane")?;
        Ok((lane, text.byte("weight", 0, 255)?))
    })?);
    match table.len() {
        0..=64 => Ok(()),
        n => Err(at.error(format!("`{key}` has {n} entries; at most 64 are allowed"))),
    }
}

fn arbitration(text: &mut Cursor<'_>, begin: Place, parts: &mut Parts) -> Read<()> {
    let (mut groups, mut across) = (Vec::new(), Vec::new());
    let mut scope = VlArbScope {
        line: begin.line,
        ..VlArbScope::default()
    };
    fields(text, ("vlarb-scope", begin), |text, at, key| match key {
        "group" => {
            groups.extend(text.strings("the group's name")?);
            Ok(())
        }
        "across" => {
            across.extend(text.strings("the group's name")?);
            Ok(())
        }
        "vlarb-high" => weights(text, at, key, &mut scope.high),
        "vlarb-low" => weights(text, at, key, &mut scope.low),
        "vl-high-limit" => once(&mut scope.high_limit, at, key, text.byte(key, 0, 255)?),
        _ => unknown(at, key, "group, across, vlarb-high, vlarb-low or vl-high-limit"),
    })?;
    if groups.is_empty() && across.is_empty() {
        return Err(begin.error("`vlarb-scope` has neither `group` nor `across`"));
    }
    parts.policy.setup.arbitration.push(scope);
    parts.arbitration.push([groups, across, Vec::new()]);
    Ok(())
}

fn lanes(text: &mut Cursor<'_>, begin: Place, parts: &mut Parts) -> Read<()> {
    let [mut groups, mut from, mut to] = Groups::default();
    let mut table = None;
    let mut scope = Sl2VlScope {
        line: begin.line,
        ..Sl2VlScope::default()
    };
    let ports = |text: &mut Cursor<'_>| match text.accept('*') {
        true => Ok(super::ranges::Ranges::one(0, 127)),
        false => text.ranges("port", 127, u64::MAX),
    };
    fields(text, ("sl2vl-scope", begin), |text, at, key| match key {
        "group" | "across" | "across-from" | "across-to" => {
            let names = text.strings("the group's name")?;
            match key {
                "group" => groups.extend(names),
                "across-from" => from.extend(names),
                "across-to" => to.extend(names),
                _ => {
                    from.extend(names.clone());
                    to.extend(names);
                }
            }
            Ok(())
        }
        "from" => {
            scope.from.add(ports(text)?);
            Ok(())
        }
        "to" => {
            scope.to.add(ports(text)?);
            Ok(())
        }
        "sl2vl-table" => {
            let place = text.place();
            let lanes = text.list(|text| text.byte("virtual lane", 0, 15))?;
            let count = lanes.len();
            let sixteen = <[u8; 16]>::try_from(lanes);
            let lanes = sixteen
                .map_err(|_| place.error(format!("`{key}` has {count} virtual lanes: 16 are needed")))?;
            once(&mut table, at, key, lanes)
        }
        _ => unknown(
            at,
            key,
            "group, across, across-from, across-to, from, to or sl2vl-table",
        ),
    })?;
    scope.table = required(table, begin, "sl2vl-scope", "sl2vl-table")?;
    if groups.is_empty() && from.is_empty() && to.is_empty() {
        return Err(begin.error("`sl2vl-scope` has neither `group`, `across`, `across-from` nor `across-to`"));
    }
    parts.policy.setup.lanes.push(scope);
    parts.lanes.push([groups, from, to]);
    Ok(())
}

fn level(text: &mut Cursor<'_>, begin: Place, parts: &mut Parts) -> Read<()> {
    let (mut name, mut description, mut sl) = (None, None, None);
    let mut level = Level {
        line: begin.line,
        ..Level::default()
    };
    fields(text, ("qos-level", begin), |text, at, key| match key {
        "name" => once(&mut name, at, key, text.string("the name")?),
        "use" => once(&mut description, at, key, text.string("the text")?),
        "sl" => once(&mut sl, at, key, text.byte(key, 0, 15)?),
        "mtu-limit" => once(&mut level.mtu, at, key, text.byte(key, 1, 5)?),
        "rate-limit" => once(&mut level.rate, at, key, text.byte(key, 2, 24)?),
        "packet-life" => once(&mut level.packet_life, at, key, text.byte(key, 0, 63)?),
        "path-bits" => {
            level.path_bits = true;
            text.ranges("path bits", 127, u64::MAX).map(drop)
        }
        "pkey" => {
            level.pkeys.add(text.ranges("P_Key", 0xffff, PKEY_BASE)?);
            Ok(())
        }
        _ => unknown(
            at,
            key,
            "name, use, sl, mtu-limit, rate-limit, packet-life, path-bits or pkey",
        ),
    })?;
    level.sl = required(sl, begin, "qos-level", "sl")?;
    level.name = required(name, begin, "qos-level", "name")?;
    level.description = description.unwrap_or_default();
    parts.policy.levels.push(level);
    Ok(())
}

fn rule(text: &mut Cursor<'_>, begin: Place, parts: &mut Parts) -> Read<()> {
    let mut description = None;
    let mut draft = Draft::default();
    let rule = &mut draft.rule;
    rule.line = begin.line;
    let (sources, destinations, level) = (&mut draft.sources, &mut draft.destinations, &mut draft.level);
    fields(text, ("qos-match-rule", begin), |text, at, key| match key {
        "use" => once(&mut description, at, key, text.string("the text")?),
        "source" => {
            sources.extend(text.strings("the group's name")?);
            Ok(())
        }
        "destination" => {
            destinations.extend(text.strings("the group's name")?);
            Ok(())
        }
        "qos-class" => {
            rule.classes.add(text.ranges("QoS class", 0xfff, u64::MAX)?);
            Ok(())
        }
        "service-id" => {
            rule.services.add(text.ranges("Service-ID", u64::MAX, u64::MAX)?);
            Ok(())
        }
        "pkey" => {
            rule.pkeys.add(text.ranges("P_Key", 0xffff, PKEY_BASE)?);
            Ok(())
        }
        "qos-level-name" => {
            let place = text.place();
            once(level, at, key, (place, text.string("the level's name")?))
        }
        _ => unknown(
            at,
            key,
            "use, source, destination, qos-class, service-id, pkey or qos-level-name",
        ),
    })?;
    if draft.level.is_none() {
        return Err(begin.error("`qos-match-rule` has no `qos-level-name`"));
    }
    draft.rule.description = description.unwrap_or_default();
    parts.drafts.push(draft);
    Ok(())
}

/// Finds what the names mean. A name may stand before what has it; of two that are the same the first counts.
fn finish(mut parts: Parts, start: Place) -> Read<Policy> {
    let mut policy = parts.policy;
    let groups = &policy.groups;
    let find = |names: Vec<Named>| -> Read<Vec<usize>> {
        let find = |(at, name): Named| {
            let found = groups
                .iter()
                .position(|g| !g.name.is_empty() && same(&g.name, &name));
            found.ok_or_else(|| at.error(format!("there is no port group {name:?}")))
        };
        names.into_iter().map(find).collect()
    };
    let named = |name: &str| {
        policy
            .levels
            .iter()
            .position(|l| l.line > 0 && same(&l.name, name))
    };
    for draft in parts.drafts {
        let Draft {
            mut rule,
            sources,
            destinations,
            level,
        } = draft;
        (rule.sources, rule.destinations) = (find(sources)?, find(destinations)?);
        let (at, name) = level.unwrap_or_default();
        rule.level = named(&name).ok_or_else(|| at.error(format!("there is no QoS level {name:?}")))?;
        policy.rules.push(rule);
    }
    policy.rules.append(&mut parts.ulps);
    let scopes = policy.setup.arbitration.iter_mut().zip(parts.arbitration);
    for (scope, [groups, across, _]) in scopes {
        (scope.groups, scope.across) = (find(groups)?, find(across)?);
    }
    for (scope, [groups, from, to]) in policy.setup.lanes.iter_mut().zip(parts.lanes) {
        (scope.groups, scope.across_from, scope.across_to) = (find(groups)?, find(from)?, find(to)?);
    }
    let default = named("DEFAULT").or(parts.default);
    policy.default = default.ok_or_else(|| {
        start.error(
            "no QoS level has the name DEFAULT, and `qos-ulps` has no `default`: one of them is needed",
        )
    })?;
    Ok(policy)
}
