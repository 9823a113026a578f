//! `[access]` and `[control.tls]`: roles and certificates of the control interface.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::diagnostics::Sink;
use crate::access::{Access, Role, TlsFiles, group_id, user_id};
use crate::check::Checked;
use crate::mesh::spec::file;

/// Table from names of the user's choice to roles.
type Roles = BTreeMap<Spanned<String>, Spanned<String>>;

/// `[access]`.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessTable {
    default: Option<Spanned<String>>,
    users: Roles,
    groups: Roles,
    certificates: Roles,
}

/// `[control.tls]`.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsTable {
    certificate: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    client_ca: Option<Spanned<String>>,
    client_crl: Option<Spanned<String>>,
}

fn role(text: &str) -> Checked<Role> {
    Role::named(text)
        .ok_or_else(|| format!("{text:?} is no role: \"viewer\", \"operator\" and \"admin\" are allowed"))
}

/// Reads a table from names of the user's choice to roles.
fn roles<K: Ord>(sink: &Sink<'_>, table: Roles, name: impl Fn(&str) -> Checked<K>) -> BTreeMap<K, Role> {
    let mut roles = BTreeMap::new();
    for (who, what) in table {
        let span = who.span();
        let (who, what) = (sink.text(Some(who), &name), sink.text(Some(what), role));
        if let Some((who, what)) = who.zip(what)
            && roles.insert(who, what).is_some()
        {
            sink.wrong(&span, "this one has a role already, by its name or its number");
        }
    }
    roles
}

/// Reads `[access]`.
pub(super) fn access(sink: &Sink<'_>, table: AccessTable) -> Access {
    let default = sink.text(table.default, |text| match text {
        "none" => Ok(None),
        _ => role(text).map(Some).map_err(|e| format!("{e}, and \"none\"")),
    });
    Access {
        users: roles(sink, table.users, user_id),
        groups: roles(sink, table.groups, group_id),
        default: default.unwrap_or(Access::default().default),
        certificates: roles(sink, table.certificates, |name| match name {
            "" => Err("a name of a certificate is not empty".to_owned()),
            _ => Ok(name.to_owned()),
        }),
    }
}

/// Reads `[control.tls]`. The files themselves are checked when the daemon starts.
pub(super) fn tls(sink: &Sink<'_>, table: Spanned<TlsTable>) -> TlsFiles {
    let (at, table) = (table.span(), table.into_inner());
    let required = |key, text| sink.text(sink.required(&at, key, text), file).unwrap_or_default();
    TlsFiles {
        certificate: required("certificate", table.certificate),
        key: required("key", table.key),
        client_ca: required("client_ca", table.client_ca),
        client_crl: sink.text(table.client_crl, file),
    }
}
