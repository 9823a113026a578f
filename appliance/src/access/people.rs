//! Users and groups of this machine, from `/etc/passwd` and `/etc/group`. Those of other services (LDAP, …) are given by number.

/// Lines of a file, each split at its colons.
fn lines(file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let cut = |line: &str| line.split(':').map(str::to_owned).collect();
    text.lines().map(cut).collect()
}

fn by_name(lines: &[Vec<String>], name: &str) -> Option<u32> {
    lines.iter().find(|f| f[0] == name)?.get(2)?.parse().ok()
}

/// The greatest number is nobody's: chown(2) takes it for none.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

/// ID of a group: a number, or a name in `/etc/group`.
pub fn group_id(text: &str) -> Result<u32, String> {
    id(text, "group", "/etc/group")
}

/// ID of a user: a number, or a name in `/etc/passwd`.
pub fn user_id(text: &str) -> Result<u32, String> {
    id(text, "user", "/etc/passwd")
}

fn id(text: &str, kind: &str, file: &str) -> Result<u32, String> {
    let id = number(text).or_else(|| by_name(&lines(file), text));
    id.ok_or_else(|| format!("{text:?} is not a {kind} of this machine: a name in {file} or a number"))
}

/// Name of a user.
pub fn user_name(uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let mut users = lines("/etc/passwd").into_iter();
    users
        .find(|f| f.get(2) == Some(&uid))
        .map(|mut f| f.swap_remove(0))
}

/// Groups of a user: the primary group, and those that list the user as a member.
pub fn groups_of(name: Option<&str>, gid: u32) -> Vec<u32> {
    let mut groups = vec![gid];
    if let Some(name) = name {
        let has = |f: &&Vec<String>| {
            f.get(3)
                .is_some_and(|members| members.split(',').any(|m| m == name))
        };
        let lines = lines("/etc/group");
        let more = lines.iter().filter(has).filter_map(|f| f[2].parse::<u32>().ok());
        groups.extend(more);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_known_by_name_and_by_number() {
        assert_eq!((user_id("root"), user_id("12345")), (Ok(0), Ok(12345)));
        assert!(user_id("4294967295").is_err() && group_id("4294967295").is_err());
        assert!(user_id("no such user").is_err_and(|e| e.contains("/etc/passwd")));
        assert_eq!((group_id("root"), group_id("7")), (Ok(0), Ok(7)));
        assert!(group_id("no such group").is_err_and(|e| e.contains("/etc/group")));
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(4_000_000_000), None);
        assert_eq!(groups_of(Some("no such user"), 5), [5]);
        assert_eq!(groups_of(None, 5), [5]);
    }
}
