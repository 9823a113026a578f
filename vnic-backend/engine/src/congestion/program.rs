//! Algorithms that are loaded at run time: programs in WebAssembly. `docs/congestion.md` has the contract.
//!
//! ```text
//!  bytes ─▶ reader, module ─▶ code: checked, translated ─▶ Program: exports, parameters ─▶ Running ─▶ Flow of each queue pair
//!                                                                                            │         state, limits
//!                                                        event, state in │ state, limits out ▼
//!                                                                                         Machine: memory, frames, fuel
//! ```
//!
//! A program has integers and no imports. An event is a function of the flow's state, the event and the parameters alone: what else
//! it wrote is put back behind each event. So flows share one machine, a run can be repeated exactly, and no flow hears of another.
//! What it may use in an event is bounded: instructions ([`FUEL`]), calls within calls, bytes written.

mod code;
mod flow;
mod machine;
mod module;
mod op;
mod reader;
#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use self::machine::Machine;
use self::module::{Export, Module, Signature};
use super::named::{Error, Parameter, Unit};
use super::{Faults, Needs};

pub use self::module::MODULE_MAX;

/// Units of fuel of an event: an instruction each, about; 16 bytes that memory.copy and memory.fill move are one more.
pub const FUEL: u32 = 4096;
/// Faults after which a program runs no more.
pub const FAULTS_MAX: u64 = 16;
/// Bytes of a flow: a head, and what the program keeps.
pub const FLOW_MAX: usize = 256;
/// Parameters of a program.
pub const PARAMETERS_MAX: usize = 32;

/// Version of the contract.
const VERSION: u32 = 1;
/// Bytes of the description of a program.
const DESCRIPTION: usize = 32;
/// Bytes of a parameter: value, least, most.
const PARAMETER: usize = 24;
/// Values of parameters are whole numbers below this, so that text and number are the same.
const VALUE_MAX: u64 = 1 << 53;

/// Slots of one call.
type Frame = [u64; op::SLOTS];

/// Why an event did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Trap {
    /// The program says that it cannot go on.
    #[error("`unreachable` was reached")]
    Unreachable = 1,
    /// Division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The quotient is no number of its type.
    #[error("the quotient is out of range")]
    Overflow,
    /// Access beyond the end of memory.
    #[error("access beyond the end of memory")]
    Memory,
    /// More bytes were written than an event may.
    #[error("more than 64 blocks of 256 bytes were written")]
    Written,
    /// More calls within calls than there may be.
    #[error("more than 16 calls within calls")]
    Depth,
    /// All fuel was used.
    #[error("more than 4096 instructions")]
    Fuel,
}

impl Trap {
    const ALL: [Trap; 7] = [
        Trap::Unreachable,
        Trap::DivisionByZero,
        Trap::Overflow,
        Trap::Memory,
        Trap::Written,
        Trap::Depth,
        Trap::Fuel,
    ];
}

/// Why a program is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file is too big.
    #[error("the program has {len} bytes; at most {MODULE_MAX} are accepted")]
    Size {
        /// Bytes of the file.
        len: usize,
    },
    /// The module cannot be read, or has what no program may have.
    #[error("at byte {at}: {what}")]
    Module {
        /// Offset in the file.
        at: usize,
        /// What is wrong.
        what: String,
    },
    /// An export is missing, or is not what it should be.
    #[error("export \"{name}\": {what}")]
    Export {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The first flow cannot begin.
    #[error("on_start, tried once: {0}")]
    Start(Trap),
}

/// An event of the contract: the number is its place in [`Program::handlers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Start,
    Sent,
    Notification,
    Ack,
    Loss,
    Time,
}

impl Handler {
    /// Exports, in the order of [`Handler`].
    const NAMES: [&'static str; 6] = [
        "on_start",
        "on_sent",
        "on_notification",
        "on_ack",
        "on_loss",
        "on_time",
    ];
}

/// A parameter of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    name: String,
    address: usize,
    value: u64,
    /// The value in the file.
    default: u64,
    least: u64,
    most: u64,
}

impl Setting {
    /// The unit, by the end of the name.
    fn unit(&self) -> Unit {
        match self.name.rsplit_once('_') {
            Some((_, "ns")) => Unit::Time,
            Some((_, "bps")) => Unit::BitRate,
            Some((_, "bytes")) => Unit::Bytes,
            _ => Unit::One,
        }
    }

    fn accepted(&self) -> String {
        let number = |n: u64| super::named::number(self.unit(), n as f64);
        format!(
            "{} to {}{}",
            number(self.least),
            number(self.most),
            self.unit().suffix()
        )
    }
}

/// A program with its parameters.
#[derive(Clone)]
pub struct Program {
    bytes: Arc<[u8]>,
    module: Arc<Module>,
    needs: Needs,
    /// Bytes of a flow.
    flow: usize,
    /// Where event, flow and records of switches are in memory.
    addresses: Addresses,
    handlers: [Option<usize>; Handler::NAMES.len()],
    settings: Vec<Setting>,
}

/// Places in memory.
#[derive(Debug, Clone, Copy, Default)]
struct Addresses {
    event: u32,
    flow: u32,
    hops: Option<u32>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("fingerprint", &self.fingerprint())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.bytes == other.bytes && self.settings == other.settings
    }
}

impl Eq for Program {}

impl Program {
    /// Reads, checks and translates a program, and tries whether a flow can begin.
    pub fn load(bytes: &[u8]) -> Result<Program, LoadError> {
        if bytes.len() > MODULE_MAX {
            return Err(LoadError::Size { len: bytes.len() });
        }
        let module = Module::read(bytes)?;
        let exports = Exports(&module);
        exports.memory()?;
        let description = exports.data("program", DESCRIPTION)?;
        let word = |i: usize| number(&exports.bytes(description + 4 * i as u32)) as u32;
        if word(0) != VERSION {
            let what = format!("version {} of the contract: {VERSION} is known", word(0));
            return export("program", what);
        }
        let [kept, flags, ack_every, burst] = [word(1), word(2), word(3), word(4)];
        let room = (FLOW_MAX - flow::HEAD) as u32;
        if kept > room {
            return export(
                "program",
                format!("{kept} bytes of a flow: 0 to {room} are accepted"),
            );
        }
        if flags > 7 {
            return export("program", format!("flags {flags:#x}: bits 0 to 2 are known"));
        }
        if (5..8).any(|i| word(i) != 0) {
            return export("program", "bytes 20 to 31 are not zero".to_owned());
        }
        let needs = Needs {
            from_start: flags & 1 != 0,
            loss: flags & 2 != 0,
            telemetry: flags & 4 != 0,
            endpoint: false,
            ack_every,
            burst,
        };
        let flow = flow::HEAD + kept as usize;
        let addresses = Addresses {
            event: exports.data("event", flow::EVENT)?,
            flow: exports.data("flow", flow)?,
            hops: match needs.telemetry {
                true => Some(exports.data("hops", flow::HOPS)?),
                false => None,
            },
        };
        let mut handlers = [None; Handler::NAMES.len()];
        for (handler, name) in handlers.iter_mut().zip(Handler::NAMES) {
            *handler = exports.handler(name)?;
        }
        if handlers[Handler::Start as usize].is_none() {
            return export(Handler::NAMES[0], "it is missing".to_owned());
        }
        let settings = exports.settings()?;
        let program = Program {
            bytes: bytes.into(),
            module: Arc::new(module),
            needs,
            flow,
            addresses,
            handlers,
            settings,
        };
        flow::try_start(&program.running()).map_err(LoadError::Start)?;
        Ok(program)
    }

    /// The file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A number that two files seldom share (FNV-1a).
    pub fn fingerprint(&self) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// Bytes of state of a flow.
    pub fn flow_bytes(&self) -> usize {
        self.flow
    }

    /// Exports for events that it has, by name.
    pub fn events(&self) -> Vec<&'static str> {
        let handlers = self.handlers.iter().zip(Handler::NAMES);
        handlers.filter_map(|(h, name)| h.map(|_| name)).collect()
    }

    /// Changes a parameter; `None`: there is none of that name.
    pub fn set(&mut self, key: &str, text: &str) -> Option<Result<(), Error>> {
        let setting = self.settings.iter_mut().find(|s| s.name == key)?;
        let text = text.trim();
        // Without a unit a number is in the one that the name ends with.
        let value = text.parse().ok().or_else(|| {
            let parsed = super::named::parse(setting.unit(), text)?;
            let whole = parsed >= 0.0 && parsed % 1.0 == 0.0 && parsed < VALUE_MAX as f64;
            whole.then_some(parsed as u64)
        });
        Some(
            match value.filter(|v| (setting.least..=setting.most).contains(v)) {
                Some(value) => {
                    setting.value = value;
                    Ok(())
                }
                None => Err(Error::Value {
                    key: key.to_owned(),
                    value: text.to_owned(),
                    accepted: setting.accepted(),
                }),
            },
        )
    }

    /// Puts a parameter back to what the file has; `None`: there is none of that name.
    pub fn reset(&mut self, key: &str) -> Option<Result<(), Error>> {
        let setting = self.settings.iter_mut().find(|s| s.name == key)?;
        setting.value = setting.default;
        Some(Ok(()))
    }

    /// Parameters as numbers, in the units that their names end with, by name: value, and what the file has.
    pub fn values(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.settings
            .iter()
            .map(|s| (s.name.as_str(), s.value, s.default))
    }

    /// The parameters, by name.
    pub fn parameters(&self) -> Vec<Parameter> {
        let of = |s: &Setting| Parameter {
            name: s.name.clone().into(),
            unit: s.unit(),
            accepted: s.accepted(),
            value: super::named::number(s.unit(), s.value as f64),
            number: s.value.to_string(),
            help: "a parameter of the program",
        };
        self.settings.iter().map(of).collect()
    }

    /// The program as flows use it.
    pub fn running(&self) -> Arc<Running> {
        let mut image = self.module.image.clone();
        for setting in &self.settings {
            let end = setting.address + 8;
            if image.len() < end {
                image.resize(end, 0);
            }
            image[setting.address..end].copy_from_slice(&setting.value.to_le_bytes());
        }
        Arc::new(Running {
            program: self.clone(),
            image,
            spare: spin::Mutex::new(None),
            faults: AtomicU64::new(0),
            last: AtomicU32::new(0),
        })
    }
}

/// A program that flows use, and its machine.
#[derive(Debug)]
pub struct Running {
    program: Program,
    /// What memory begins with: the module's data, and values of parameters.
    image: Vec<u8>,
    /// The machine, while no event uses it. Nobody waits for it: who finds none makes another.
    spare: spin::Mutex<Option<Box<Machine>>>,
    faults: AtomicU64,
    /// Of the last fault: the event, and the trap in the low byte.
    last: AtomicU32,
}

impl Running {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Events that did not come to their end.
    pub fn faults(&self) -> Faults {
        let last = self.last.load(Ordering::Relaxed);
        let trap = Trap::ALL.into_iter().find(|t| *t as u32 == last & 0xff);
        let event = Handler::NAMES.get(last as usize >> 8);
        Faults {
            count: self.faults.load(Ordering::Relaxed),
            stopped: self.stopped(),
            last: trap.zip(event).map(|(trap, event)| format!("{event}: {trap}")),
        }
    }

    /// Whether there were so many faults that it runs no more.
    fn stopped(&self) -> bool {
        self.faults.load(Ordering::Relaxed) >= FAULTS_MAX
    }

    /// Runs an event on a flow; `None`: the program has no function for it.
    fn run(&self, handler: Handler, given: &[(u32, &[u8])], flow: &mut [u8]) -> Option<Result<(), Trap>> {
        let function = self.program.handlers[handler as usize]?;
        let spare = self.spare.try_lock().and_then(|mut spare| spare.take());
        let module = &self.program.module;
        let mut machine = spare.unwrap_or_else(|| Machine::new(module, &self.image));
        let answer = (self.program.addresses.flow, flow);
        let done = machine.run((module, &self.image), function, given, answer);
        if let Some(mut spare) = self.spare.try_lock() {
            *spare = Some(machine);
        }
        if let Err(trap) = done {
            let last = (handler as u32) << 8 | trap as u32;
            self.last.store(last, Ordering::Relaxed);
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        Some(done)
    }
}

/// Exports of a module.
struct Exports<'a>(&'a Module);

impl Exports<'_> {
    fn find(&self, name: &str) -> Option<Export> {
        let mut exports = self.0.exports.iter();
        exports.find(|(known, _)| known == name).map(|(_, e)| *e)
    }

    fn memory(&self) -> Result<(), LoadError> {
        match self.find("memory") {
            Some(Export::Memory) => Ok(()),
            _ => export("memory", "the memory is missing".to_owned()),
        }
    }

    /// The address of `len` bytes that a global names, as linkers write symbols of data.
    fn data(&self, name: &str, len: usize) -> Result<u32, LoadError> {
        let Some(Export::Global(index)) = self.find(name) else {
            return export(name, "a global with the address of data is missing".to_owned());
        };
        let global = &self.0.globals[index];
        let address = u32::try_from(global.value).unwrap_or(u32::MAX);
        if global.mutable || global.ty != module::Type::I32 {
            return export(name, "it is not a constant of type i32".to_owned());
        }
        if address as usize + len > self.0.memory {
            return export(
                name,
                format!("{len} bytes at {address} are beyond the end of memory"),
            );
        }
        Ok(address)
    }

    /// Eight bytes that memory begins with.
    fn bytes(&self, at: u32) -> [u8; 8] {
        let mut bytes = [0; 8];
        let from = self.0.image.get(at as usize..).unwrap_or_default();
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = *from;
        }
        bytes
    }

    fn handler(&self, name: &str) -> Result<Option<usize>, LoadError> {
        match self.find(name) {
            None => Ok(None),
            Some(Export::Function(index)) if self.0.functions[index].signature == Signature::default() => {
                Ok(Some(index))
            }
            Some(_) => export(
                name,
                "it is not a function that takes and gives nothing".to_owned(),
            ),
        }
    }

    /// Parameters: exports that begin with `param_`.
    fn settings(&self) -> Result<Vec<Setting>, LoadError> {
        let mut settings = Vec::new();
        for (export_name, _) in &self.0.exports {
            let Some(name) = export_name.strip_prefix("param_") else {
                continue;
            };
            let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || name.len() > 32 || !name.chars().all(named) {
                let what = "a name of 1 to 32 of a-z, 0-9 and _ behind param_ is accepted".to_owned();
                return export(export_name, what);
            }
            let address = self.data(export_name, PARAMETER)?;
            let [value, least, most] = [0, 8, 16].map(|o| number(&self.bytes(address + o)));
            if !(least <= value && value <= most && most < VALUE_MAX) {
                let what =
                    format!("value {value}, least {least}, most {most}: they are in order, and below 2^53");
                return export(export_name, what);
            }
            if settings.len() == PARAMETERS_MAX {
                return export(export_name, format!("more than {PARAMETERS_MAX} parameters"));
            }
            settings.push(Setting {
                name: name.to_owned(),
                address: address as usize,
                value,
                default: value,
                least,
                most,
            });
        }
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(settings)
    }
}

fn number(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

fn export<T>(name: &str, what: String) -> Result<T, LoadError> {
    Err(LoadError::Export {
        name: name.to_owned(),
        what,
    })
}
