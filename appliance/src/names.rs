//! Resource names (AIP-122): `adapters/{adapter}`, `ports/{port}`, `captures/{capture}`, `cores/{core}`,
//! `faults/{fault}`, `verbsFaults/{verbsFault}`, `scenarios/{scenario}`, `mirrors/{mirror}`, `subnetGroups/{group}`, `teams/{team}`, `counterSets/{set}`, `adapters/{adapter}/gids/{index}`, `adapters/{adapter}/queuePairs/{number}`, `adapters/{adapter}/qos`,
//! `ports/{port}/qos`, `adapters/{adapter}/congestion`, `adapters/{adapter}/accessList`.

/// What stands before the name of a parameter of a program of congestion control.
pub const PROGRAM: &str = "program.";
/// Collection of adapters.
pub const ADAPTERS: &str = "adapters";
/// Collection of uplink ports.
pub const PORTS: &str = "ports";
/// Collection of captures to files.
pub const CAPTURES: &str = "captures";
/// Collection of data cores.
pub const CORES: &str = "cores";

/// Collection of fault rules.
pub const FAULTS: &str = "faults";

/// Collection of rules for completions and commands.
pub const VERBS_FAULTS: &str = "verbsFaults";

/// Collection of scenarios.
pub const SCENARIOS: &str = "scenarios";

/// Collection of mirror sessions.
pub const MIRRORS: &str = "mirrors";

/// Collection of multicast groups of the subnet.
pub const SUBNET_GROUPS: &str = "subnetGroups";

/// Collection of teams, whose names may have slashes.
pub const TEAMS: &str = "teams";

/// Collection of counter sets.
pub const COUNTER_SETS: &str = "counterSets";

/// Resource name of `id` in `collection`.
pub fn of(collection: &str, id: &str) -> String {
    format!("{collection}/{id}")
}

/// Resource name of an adapter, or of a port if `ports` has its name.
pub fn owner(ports: &std::collections::BTreeSet<String>, id: &str) -> String {
    of(if ports.contains(id) { PORTS } else { ADAPTERS }, id)
}

/// Resource name of an entry of an adapter's GID table.
pub fn gid(adapter: &str, index: u16) -> String {
    format!("{ADAPTERS}/{adapter}/gids/{index}")
}

/// Adapter and index, as written, of the resource name of an entry of a GID table.
pub fn gid_parts(name: &str) -> Option<(&str, &str)> {
    numbered(name, "/gids/")
}

/// Resource name of a queue pair.
pub fn queue_pair(adapter: &str, number: u32) -> String {
    format!("{ADAPTERS}/{adapter}/queuePairs/{number}")
}

/// Adapter and number, as written, of the resource name of a queue pair.
pub fn queue_pair_parts(name: &str) -> Option<(&str, &str)> {
    numbered(name, "/queuePairs/")
}

/// Adapter and number, as written, of a name with this between the two.
fn numbered<'a>(name: &'a str, between: &str) -> Option<(&'a str, &'a str)> {
    let (adapter, number) = name.rsplit_once(between)?;
    let adapter = id(ADAPTERS, adapter)?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    digits.then_some((adapter, number))
}

/// Resource name of the quality of service of an adapter or a port, whose resource name is `owner`.
pub fn qos(owner: &str) -> String {
    format!("{owner}/qos")
}

/// Resource name of congestion control of an adapter.
pub fn congestion(adapter: &str) -> String {
    format!("{ADAPTERS}/{adapter}/congestion")
}

/// Resource name of the access list of an adapter.
pub fn access_list(adapter: &str) -> String {
    format!("{ADAPTERS}/{adapter}/accessList")
}

/// Adapter of the resource name of an access list.
pub fn access_list_adapter(name: &str) -> Option<&str> {
    id(ADAPTERS, name.strip_suffix("/accessList")?)
}

/// Id of the resource name `name`, if it is one of `collection`.
pub fn id<'a>(collection: &str, name: &'a str) -> Option<&'a str> {
    let id = name.strip_prefix(collection)?.strip_prefix('/')?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Id at the end of a resource name; a name without a collection is returned as it is.
pub fn last(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_and_taken_apart() {
        assert_eq!(of(ADAPTERS, "vf0"), "adapters/vf0");
        assert_eq!(id(ADAPTERS, "adapters/vf0"), Some("vf0"));
        for wrong in ["vf0", "adapters/", "adapters", "ports/vf0", "adapters/vf0/x", ""] {
            assert_eq!(id(ADAPTERS, wrong), None, "{wrong}");
        }
        assert_eq!(gid_parts(&gid("vf0", 7)), Some(("vf0", "7")));
        assert_eq!(queue_pair_parts(&queue_pair("vf0", 17)), Some(("vf0", "17")));
        assert_eq!(queue_pair_parts("adapters/vf0/gids/7"), None);
        for wrong in [
            "adapters/vf0/gids/",
            "adapters/vf0/gids/x",
            "adapters/gids/1",
            "vf0/gids/1",
            "adapters/a/b/gids/1",
        ] {
            assert_eq!(gid_parts(wrong), None, "{wrong}");
        }
        assert_eq!(last("ports/p0"), "p0");
        assert_eq!(last("p0"), "p0");
    }
}
