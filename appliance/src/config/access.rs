//! `[access]` and `[control.tls]`: who may do what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::diagnostics::Sink;
use super::reader::{At, Section};
use crate::access::{Access, Role, TlsFiles, group_id, user_id};
use crate::check::Checked;

fn role(text: &str) -> Checked<Role> {
    Role::named(text)
        .ok_or_else(|| format!("{text:?} is no role: \"viewer\", \"operator\" and \"admin\" are allowed"))
}

/// A table from names of the user's choice to roles.
fn roles<K: Ord>(
    section: &Section<'_>,
    key: &'static str,
    sink: &Sink<'_>,
    name: impl Fn(&str) -> Checked<K>,
) -> Option<BTreeMap<K, Role>> {
    let mut roles = BTreeMap::new();
    let mut wrong = false;
    for (who, what) in section.texts_by_name(key)? {
        let span = who.span.clone();
        let path = who.key.clone();
        let (who, what) = (
            who.check(sink, &name),
            what.and_then(|what| what.check(sink, role)),
        );
        let (Some(who), Some(what)) = (who, what) else {
            wrong = true;
            continue;
        };
        if roles.insert(who.value, what.value).is_some() {
            sink.error(
                span,
                path,
                "this one has a role already, by its name or its number",
            );
            wrong = true;
        }
    }
    (!wrong).then_some(roles)
}

/// `[access]`.
pub(super) fn access(root: &Section<'_>, sink: &Sink<'_>) -> Option<Access> {
    let Some(section) = root.table("access") else {
        return (!root.has("access")).then(Access::default);
    };
    let default = match section.string("default") {
        None => Some(Access::default().default),
        Some(at) => at
            .check(sink, |text| match text {
                "none" => Ok(None),
                _ => role(text).map(Some).map_err(|e| format!("{e}, and \"none\"")),
            })
            .map(|at| at.value),
    };
    let users = roles(&section, "users", sink, user_id);
    let groups = roles(&section, "groups", sink, group_id);
    let certificates = roles(&section, "certificates", sink, |name| {
        if name.is_empty() {
            return Err("a name of a certificate is not empty".to_owned());
        }
        Ok(name.to_owned())
    });
    section.finish();
    Some(Access {
        users: users?,
        groups: groups?,
        default: default?,
        certificates: certificates?,
    })
}

/// `[control.tls]`; what is wrong with the files themselves is found when the daemon starts.
pub(super) fn tls(control: &Section<'_>, sink: &Sink<'_>) -> Option<Option<TlsFiles>> {
    let Some(section) = control.table("tls") else {
        return (!control.has("tls")).then_some(None);
    };
    let path = |at: At<&str>| {
        at.check(sink, |text| {
            let path = Path::new(text);
            path.is_absolute()
                .then(|| path.to_owned())
                .ok_or_else(|| format!("{text:?} is not an absolute path"))
        })
        .map(|at: At<PathBuf>| at.value)
    };
    let file = |key| path(section.required_string(key)?);
    let (certificate, key, client_ca) = (file("certificate"), file("key"), file("client_ca"));
    let client_crl = section.string("client_crl").map(path);
    section.finish();
    Some(Some(TlsFiles {
        certificate: certificate?,
        key: key?,
        client_ca: client_ca?,
        client_crl: match client_crl {
            Some(path) => Some(path?),
            None => None,
        },
    }))
}
