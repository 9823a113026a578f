//! Import and export of `.reg` files.

use std::collections::BTreeMap;

use vnic_backend::settings::{Built, CLASS_PATH, DRIVER_PATH, KeyDef, RegType, Value, key as key_of};

use super::check::{Action, Operation, known};
use super::reg_file::{self, Data, Line, Section, Wrong};
use super::state::{Scope, State};
use super::{Registry, RegistryError};

/// Values that Windows itself keeps in an adapter's key: they are ignored.
const HOUSEKEEPING: &str = "*IfType *MediaType *PhysicalMediaType BusType Characteristics ComponentId DeviceInstanceID DriverDate \
    DriverDateData DriverDesc DriverVersion IfTypePreStart IncludedInfs InfPath InfSection InfSectionExt InstallTimeStamp \
    LogLinkStateEvent MatchingDeviceId NetCfgInstanceId NetLuidIndex NetworkInterfaceInstallTimestamp ProviderName";

/// Value that identifies the adapter of a section: the connection's id in Windows, the adapter's name here.
const INSTANCE: &str = "NetCfgInstanceId";

/// Contents of a file.
#[derive(Debug, Default)]
pub struct Import {
    /// Operations of the file.
    pub operations: Vec<Operation>,
    /// Line of each operation.
    pub lines: Vec<usize>,
    /// Scope, key and cause of each value that is left out.
    pub left_out: Vec<(String, String, String)>,
}

/// Options of an import.
#[derive(Debug, Default)]
pub struct ImportOptions {
    /// Adapters by their index in the file.
    pub adapters: BTreeMap<u16, String>,
    /// Whether unknown keys and keys that are not built are left out.
    pub skip_unknown: bool,
}

/// Kind of a path.
enum Where {
    Driver,
    Adapter(u16),
    Other,
}

fn place(path: &str) -> Where {
    let whole = match path.get(..5) {
        Some(short) if short.eq_ignore_ascii_case("HKLM\\") => {
            format!("HKEY_LOCAL_MACHINE\\{}", path.get(5..).unwrap_or_default())
        }
        _ => path.to_owned(),
    };
    if whole.eq_ignore_ascii_case(DRIVER_PATH) {
        return Where::Driver;
    }
    let class = whole.get(..CLASS_PATH.len());
    let rest = whole.get(CLASS_PATH.len()..).and_then(|r| r.strip_prefix('\\'));
    match (class, rest) {
        (Some(class), Some(rest))
            if class.eq_ignore_ascii_case(CLASS_PATH)
                && (1..=4).contains(&rest.len())
                && rest.bytes().all(|b| b.is_ascii_digit()) =>
        {
            rest.parse().map_or(Where::Other, Where::Adapter)
        }
        _ => Where::Other,
    }
}

fn wrong(line: usize, problem: impl Into<String>) -> Wrong {
    Wrong {
        line,
        problem: problem.into(),
    }
}

impl Registry {
    /// Reads a file; the error has all problems.
    pub fn read_file(&self, bytes: &[u8], options: &ImportOptions) -> Result<Import, Vec<Wrong>> {
        let state = self.committed();
        let mut import = Import::default();
        let mut problems = Vec::new();
        for section in reg_file::parse(bytes)? {
            match self.scope(&section, options) {
                Ok(Some(scope)) => import.section(&state, &section, &scope, options, &mut problems),
                Ok(None) if section.values.is_empty() && !section.delete => {}
                Ok(None) if options.skip_unknown => import.left_out.push((
                    section.path.clone(),
                    String::new(),
                    format!("line {}: no settings of this NIC", section.number),
                )),
                Ok(None) => problems.push(wrong(
                    section.number,
                    format!(
                        "[{}] has no settings of this NIC: {CLASS_PATH}\\NNNN and {DRIVER_PATH} have",
                        section.path
                    ),
                )),
                Err(problem) => problems.push(wrong(section.number, problem)),
            }
        }
        if problems.is_empty() {
            Ok(import)
        } else {
            Err(problems)
        }
    }

    /// Scope of a section; `None`: another driver's.
    fn scope(&self, section: &Section, options: &ImportOptions) -> Result<Option<Scope>, String> {
        let index = match place(&section.path) {
            Where::Driver => return Ok(Some(Scope::Driver)),
            Where::Other => return Ok(None),
            Where::Adapter(index) => index,
        };
        if let Some(name) = options.adapters.get(&index) {
            return Ok(Some(Scope::Adapter(name.clone())));
        }
        let instance = section.values.iter().find_map(|line| match &line.data {
            Data::Text(name) if line.name.eq_ignore_ascii_case(INSTANCE) => Some(name.clone()),
            _ => None,
        });
        let named = instance.filter(|name| self.index(name).is_some());
        match named.or_else(|| self.at_index(index)) {
            Some(name) => Ok(Some(Scope::Adapter(name))),
            None => Err(format!(
                "no adapter has index {index:04} here: say which one it means (--map {index:04}=NAME)"
            )),
        }
    }

    /// Writes the stored values of the wanted scopes as a file; returns it with the revision.
    pub fn write_file(
        &self,
        wanted: impl Fn(&Scope) -> bool,
        utf8: bool,
    ) -> Result<(Vec<u8>, u64), RegistryError> {
        let state = self.committed();
        let mut by_scope: BTreeMap<&Scope, Vec<Line>> = BTreeMap::new();
        for ((scope, name), entry) in &state.entries {
            if let Some(def) = key_of(name).filter(|_| wanted(scope)) {
                by_scope.entry(scope).or_default().push(Line {
                    number: 0,
                    name: def.name.to_owned(),
                    data: data(def, &entry.value),
                });
            }
        }
        let mut sections = Vec::new();
        for (scope, mut values) in by_scope {
            let (path, comment) = match scope {
                Scope::Driver => (DRIVER_PATH.to_owned(), "all adapters".to_owned()),
                Scope::Adapter(name) => {
                    let index = self.index_or_new(name)?;
                    values.insert(
                        0,
                        Line {
                            number: 0,
                            name: INSTANCE.to_owned(),
                            data: Data::Text(name.clone()),
                        },
                    );
                    (format!("{CLASS_PATH}\\{index:04}"), format!("adapter {name}"))
                }
            };
            sections.push(Section {
                number: 0,
                path,
                delete: false,
                comments: vec![comment],
                values,
            });
        }
        Ok((reg_file::write(&sections, utf8), state.revision))
    }
}

impl Import {
    fn section(
        &mut self,
        state: &State,
        section: &Section,
        scope: &Scope,
        options: &ImportOptions,
        problems: &mut Vec<Wrong>,
    ) {
        if section.delete {
            let stored = state.entries.keys().filter(|(s, _)| s == scope);
            for (_, name) in stored {
                self.push(section.number, scope, name, Action::Delete);
            }
        }
        for line in &section.values {
            let name = &line.name;
            if HOUSEKEEPING
                .split_whitespace()
                .any(|h| h.eq_ignore_ascii_case(name))
            {
                continue;
            }
            let action = match &line.data {
                Data::Dword(number) => Action::Set(Value::Dword(*number)),
                Data::Text(text) => Action::Set(Value::Text(text.clone())),
                Data::Multi(all) => Action::Set(Value::Text(all.join(" "))),
                Data::Delete => Action::Delete,
                Data::Other(kind) => {
                    problems.push(wrong(
                        line.number,
                        format!("{name}: type {kind:x}: a REG_DWORD, REG_SZ or REG_MULTI_SZ is allowed"),
                    ));
                    continue;
                }
            };
            let unknown = match known(name) {
                Err(why) => why.to_string(),
                Ok(KeyDef {
                    built: Built::No(what),
                    ..
                }) => format!("{name}: not implemented: this key waits for {what}"),
                Ok(def) => {
                    self.push(line.number, scope, def.name, action);
                    continue;
                }
            };
            if options.skip_unknown {
                let why = format!("line {}: {unknown}", line.number);
                self.left_out.push((scope.to_string(), name.clone(), why));
            } else {
                problems.push(wrong(line.number, unknown));
            }
        }
    }

    fn push(&mut self, line: usize, scope: &Scope, key: &str, action: Action) {
        self.lines.push(line);
        self.operations.push(Operation {
            scope: scope.clone(),
            key: key.to_owned(),
            action,
            if_match: None,
        });
    }
}

/// Value in the type that Windows has for it.
fn data(def: &KeyDef, value: &Value) -> Data {
    match (def.reg, value) {
        (RegType::Dword, Value::Dword(number)) => Data::Dword(*number),
        (RegType::MultiSz, Value::Macs(macs)) => {
            let each = |mac| def.format(&Value::Macs(vec![mac]));
            Data::Multi(macs.iter().copied().map(each).collect())
        }
        (_, value) => Data::Text(def.format(value)),
    }
}
