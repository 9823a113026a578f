//! Code of a function: checked (WebAssembly Core Specification 1.0, chapter 3) and translated to instructions on slots.
//!
//! The stack of WebAssembly is gone after that: each height has a slot, and what only copies a local or a constant is read where it
//! is. Behind an instruction that does not go on, code up to the end of its block is read and left out.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::LoadError;
use super::module::{Global, Signature, Type};
use super::op::{Op, SLOTS, Shape};
use super::reader::Reader;

/// Targets of one `br_table`.
const TARGETS_MAX: usize = 1024;

/// What code may refer to.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub functions: &'a [&'a Signature],
    pub globals: &'a [Global],
    pub pages: usize,
}

/// A function after translation.
#[derive(Debug)]
pub struct Function {
    pub signature: Signature,
    /// Slots of parameters and locals.
    pub locals: usize,
    /// What the last slots are set to.
    pub constants: Vec<u64>,
    pub ops: Vec<Op>,
    /// Targets of `br_table`.
    pub tables: Vec<u32>,
}

/// Kinds of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Block,
    /// With the instruction that its branches go to.
    Loop(u32),
    /// With the jump that leads to `else` or the end.
    If(usize),
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    /// Height of the stack below it.
    height: usize,
    result: Option<Type>,
    /// Jumps to its end: instructions.
    jumps: Vec<usize>,
    /// Jumps to its end: targets in `tables`.
    targets: Vec<usize>,
}

/// A value of the stack: its type, and the slot where it is.
#[derive(Debug, Clone, Copy)]
struct Operand {
    ty: Type,
    slot: usize,
}

struct Translator<'a, 'c> {
    context: &'c Context<'c>,
    code: Reader<'a>,
    locals: Vec<Type>,
    /// Constants, the last slot's first.
    constants: Vec<u64>,
    stack: Vec<Operand>,
    /// Greatest height so far.
    high: usize,
    blocks: Vec<Block>,
    ops: Vec<Op>,
    tables: Vec<u32>,
    /// An instruction that something jumps to: what stands before it is not changed any more.
    label: usize,
}

/// Checks and translates the body of a function.
pub fn translate(
    body: Reader<'_>,
    signature: &Signature,
    context: &Context<'_>,
) -> Result<Function, LoadError> {
    let mut code = body;
    let mut locals = signature.params.clone();
    for _ in 0..code.count(SLOTS, "groups of locals")? {
        let count = code.count(SLOTS - locals.len(), "more locals of a function")?;
        let ty = Type::read(&mut code)?;
        locals.extend(vec![ty; count]);
    }
    let mut translator = Translator {
        context,
        code,
        locals,
        constants: Vec::new(),
        stack: Vec::new(),
        high: 0,
        blocks: vec![Block {
            kind: Kind::Function,
            height: 0,
            result: signature.result,
            jumps: Vec::new(),
            targets: Vec::new(),
        }],
        ops: Vec::new(),
        tables: Vec::new(),
        label: 0,
    };
    while !translator.blocks.is_empty() {
        translator.instruction()?;
    }
    if !translator.code.is_empty() {
        return translator.code.wrong("code behind the end of the function");
    }
    translator.fits()?;
    let Translator {
        locals,
        mut constants,
        ops,
        tables,
        ..
    } = translator;
    constants.reverse();
    Ok(Function {
        signature: signature.clone(),
        locals: locals.len(),
        constants,
        ops,
        tables,
    })
}

impl Translator<'_, '_> {
    fn wrong<T>(&self, what: &str) -> Result<T, LoadError> {
        self.code.wrong(what)
    }

    /// Whether all slots fit into a frame.
    fn fits(&self) -> Result<(), LoadError> {
        let slots = self.locals.len() + self.high + self.constants.len();
        match slots <= SLOTS {
            true => Ok(()),
            false => self.wrong("a function has more than 256 locals, constants and values under way"),
        }
    }

    /// The slot of a height of the stack.
    fn home(&self, height: usize) -> usize {
        self.locals.len() + height
    }

    fn byte(slot: usize) -> u8 {
        // (`fits` has looked at what is greater.)
        slot as u8
    }

    fn emit(&mut self, op: Op) -> usize {
        self.ops.push(op);
        self.ops.len() - 1
    }

    /// A value on top of the stack in its own slot; the slot.
    fn push(&mut self, ty: Type) -> Result<u8, LoadError> {
        let slot = self.home(self.stack.len());
        self.put(Operand { ty, slot })?;
        Ok(Self::byte(slot))
    }

    fn put(&mut self, operand: Operand) -> Result<(), LoadError> {
        self.stack.push(operand);
        self.high = self.high.max(self.stack.len());
        self.fits()
    }

    fn constant(&mut self, ty: Type, value: u64) -> Result<(), LoadError> {
        let known = self.constants.iter().position(|c| *c == value);
        let at = known.unwrap_or(self.constants.len());
        if known.is_none() {
            self.constants.push(value);
        }
        self.fits()?;
        self.put(Operand {
            ty,
            slot: SLOTS - 1 - at,
        })
    }

    fn height(&self) -> usize {
        self.blocks.last().map_or(0, |b| b.height)
    }

    fn pop_any(&mut self) -> Result<Operand, LoadError> {
        if self.stack.len() <= self.height() {
            return self.wrong("a value is missing");
        }
        match self.stack.pop() {
            Some(operand) => Ok(operand),
            None => self.wrong("a value is missing"),
        }
    }

    fn pop(&mut self, ty: Type) -> Result<u8, LoadError> {
        let operand = self.pop_any()?;
        match operand.ty == ty {
            true => Ok(Self::byte(operand.slot)),
            false => self.wrong("a value is of the wrong type"),
        }
    }

    /// Copies values from position `from` of the stack on to their own slots, where they are not there and `which` says so.
    fn settle(&mut self, from: usize, which: impl Fn(usize) -> bool) {
        for height in from..self.stack.len() {
            let (slot, home) = (self.stack[height].slot, self.home(height));
            if slot != home && which(slot) {
                self.emit(Op::Copy {
                    d: Self::byte(home),
                    a: Self::byte(slot),
                });
                self.stack[height].slot = home;
            }
        }
    }

    /// Copies what only names a local: from here on the local may change on one way and not on another.
    fn settle_locals(&mut self) {
        let locals = self.locals.len();
        self.settle(0, |slot| slot < locals);
    }

    /// An unconditional end of the way: reads what cannot be reached, up to the end of its block.
    fn dead(&mut self) -> Result<(), LoadError> {
        let mut depth = 0usize;
        loop {
            let before = self.code;
            let code = self.code.byte()?;
            match code {
                0x02..=0x04 => {
                    self.block_type()?;
                    depth += 1;
                }
                0x05 if depth == 0 => {
                    self.code = before;
                    return self.leave(false);
                }
                0x0b if depth == 0 => {
                    self.code = before;
                    return self.leave(false);
                }
                0x0b => depth -= 1,
                0x0e => {
                    for _ in 0..=self.code.count(TARGETS_MAX, "targets")? {
                        self.code.u32()?;
                    }
                }
                0x0c | 0x0d | 0x10 | 0x20..=0x24 => drop(self.code.u32()?),
                0x1c => drop(self.selected()?),
                0x3f | 0x40 => drop(self.code.byte()?),
                0x41 => drop(self.code.i32()?),
                0x42 => drop(self.code.i64()?),
                0xfc => {
                    for _ in 0..self.bulk()? {
                        self.code.byte()?;
                    }
                }
                0x00 | 0x01 | 0x05 | 0x0f | 0x1a | 0x1b => {}
                other => match Shape::of(other) {
                    Some(Shape::Load(..) | Shape::Store(..)) => {
                        self.code.u32()?;
                        self.code.u32()?;
                    }
                    Some(_) => {}
                    None => return unknown(&before, other),
                },
            }
        }
    }

    /// Number of index bytes of memory.copy (2) or memory.fill (1).
    fn bulk(&mut self) -> Result<u8, LoadError> {
        let here = self.code;
        match self.code.u32()? {
            10 => Ok(2),
            11 => Ok(1),
            0..=7 => here.wrong("floating point is not accepted: its results are not the same everywhere"),
            _ => here.wrong("an instruction that is not accepted"),
        }
    }

    /// `else` or `end`. `alive`: the way before it leads here.
    fn leave(&mut self, alive: bool) -> Result<(), LoadError> {
        let here = self.code;
        let code = self.code.byte()?;
        if alive {
            if let Some(ty) = self.blocks.last().and_then(|b| b.result) {
                self.carry(self.blocks.len() - 1, ty)?;
                self.pop(ty)?;
            }
            if self.stack.len() != self.height() {
                return here.wrong("values are left over at the end of a block");
            }
        }
        let Some(mut block) = self.blocks.pop() else {
            return here.wrong("an end without a block");
        };
        self.stack.truncate(block.height);
        if code == 0x05 {
            let Kind::If(jump) = block.kind else {
                return here.wrong("an else without an if");
            };
            if alive {
                block.jumps.push(self.ops.len());
                self.emit(Op::Jump { to: 0 });
            }
            self.aim(jump);
            block.kind = Kind::Block;
            self.blocks.push(block);
            return Ok(());
        }
        if let Kind::If(jump) = block.kind {
            if block.result.is_some() {
                return here.wrong("an if with a result has no else");
            }
            self.aim(jump);
        }
        if !block.jumps.is_empty() || !block.targets.is_empty() {
            self.label = self.ops.len();
        }
        for jump in &block.jumps {
            self.aim(*jump);
        }
        for target in &block.targets {
            self.tables[*target] = self.ops.len() as u32;
        }
        if block.kind == Kind::Function {
            self.emit(Op::Return);
        } else if let Some(ty) = block.result {
            self.push(ty)?;
        }
        Ok(())
    }

    /// Lets a jump lead to the next instruction.
    fn aim(&mut self, jump: usize) {
        let here = self.ops.len();
        self.label = here;
        if let Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpIfNot { to, .. } = &mut self.ops[jump] {
            *to = here as u32;
        }
    }

    /// Copies the value on top of the stack to where the result of a block is expected: of a function the first slot.
    fn carry(&mut self, at: usize, ty: Type) -> Result<(), LoadError> {
        let a = self.pop(ty)?;
        self.stack.push(Operand {
            ty,
            slot: usize::from(a),
        });
        let d = match self.blocks[at].kind {
            Kind::Function => 0,
            _ => Self::byte(self.home(self.blocks[at].height)),
        };
        if d != a {
            self.emit(Op::Copy { d, a });
        }
        Ok(())
    }

    fn block_type(&mut self) -> Result<Option<Type>, LoadError> {
        let mut after = self.code;
        if after.byte()? == 0x40 {
            self.code = after;
            return Ok(None);
        }
        let here = self.code;
        match Type::read(&mut self.code) {
            Ok(ty) => Ok(Some(ty)),
            Err(_) => {
                here.wrong("a block that takes values, or gives others than one integer, is not accepted")
            }
        }
    }

    /// Position of the block that a branch goes to.
    fn target(&mut self) -> Result<usize, LoadError> {
        let here = self.code;
        let depth = self.code.u32()? as usize;
        match self.blocks.len().checked_sub(depth + 1) {
            Some(at) => Ok(at),
            None => here.wrong("a branch to no block"),
        }
    }

    /// What a branch to a block takes along.
    fn arity(&self, at: usize) -> Option<Type> {
        match self.blocks[at].kind {
            Kind::Loop(_) => None,
            _ => self.blocks[at].result,
        }
    }

    /// Emits a jump to a block.
    fn jump(&mut self, at: usize, make: impl Fn(u32) -> Op) {
        let to = match self.blocks[at].kind {
            Kind::Loop(start) => start,
            _ => {
                let jump = self.ops.len();
                self.blocks[at].jumps.push(jump);
                0
            }
        };
        self.emit(make(to));
    }

    /// A branch that is taken.
    fn branch(&mut self, at: usize) -> Result<(), LoadError> {
        if let Some(ty) = self.arity(at) {
            self.carry(at, ty)?;
        }
        self.jump(at, |to| Op::Jump { to });
        Ok(())
    }

    fn open(&mut self, kind: Kind, result: Option<Type>) {
        self.blocks.push(Block {
            kind,
            height: self.stack.len(),
            result,
            jumps: Vec::new(),
            targets: Vec::new(),
        });
    }

    fn instruction(&mut self) -> Result<(), LoadError> {
        let before = self.code;
        let code = self.code.byte()?;
        match code {
            0x00 => {
                self.emit(Op::Unreachable);
                self.dead()
            }
            0x01 => Ok(()),
            0x02 => {
                let result = self.block_type()?;
                self.settle_locals();
                self.open(Kind::Block, result);
                Ok(())
            }
            0x03 => {
                let result = self.block_type()?;
                self.settle_locals();
                self.label = self.ops.len();
                self.open(Kind::Loop(self.label as u32), result);
                Ok(())
            }
            0x04 => {
                let result = self.block_type()?;
                let a = self.pop(Type::I32)?;
                self.settle_locals();
                let jump = self.emit(Op::JumpIfNot { a, to: 0 });
                self.open(Kind::If(jump), result);
                Ok(())
            }
            0x05 | 0x0b => {
                self.code = before;
                self.leave(true)
            }
            0x0c => {
                let at = self.target()?;
                self.branch(at)?;
                self.dead()
            }
            0x0d => {
                let at = self.target()?;
                let a = self.pop(Type::I32)?;
                if self.arity(at).is_none() {
                    self.jump(at, |to| Op::JumpIf { a, to });
                    return Ok(());
                }
                let over = self.emit(Op::JumpIfNot { a, to: 0 });
                self.branch(at)?;
                self.aim(over);
                Ok(())
            }
            0x0e => self.branch_table(),
            0x0f => {
                self.branch(0)?;
                self.dead()
            }
            0x10 => self.call(),
            0x11 => before.wrong("calls by a table are not accepted"),
            0x1a => self.pop_any().map(drop),
            0x1b => self.select(None),
            0x1c => {
                let ty = self.selected()?;
                self.select(Some(ty))
            }
            0x20..=0x22 => self.local(code),
            0x23 | 0x24 => self.global(code == 0x24),
            0x3f | 0x40 => {
                self.code.byte()?;
                if code == 0x40 {
                    self.pop(Type::I32)?;
                }
                // Memory does not grow.
                let pages = match code {
                    0x3f => self.context.pages as u64,
                    _ => u64::from(u32::MAX),
                };
                self.constant(Type::I32, pages)
            }
            0x41 => {
                let value = self.code.i32()?;
                self.constant(Type::I32, value)
            }
            0x42 => {
                let value = self.code.i64()?;
                self.constant(Type::I64, value)
            }
            0xfc => {
                let indexes = self.bulk()?;
                for _ in 0..indexes {
                    self.code.byte()?;
                }
                let n = self.pop(Type::I32)?;
                let a = self.pop(Type::I32)?;
                let d = self.pop(Type::I32)?;
                self.emit(match indexes {
                    2 => Op::MemoryCopy { d, a, n },
                    _ => Op::MemoryFill { d, a, n },
                });
                Ok(())
            }
            other => self.arithmetic(other, &before),
        }
    }

    fn arithmetic(&mut self, code: u8, before: &Reader<'_>) -> Result<(), LoadError> {
        match Shape::of(code) {
            Some(Shape::Binary(takes, gives, make)) => {
                let b = self.pop(takes)?;
                let a = self.pop(takes)?;
                let d = self.push(gives)?;
                self.emit(make(d, a, b));
            }
            Some(Shape::Unary(takes, gives, make)) => {
                let a = self.pop(takes)?;
                let d = self.push(gives)?;
                self.emit(make(d, a));
            }
            Some(Shape::Load(gives, size, make)) => {
                let offset = self.place(size)?;
                let a = self.pop(Type::I32)?;
                let d = self.push(gives)?;
                self.emit(make(d, a, offset));
            }
            Some(Shape::Store(takes, size, make)) => {
                let offset = self.place(size)?;
                let b = self.pop(takes)?;
                let a = self.pop(Type::I32)?;
                self.emit(make(a, b, offset));
            }
            None => return unknown(before, code),
        }
        Ok(())
    }

    /// Alignment and offset of an access of `size` bytes; the offset.
    fn place(&mut self, size: u32) -> Result<u32, LoadError> {
        let here = self.code;
        let align = self.code.u32()?;
        if align > size.trailing_zeros() {
            return here.wrong("an alignment above the size of the access");
        }
        self.code.u32()
    }

    fn branch_table(&mut self) -> Result<(), LoadError> {
        let here = self.code;
        let last = self.code.count(TARGETS_MAX, "targets")?;
        let first = self.tables.len();
        let mut at = Vec::new();
        for _ in 0..=last {
            at.push(self.target()?);
        }
        if at.iter().any(|at| self.arity(*at).is_some()) {
            return here.wrong("a table of branches that take a value along is not accepted");
        }
        let a = self.pop(Type::I32)?;
        for at in at {
            let target = self.tables.len();
            match self.blocks[at].kind {
                Kind::Loop(start) => self.tables.push(start),
                _ => {
                    self.blocks[at].targets.push(target);
                    self.tables.push(0);
                }
            }
        }
        self.emit(Op::Table {
            a,
            last: last as u16,
            first: first as u32,
        });
        self.dead()
    }

    fn call(&mut self) -> Result<(), LoadError> {
        let here = self.code;
        let function = self.code.u32()? as usize;
        let Some(signature) = self.context.functions.get(function).copied() else {
            return here.wrong("a call of no function");
        };
        let count = signature.params.len();
        let Some(from) = self
            .stack
            .len()
            .checked_sub(count)
            .filter(|from| *from >= self.height())
        else {
            return here.wrong("a value is missing");
        };
        self.settle(from, |_| true);
        for ty in signature.params.iter().rev() {
            self.pop(*ty)?;
        }
        let base = Self::byte(self.home(self.stack.len()));
        if let Some(ty) = signature.result {
            self.push(ty)?;
        }
        self.emit(Op::Call {
            base,
            function: function as u16,
        });
        Ok(())
    }

    /// The type of a `select` that names it.
    fn selected(&mut self) -> Result<Type, LoadError> {
        let here = self.code;
        match self.code.u32()? {
            1 => Type::read(&mut self.code),
            _ => here.wrong("a select of several values"),
        }
    }

    fn select(&mut self, ty: Option<Type>) -> Result<(), LoadError> {
        let c = self.pop(Type::I32)?;
        let b = self.pop_any()?;
        if ty.is_some_and(|ty| ty != b.ty) {
            return self.wrong("a value is of the wrong type");
        }
        let a = self.pop(b.ty)?;
        let d = self.push(b.ty)?;
        let b = Self::byte(b.slot);
        self.emit(Op::Select { d, a, b, c });
        Ok(())
    }

    fn local(&mut self, code: u8) -> Result<(), LoadError> {
        let here = self.code;
        let index = self.code.u32()? as usize;
        let Some(ty) = self.locals.get(index).copied() else {
            return here.wrong("there is no such local");
        };
        if code == 0x20 {
            return self.put(Operand { ty, slot: index });
        }
        let a = self.pop(ty)?;
        let before = self.ops.len();
        self.settle(0, |slot| slot == index);
        let settled = self.ops.len() != before;
        let d = Self::byte(index);
        let home = Self::byte(self.home(self.stack.len()));
        let fresh = self.label != self.ops.len() && !settled && a == home;
        let result = self.ops.last_mut().filter(|_| fresh).and_then(Op::result);
        match result {
            // What has just been computed goes to the local at once.
            Some(result) if *result == a => *result = d,
            _ if a == d => {}
            _ => drop(self.emit(Op::Copy { d, a })),
        }
        if code == 0x22 {
            self.put(Operand { ty, slot: index })?;
        }
        Ok(())
    }

    fn global(&mut self, set: bool) -> Result<(), LoadError> {
        let here = self.code;
        let index = self.code.u32()? as usize;
        let Some(global) = self.context.globals.get(index) else {
            return here.wrong("there is no such global");
        };
        let number = index as u16;
        if !set {
            let d = self.push(global.ty)?;
            self.emit(Op::GlobalGet { d, global: number });
            return Ok(());
        }
        if !global.mutable {
            return here.wrong("the global does not change");
        }
        let a = self.pop(global.ty)?;
        self.emit(Op::GlobalSet { a, global: number });
        Ok(())
    }
}

/// The error for a code that no instruction has here.
fn unknown<T>(at: &Reader<'_>, code: u8) -> Result<T, LoadError> {
    match code {
        0x2a | 0x2b | 0x38 | 0x39 | 0x43 | 0x44 | 0x5b..=0x66 | 0x8b..=0xa6 | 0xa8..=0xab | 0xae..=0xbf => {
            at.wrong("floating point is not accepted: its results are not the same everywhere")
        }
        _ => at.wrong(format!("instruction {code:#04x} is not accepted")),
    }
}
