//! Memory and frames that programs run in, one event at a time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::code::Function;
use super::module::Module;
use super::op::{Bytes, Op, SLOTS};
use super::{FUEL, Frame, Trap};

/// Calls within calls.
const DEPTH: usize = 16;
/// Bytes of memory that are restored together.
const CHUNK: usize = 256;
/// Chunks that one event may write: 16 KiB.
const CHUNKS_MAX: usize = 64;
/// Bytes that memory.copy and memory.fill move for one unit of fuel.
const BULK: u32 = 16;

/// Memory that knows what an event has written.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    /// A bit for each chunk that was written.
    written: Vec<u64>,
    /// Those chunks.
    chunks: Vec<u16>,
}

impl Memory {
    fn touch(&mut self, at: usize) -> Result<(), Trap> {
        let chunk = at / CHUNK;
        let Some(word) = self.written.get_mut(chunk / 64) else {
            return Err(Trap::Memory);
        };
        let bit = 1 << (chunk % 64);
        if *word & bit == 0 {
            if self.chunks.len() == CHUNKS_MAX {
                return Err(Trap::Written);
            }
            *word |= bit;
            self.chunks.push(chunk as u16);
        }
        Ok(())
    }

    /// Bytes that are about to be written.
    fn region(&mut self, at: u64, len: usize) -> Result<&mut [u8], Trap> {
        let at = usize::try_from(at).map_err(|_| Trap::Memory)?;
        let end = at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(Trap::Memory);
        };
        for chunk in (at / CHUNK..end.div_ceil(CHUNK)).map(|c| c * CHUNK) {
            self.touch(chunk)?;
        }
        Ok(&mut self.bytes[at..end])
    }

    fn read(&self, at: usize, len: usize) -> Result<&[u8], Trap> {
        self.bytes
            .get(at..)
            .and_then(|b| b.get(..len))
            .ok_or(Trap::Memory)
    }

    /// Puts everything back that was written.
    fn restore(&mut self, image: &[u8]) {
        for chunk in self.chunks.drain(..).map(usize::from) {
            self.written[chunk / 64] &= !(1 << (chunk % 64));
            let at = chunk * CHUNK;
            let chunk = &mut self.bytes[at..at + CHUNK];
            let begun = image.get(at..).unwrap_or_default();
            let begun = &begun[..begun.len().min(CHUNK)];
            chunk[..begun.len()].copy_from_slice(begun);
            chunk[begun.len()..].fill(0);
        }
    }
}

impl Bytes for Memory {
    #[inline(always)]
    fn load<const N: usize>(&self, at: u64) -> Result<[u8; N], Trap> {
        let bytes = self.bytes.get(at as usize..).and_then(|b| b.first_chunk::<N>());
        bytes.copied().ok_or(Trap::Memory)
    }

    #[inline(always)]
    fn store<const N: usize>(&mut self, at: u64, bytes: [u8; N]) -> Result<(), Trap> {
        let at = at as usize;
        // (Before the bytes change, so that they are put back.)
        self.touch(at)?;
        self.touch(at + N - 1)?;
        let to = self.bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<N>());
        *to.ok_or(Trap::Memory)? = bytes;
        Ok(())
    }
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    frames: Vec<Frame>,
    state: State,
}

/// What code changes.
#[derive(Debug)]
struct State {
    memory: Memory,
    globals: Vec<u64>,
    fuel: u32,
}

impl Machine {
    /// A machine for a module, with its memory as `image` has it.
    pub fn new(module: &Module, image: &[u8]) -> Box<Machine> {
        let mut bytes = vec![0; module.memory];
        bytes[..image.len()].copy_from_slice(image);
        Box::new(Machine {
            frames: vec![[0; SLOTS]; DEPTH],
            state: State {
                memory: Memory {
                    bytes,
                    written: vec![0; module.memory.div_ceil(CHUNK * 64)],
                    chunks: Vec::with_capacity(CHUNKS_MAX),
                },
                globals: module.globals.iter().map(|g| g.value).collect(),
                fuel: 0,
            },
        })
    }

    /// Calls a function that takes and gives nothing. `given`: what is written to memory before it; `answer`: what is read from it
    /// after it, if nothing went wrong. Then memory and globals are as they were.
    pub fn run(
        &mut self,
        (module, image): (&Module, &[u8]),
        function: usize,
        given: &[(u32, &[u8])],
        (answer_at, answer): (u32, &mut [u8]),
    ) -> Result<(), Trap> {
        let done = self.call(module, function, given).and_then(|()| {
            let bytes = self.state.memory.read(answer_at as usize, answer.len())?;
            answer.copy_from_slice(bytes);
            Ok(())
        });
        self.state.memory.restore(image);
        for (now, begun) in self.state.globals.iter_mut().zip(&module.globals) {
            *now = begun.value;
        }
        done
    }

    fn call(&mut self, module: &Module, function: usize, given: &[(u32, &[u8])]) -> Result<(), Trap> {
        for (at, bytes) in given {
            self.state
                .memory
                .region(u64::from(*at), bytes.len())?
                .copy_from_slice(bytes);
        }
        self.state.fuel = FUEL;
        self.state.call(&module.functions, function, &mut self.frames)
    }
}

impl State {
    fn burn(&mut self, units: u32) -> Result<(), Trap> {
        match self.fuel.checked_sub(units) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(Trap::Fuel),
        }
    }

    /// Runs a function in the first of these frames, which has its parameters.
    fn call(&mut self, functions: &[Function], function: usize, frames: &mut [Frame]) -> Result<(), Trap> {
        let Some((frame, deeper)) = frames.split_first_mut() else {
            return Err(Trap::Depth);
        };
        let Some(code) = functions.get(function) else {
            return Err(Trap::Unreachable);
        };
        if let Some(locals) = frame.get_mut(code.signature.params.len()..code.locals) {
            locals.fill(0);
        }
        let constants = SLOTS.saturating_sub(code.constants.len());
        if let Some(last) = frame.get_mut(constants..) {
            last.copy_from_slice(&code.constants);
        }
        let mut pc = 0usize;
        while let Some(op) = code.ops.get(pc) {
            pc += 1;
            self.burn(1)?;
            match *op {
                Op::Unreachable => return Err(Trap::Unreachable),
                Op::Return => return Ok(()),
                Op::Copy { d, a } => frame[usize::from(d)] = frame[usize::from(a)],
                Op::Jump { to } => pc = to as usize,
                Op::JumpIf { a, to } if frame[usize::from(a)] != 0 => pc = to as usize,
                Op::JumpIfNot { a, to } if frame[usize::from(a)] == 0 => pc = to as usize,
                Op::JumpIf { .. } | Op::JumpIfNot { .. } => {}
                Op::Table { a, last, first } => {
                    let index = (frame[usize::from(a)] as u32).min(last.into());
                    let to = code.tables.get((first + index) as usize);
                    pc = to.copied().ok_or(Trap::Unreachable)? as usize;
                }
                Op::Call { base, function } => {
                    let base = usize::from(base);
                    let function = usize::from(function);
                    let signature = functions.get(function).map(|f| &f.signature);
                    let (Some(signature), Some(next)) = (signature, deeper.first_mut()) else {
                        return Err(Trap::Depth);
                    };
                    let params = signature.params.len();
                    if let (Some(to), Some(from)) = (next.get_mut(..params), frame.get(base..base + params)) {
                        to.copy_from_slice(from);
                    }
                    self.call(functions, function, deeper)?;
                    if signature.result.is_some()
                        && let Some(next) = deeper.first()
                    {
                        frame[base] = next[0];
                    }
                }
                Op::Select { d, a, b, c } => {
                    let from = if frame[usize::from(c)] != 0 { a } else { b };
                    frame[usize::from(d)] = frame[usize::from(from)];
                }
                Op::GlobalGet { d, global } => {
                    let value = self.globals.get(usize::from(global));
                    frame[usize::from(d)] = value.copied().ok_or(Trap::Unreachable)?;
                }
                Op::GlobalSet { a, global } => {
                    let value = self.globals.get_mut(usize::from(global));
                    *value.ok_or(Trap::Unreachable)? = frame[usize::from(a)];
                }
                Op::MemoryCopy { d, a, n } => {
                    let n = frame[usize::from(n)] as u32;
                    self.burn(n / BULK)?;
                    let from = frame[usize::from(a)] as u32 as usize;
                    self.memory.read(from, n as usize)?;
                    let to = frame[usize::from(d)];
                    self.memory.region(to, n as usize)?;
                    self.memory
                        .bytes
                        .copy_within(from..from + n as usize, to as usize);
                }
                Op::MemoryFill { d, a, n } => {
                    let n = frame[usize::from(n)] as u32;
                    self.burn(n / BULK)?;
                    let value = frame[usize::from(a)] as u8;
                    self.memory.region(frame[usize::from(d)], n as usize)?.fill(value);
                }
                other => drop(other.carry_out(frame, &mut self.memory)?),
            }
        }
        Err(Trap::Unreachable)
    }
}
