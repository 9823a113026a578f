//! Builders of the table's rows: a row begins as the most common case, and names the differences.

use super::field::Field;
use super::{Apply, Built, Illegal, KeyDef, Kind, Place, RegType, Rule, Scopes};

impl KeyDef {
    const fn new(name: &'static str, kind: Kind) -> KeyDef {
        KeyDef {
            name,
            aliases: &[],
            kind,
            default: None,
            unset: None,
            unit: "",
            scopes: Scopes::ADAPTER,
            apply: Apply::Restart,
            illegal: Illegal::Reject,
            built: Built::No(""),
            field: None,
            rules: &[],
            reg: match kind {
                Kind::MacList { .. } => RegType::MultiSz,
                Kind::Text { .. } => RegType::Sz,
                _ => RegType::Dword,
            },
            place: Place::Registry,
            help: "",
            note: "",
            source: "",
        }
    }

    pub(super) const fn number(name: &'static str, min: u32, max: u32) -> KeyDef {
        KeyDef::new(name, Kind::Dword { min, max })
    }

    pub(super) const fn rate(name: &'static str, min: u32) -> KeyDef {
        let mut row = KeyDef::new(name, Kind::Rate { min }).unit("Mbit/s");
        row.illegal = Illegal::LineRate;
        row
    }

    pub(super) const fn one_of(name: &'static str, values: &'static [(u32, &'static str)]) -> KeyDef {
        KeyDef::new(name, Kind::Enum(values))
    }

    pub(super) const fn switch(name: &'static str) -> KeyDef {
        KeyDef::new(name, Kind::Bool)
    }

    pub(super) const fn macs(name: &'static str, max: usize) -> KeyDef {
        KeyDef::new(name, Kind::MacList { max })
    }

    /// Sets the default, which also acts while nothing is stored.
    pub(super) const fn default(mut self, value: u32) -> KeyDef {
        self.default = Some(value);
        self.unset = Some(value);
        self
    }

    /// Sets the value that acts while nothing is stored, if that is not the default.
    pub(super) const fn unset(mut self, value: u32) -> KeyDef {
        self.unset = Some(value);
        self
    }

    pub(super) const fn unit(self, unit: &'static str) -> KeyDef {
        KeyDef { unit, ..self }
    }

    pub(super) const fn dynamic(mut self) -> KeyDef {
        self.apply = Apply::Dynamic;
        self
    }

    pub(super) const fn illegal_is_default(mut self) -> KeyDef {
        self.illegal = Illegal::Default;
        self
    }

    pub(super) const fn scopes(self, scopes: Scopes) -> KeyDef {
        KeyDef { scopes, ..self }
    }

    pub(super) const fn alias(self, aliases: &'static [&'static str]) -> KeyDef {
        KeyDef { aliases, ..self }
    }

    pub(super) const fn rules(self, rules: &'static [Rule]) -> KeyDef {
        KeyDef { rules, ..self }
    }

    /// Makes the key `REG_SZ` in written `.reg` files: it is documented so, or a standardized keyword (these are all `REG_SZ`).
    pub(super) const fn sz(mut self) -> KeyDef {
        self.reg = RegType::Sz;
        self
    }

    pub(super) const fn tool(mut self, verb: &'static str) -> KeyDef {
        self.place = Place::Tool(verb);
        self
    }

    /// Marks the key as built, with this field.
    pub(super) const fn acts(mut self, field: Field) -> KeyDef {
        self.built = Built::Yes;
        self.field = Some(field);
        self
    }

    /// Marks the key as not built: it waits for `what`, and nothing acts.
    pub(super) const fn waits_for(mut self, what: &'static str) -> KeyDef {
        self.built = Built::No(what);
        self.unset = None;
        self
    }

    pub(super) const fn help(self, help: &'static str) -> KeyDef {
        KeyDef { help, ..self }
    }

    pub(super) const fn note(self, note: &'static str) -> KeyDef {
        KeyDef { note, ..self }
    }

    pub(super) const fn source(self, source: &'static str) -> KeyDef {
        KeyDef { source, ..self }
    }
}
