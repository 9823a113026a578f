//! The binary form of a module (WebAssembly Core Specification 1.0, chapter 5): what of it a program may have.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::LoadError;
use super::code::{self, Function};
use super::reader::Reader;

/// Bytes of a module.
pub const MODULE_MAX: usize = 64 << 10;
/// Bytes of a page of memory.
pub const PAGE: usize = 64 << 10;
/// Pages of memory: 1 MiB of stack, as linkers have it, and what else a program has.
pub const PAGES_MAX: usize = 32;
/// Functions, types, globals, exports, segments of data: each.
const ITEMS_MAX: usize = 256;
/// Parameters of a function.
const PARAMS_MAX: usize = 16;

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    I32,
    I64,
}

impl Type {
    /// The type of a code.
    pub fn read(reader: &mut Reader<'_>) -> Result<Type, LoadError> {
        let here = *reader;
        match reader.byte()? {
            0x7f => Ok(Type::I32),
            0x7e => Ok(Type::I64),
            0x7d | 0x7c => {
                here.wrong("floating point is not accepted: its results are not the same everywhere")
            }
            _ => here.wrong("a type that is not i32 or i64"),
        }
    }
}

/// Type of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    pub params: Vec<Type>,
    pub result: Option<Type>,
}

/// A global.
#[derive(Debug, Clone, Copy)]
pub struct Global {
    pub ty: Type,
    pub mutable: bool,
    pub value: u64,
}

/// What an export names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    Function(usize),
    Global(usize),
    Memory,
    /// A table: nothing uses it.
    Table,
}

/// Bytes that memory begins with.
#[derive(Debug)]
struct Data<'a> {
    offset: usize,
    bytes: &'a [u8],
}

/// A module whose code is translated.
#[derive(Debug)]
pub struct Module {
    pub functions: Vec<Function>,
    pub globals: Vec<Global>,
    /// Bytes of memory.
    pub memory: usize,
    /// What memory begins with; behind it is zero.
    pub image: Vec<u8>,
    pub exports: Vec<(String, Export)>,
}

impl Module {
    /// Reads and translates a module.
    pub fn read(bytes: &[u8]) -> Result<Module, LoadError> {
        let mut reader = Reader::new(bytes, 0);
        if reader.take(8).ok() != Some(b"\0asm\x01\0\0\0") {
            return Reader::new(bytes, 0).wrong("not a WebAssembly module of version 1 in binary form");
        }
        let mut parts = Parts::default();
        let mut last = 0;
        while !reader.is_empty() {
            let here = reader;
            let id = reader.byte()?;
            let len = reader.u32()? as usize;
            let mut section = reader.part(len)?;
            if id == 0 {
                continue;
            }
            // (The count of data segments, 12, is before the code.)
            let order = match id {
                12 => 19,
                other => u32::from(other) * 2,
            };
            if order <= last {
                return here.wrong("sections are not in order");
            }
            last = order;
            parts.section(id, &mut section, &here)?;
            if !section.is_empty() && !matches!(id, 4 | 9 | 12) {
                return section.wrong("bytes behind the end of the section");
            }
        }
        parts.finish()
    }
}

/// Sections as they come.
#[derive(Debug, Default)]
struct Parts<'a> {
    types: Vec<Signature>,
    functions: Vec<usize>,
    pages: Option<usize>,
    globals: Vec<Global>,
    exports: Vec<(String, Export)>,
    bodies: Vec<Reader<'a>>,
    data: Vec<Data<'a>>,
}

impl<'a> Parts<'a> {
    fn section(&mut self, id: u8, section: &mut Reader<'a>, here: &Reader<'_>) -> Result<(), LoadError> {
        match id {
            1 => self.types(section),
            2 => match section.u32()? {
                0 => Ok(()),
                _ => here.wrong("imports are not accepted: a program calls nobody"),
            },
            3 => {
                for _ in 0..section.count(ITEMS_MAX, "functions")? {
                    let here = *section;
                    let ty = section.u32()? as usize;
                    if ty >= self.types.len() {
                        return here.wrong("there is no such type");
                    }
                    self.functions.push(ty);
                }
                Ok(())
            }
            // Tables and their elements, which nothing can use, and the count of segments.
            4 | 9 | 12 => Ok(()),
            5 => self.memory(section),
            6 => {
                for _ in 0..section.count(ITEMS_MAX, "globals")? {
                    let ty = Type::read(section)?;
                    let mutable = section.byte()? != 0;
                    let value = constant(section, ty)?;
                    self.globals.push(Global { ty, mutable, value });
                }
                Ok(())
            }
            7 => self.exports(section),
            8 => here.wrong("a start function is not accepted: on_start is called for each flow"),
            10 => {
                for _ in 0..section.count(ITEMS_MAX, "functions")? {
                    let len = section.u32()? as usize;
                    let body = section.part(len)?;
                    self.bodies.push(body);
                }
                Ok(())
            }
            11 => self.data(section),
            _ => here.wrong(format!("section {id} is not accepted")),
        }
    }

    fn types(&mut self, section: &mut Reader<'_>) -> Result<(), LoadError> {
        for _ in 0..section.count(ITEMS_MAX, "types")? {
            let here = *section;
            if section.byte()? != 0x60 {
                return here.wrong("a type that is not of a function");
            }
            let mut signature = Signature::default();
            for _ in 0..section.count(PARAMS_MAX, "parameters of a function")? {
                signature.params.push(Type::read(section)?);
            }
            for _ in 0..section.count(1, "results of a function")? {
                signature.result = Some(Type::read(section)?);
            }
            self.types.push(signature);
        }
        Ok(())
    }

    fn memory(&mut self, section: &mut Reader<'_>) -> Result<(), LoadError> {
        for _ in 0..section.count(1, "memories")? {
            let here = *section;
            let limits = section.byte()?;
            let pages = section.count(PAGES_MAX, "pages of memory")?;
            match limits {
                0 => {}
                1 => drop(section.u32()?),
                _ => return here.wrong("memory that is shared or has 64-bit addresses is not accepted"),
            }
            self.pages = Some(pages);
        }
        Ok(())
    }

    fn exports(&mut self, section: &mut Reader<'_>) -> Result<(), LoadError> {
        for _ in 0..section.count(ITEMS_MAX, "exports")? {
            let here = *section;
            let name = section.name()?;
            let kind = section.byte()?;
            let index = section.u32()? as usize;
            let export = match kind {
                0 if index < self.functions.len() => Export::Function(index),
                1 => Export::Table,
                2 if index == 0 && self.pages.is_some() => Export::Memory,
                3 if index < self.globals.len() => Export::Global(index),
                _ => return here.wrong(format!("export \"{name}\" of nothing that is there")),
            };
            if self.exports.iter().any(|(known, _)| known == name) {
                return here.wrong(format!("export \"{name}\" is there twice"));
            }
            self.exports.push((name.to_owned(), export));
        }
        Ok(())
    }

    fn data(&mut self, section: &mut Reader<'a>) -> Result<(), LoadError> {
        for _ in 0..section.count(ITEMS_MAX, "segments of data")? {
            let here = *section;
            match section.u32()? {
                0 => {}
                2 if section.u32()? == 0 => {}
                _ => return here.wrong("data that is not placed when the module begins is not accepted"),
            }
            let offset = constant(section, Type::I32)? as usize;
            let len = section.u32()? as usize;
            let bytes = section.take(len)?;
            if offset + len > self.pages.unwrap_or_default() * PAGE {
                return here.wrong("data is beyond the end of memory");
            }
            self.data.push(Data { offset, bytes });
        }
        Ok(())
    }

    fn finish(self) -> Result<Module, LoadError> {
        let nowhere = |what: &str| {
            Err(LoadError::Module {
                at: 0,
                what: what.to_owned(),
            })
        };
        let Some(pages) = self.pages else {
            return nowhere("there is no memory");
        };
        if self.bodies.len() != self.functions.len() {
            return nowhere("functions without a body, or the other way round");
        }
        let end = self.data.iter().map(|d| d.offset + d.bytes.len()).max();
        let mut image = vec![0; end.unwrap_or_default()];
        for data in &self.data {
            image[data.offset..][..data.bytes.len()].copy_from_slice(data.bytes);
        }
        let signatures: Vec<&Signature> = self.functions.iter().map(|ty| &self.types[*ty]).collect();
        let context = code::Context {
            functions: &signatures,
            globals: &self.globals,
            pages,
        };
        let bodies = self.bodies.iter().zip(&signatures);
        let functions = bodies
            .map(|(body, signature)| code::translate(*body, signature, &context))
            .collect::<Result<_, _>>()?;
        Ok(Module {
            functions,
            globals: self.globals,
            memory: pages * PAGE,
            image,
            exports: self.exports,
        })
    }
}

/// An expression that is one constant.
fn constant(reader: &mut Reader<'_>, ty: Type) -> Result<u64, LoadError> {
    let here = *reader;
    let value = match (reader.byte()?, ty) {
        (0x41, Type::I32) => reader.i32()?,
        (0x42, Type::I64) => reader.i64()?,
        _ => return here.wrong("a value that is not a constant of its type"),
    };
    match reader.byte()? {
        0x0b => Ok(value),
        _ => here.wrong("a value that is not a constant of its type"),
    }
}
