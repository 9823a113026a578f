//! Instructions after translation: they work on slots of a frame, not on a stack.
//!
//! ```text
//!  frame of a call, 256 slots of 64 bits:
//!  0 parameters │ locals │ values of the stack, by height → … ← constants │ 255
//! ```
//!
//! A slot is a byte, so that no index can be out of range. A value of 32 bits is kept with its upper half zero.

#![expect(
    clippy::cast_lossless,
    reason = "a line of the table is for values of several widths"
)]

use super::module::Type;
use super::{Frame, Trap};

/// Slots of a frame.
pub const SLOTS: usize = 256;

/// What is not arithmetic stands in front of the table, which has a line for each other instruction: its code, its name, types of
/// what it takes and gives, and what it does.
macro_rules! operations {
    (
        binary { $($bcode:literal $bname:ident $bin:ident $bout:ident |$a:ident, $b:ident| $bdoes:expr;)+ }
        unary { $($ucode:literal $uname:ident $uin:ident $uout:ident |$u:ident| $udoes:expr;)+ }
        load { $($lcode:literal $lname:ident $lout:ident $lraw:ident |$l:ident| $ldoes:expr;)+ }
        store { $($scode:literal $sname:ident $sin:ident $sraw:ident;)+ }
    ) => {
        /// An instruction. `d`: the slot of its result.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Op {
            Unreachable,
            Return,
            Copy { d: u8, a: u8 },
            Jump { to: u32 },
            JumpIf { a: u8, to: u32 },
            JumpIfNot { a: u8, to: u32 },
            /// Jumps to the entry of `tables` at `first` plus the value, at most `last`.
            Table { a: u8, last: u16, first: u32 },
            /// Calls a function. Its parameters begin at `base`, and so does its result.
            Call { base: u8, function: u16 },
            /// `a` if `c` is not zero, else `b`.
            Select { d: u8, a: u8, b: u8, c: u8 },
            GlobalGet { d: u8, global: u16 },
            GlobalSet { a: u8, global: u16 },
            MemoryCopy { d: u8, a: u8, n: u8 },
            MemoryFill { d: u8, a: u8, n: u8 },
            $($bname { d: u8, a: u8, b: u8 },)+
            $($uname { d: u8, a: u8 },)+
            $($lname { d: u8, a: u8, offset: u32 },)+
            $($sname { a: u8, b: u8, offset: u32 },)+
        }

        /// Shape of an instruction, by its code in a module.
        pub enum Shape {
            Binary(Type, Type, fn(u8, u8, u8) -> Op),
            Unary(Type, Type, fn(u8, u8) -> Op),
            Load(Type, u32, fn(u8, u8, u32) -> Op),
            Store(Type, u32, fn(u8, u8, u32) -> Op),
        }

        impl Shape {
            /// The shape of a code; `None`: it is none of these.
            pub fn of(code: u8) -> Option<Shape> {
                Some(match code {
                    $($bcode => Shape::Binary(operations!(@type $bin), operations!(@type $bout), |d, a, b| Op::$bname { d, a, b }),)+
                    $($ucode => Shape::Unary(operations!(@type $uin), operations!(@type $uout), |d, a| Op::$uname { d, a }),)+
                    $($lcode => Shape::Load(operations!(@type $lout), size_of::<$lraw>() as u32, |d, a, offset| Op::$lname { d, a, offset }),)+
                    $($scode => Shape::Store(operations!(@type $sin), size_of::<$sraw>() as u32, |a, b, offset| Op::$sname { a, b, offset }),)+
                    _ => return None,
                })
            }
        }

        impl Op {
            /// The slot of the result, if the instruction computes one and nothing else.
            pub fn result(&mut self) -> Option<&mut u8> {
                match self {
                    $(Op::$bname { d, .. } => Some(d),)+
                    $(Op::$uname { d, .. } => Some(d),)+
                    $(Op::$lname { d, .. } => Some(d),)+
                    Op::Copy { d, .. } | Op::GlobalGet { d, .. } | Op::Select { d, .. } => Some(d),
                    _ => None,
                }
            }

            /// Carries out an instruction of the table; false: it is none.
            #[inline(always)]
            pub fn carry_out<M: Bytes>(self, f: &mut Frame, memory: &mut M) -> Result<bool, Trap> {
                match self {
                    $(Op::$bname { d, a, b } => {
                        let ($a, $b) = (f[usize::from(a)] as $bin, f[usize::from(b)] as $bin);
                        f[usize::from(d)] = ($bdoes as $bout).into();
                    })+
                    $(Op::$uname { d, a } => {
                        let $u = f[usize::from(a)] as $uin;
                        f[usize::from(d)] = ($udoes as $uout).into();
                    })+
                    $(Op::$lname { d, a, offset } => {
                        let at = u64::from(f[usize::from(a)] as u32) + u64::from(offset);
                        let $l = $lraw::from_le_bytes(memory.load(at)?);
                        f[usize::from(d)] = ($ldoes as $lout).into();
                    })+
                    $(Op::$sname { a, b, offset } => {
                        let at = u64::from(f[usize::from(a)] as u32) + u64::from(offset);
                        memory.store(at, (f[usize::from(b)] as $sraw).to_le_bytes())?;
                    })+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
    (@type u32) => { Type::I32 };
    (@type u64) => { Type::I64 };
}

/// Memory, as loads and stores see it.
pub trait Bytes {
    fn load<const N: usize>(&self, at: u64) -> Result<[u8; N], Trap>;
    fn store<const N: usize>(&mut self, at: u64, bytes: [u8; N]) -> Result<(), Trap>;
}

/// A quotient; the least number by -1 has none.
fn quotient<T>(divisor_is_zero: bool, quotient: Option<T>) -> Result<T, Trap> {
    match quotient {
        Some(quotient) => Ok(quotient),
        None if divisor_is_zero => Err(Trap::DivisionByZero),
        None => Err(Trap::Overflow),
    }
}

operations! {
    binary {
        0x46 I32Eq u32 u32 |a, b| a == b;
        0x47 I32Ne u32 u32 |a, b| a != b;
        0x48 I32LtS u32 u32 |a, b| (a as i32) < b as i32;
        0x49 I32LtU u32 u32 |a, b| a < b;
        0x4a I32GtS u32 u32 |a, b| a as i32 > b as i32;
        0x4b I32GtU u32 u32 |a, b| a > b;
        0x4c I32LeS u32 u32 |a, b| a as i32 <= b as i32;
        0x4d I32LeU u32 u32 |a, b| a <= b;
        0x4e I32GeS u32 u32 |a, b| a as i32 >= b as i32;
        0x4f I32GeU u32 u32 |a, b| a >= b;
        0x51 I64Eq u64 u32 |a, b| a == b;
        0x52 I64Ne u64 u32 |a, b| a != b;
        0x53 I64LtS u64 u32 |a, b| (a as i64) < b as i64;
        0x54 I64LtU u64 u32 |a, b| a < b;
        0x55 I64GtS u64 u32 |a, b| a as i64 > b as i64;
        0x56 I64GtU u64 u32 |a, b| a > b;
        0x57 I64LeS u64 u32 |a, b| a as i64 <= b as i64;
        0x58 I64LeU u64 u32 |a, b| a <= b;
        0x59 I64GeS u64 u32 |a, b| a as i64 >= b as i64;
        0x5a I64GeU u64 u32 |a, b| a >= b;
        0x6a I32Add u32 u32 |a, b| a.wrapping_add(b);
        0x6b I32Sub u32 u32 |a, b| a.wrapping_sub(b);
        0x6c I32Mul u32 u32 |a, b| a.wrapping_mul(b);
        0x6d I32DivS u32 u32 |a, b| quotient(b == 0, (a as i32).checked_div(b as i32))?;
        0x6e I32DivU u32 u32 |a, b| quotient(true, a.checked_div(b))?;
        0x6f I32RemS u32 u32 |a, b| match b { 0 => return Err(Trap::DivisionByZero), _ => (a as i32).wrapping_rem(b as i32) };
        0x70 I32RemU u32 u32 |a, b| quotient(true, a.checked_rem(b))?;
        0x71 I32And u32 u32 |a, b| a & b;
        0x72 I32Or u32 u32 |a, b| a | b;
        0x73 I32Xor u32 u32 |a, b| a ^ b;
        0x74 I32Shl u32 u32 |a, b| a.wrapping_shl(b);
        0x75 I32ShrS u32 u32 |a, b| (a as i32).wrapping_shr(b);
        0x76 I32ShrU u32 u32 |a, b| a.wrapping_shr(b);
        0x77 I32Rotl u32 u32 |a, b| a.rotate_left(b & 31);
        0x78 I32Rotr u32 u32 |a, b| a.rotate_right(b & 31);
        0x7c I64Add u64 u64 |a, b| a.wrapping_add(b);
        0x7d I64Sub u64 u64 |a, b| a.wrapping_sub(b);
        0x7e I64Mul u64 u64 |a, b| a.wrapping_mul(b);
        0x7f I64DivS u64 u64 |a, b| quotient(b == 0, (a as i64).checked_div(b as i64))?;
        0x80 I64DivU u64 u64 |a, b| quotient(true, a.checked_div(b))?;
        0x81 I64RemS u64 u64 |a, b| match b { 0 => return Err(Trap::DivisionByZero), _ => (a as i64).wrapping_rem(b as i64) };
        0x82 I64RemU u64 u64 |a, b| quotient(true, a.checked_rem(b))?;
        0x83 I64And u64 u64 |a, b| a & b;
        0x84 I64Or u64 u64 |a, b| a | b;
        0x85 I64Xor u64 u64 |a, b| a ^ b;
        0x86 I64Shl u64 u64 |a, b| a.wrapping_shl(b as u32);
        0x87 I64ShrS u64 u64 |a, b| (a as i64).wrapping_shr(b as u32);
        0x88 I64ShrU u64 u64 |a, b| a.wrapping_shr(b as u32);
        0x89 I64Rotl u64 u64 |a, b| a.rotate_left(b as u32 & 63);
        0x8a I64Rotr u64 u64 |a, b| a.rotate_right(b as u32 & 63);
    }
    unary {
        0x45 I32Eqz u32 u32 |a| a == 0;
        0x50 I64Eqz u64 u32 |a| a == 0;
        0x67 I32Clz u32 u32 |a| a.leading_zeros();
        0x68 I32Ctz u32 u32 |a| a.trailing_zeros();
        0x69 I32Popcnt u32 u32 |a| a.count_ones();
        0x79 I64Clz u64 u64 |a| a.leading_zeros();
        0x7a I64Ctz u64 u64 |a| a.trailing_zeros();
        0x7b I64Popcnt u64 u64 |a| a.count_ones();
        0xa7 I32WrapI64 u64 u32 |a| a;
        0xac I64ExtendI32S u32 u64 |a| a as i32;
        0xad I64ExtendI32U u32 u64 |a| a;
        0xc0 I32Extend8S u32 u32 |a| a as i8;
        0xc1 I32Extend16S u32 u32 |a| a as i16;
        0xc2 I64Extend8S u64 u64 |a| a as i8;
        0xc3 I64Extend16S u64 u64 |a| a as i16;
        0xc4 I64Extend32S u64 u64 |a| a as i32;
    }
    load {
        0x28 I32Load u32 u32 |a| a;
        0x29 I64Load u64 u64 |a| a;
        0x2c I32Load8S u32 i8 |a| a;
        0x2d I32Load8U u32 u8 |a| a;
        0x2e I32Load16S u32 i16 |a| a;
        0x2f I32Load16U u32 u16 |a| a;
        0x30 I64Load8S u64 i8 |a| a;
        0x31 I64Load8U u64 u8 |a| a;
        0x32 I64Load16S u64 i16 |a| a;
        0x33 I64Load16U u64 u16 |a| a;
        0x34 I64Load32S u64 i32 |a| a;
        0x35 I64Load32U u64 u32 |a| a;
    }
    store {
        0x36 I32Store u32 u32;
        0x37 I64Store u64 u64;
        0x3a I32Store8 u32 u8;
        0x3b I32Store16 u32 u16;
        0x3c I64Store8 u64 u8;
        0x3d I64Store16 u64 u16;
        0x3e I64Store32 u64 u32;
    }
}
