//! Commands of an RDMA function: what is in them, and how they are cut into descriptors. Each is answered as the contract
//! says, and nothing is left of them after a RESET.

use std::cell::RefCell;

use arbitrary::{Result, Unstructured};
use vnic_device::command::device::Hello;
use vnic_device::command::{CommandHead, Opcode, ReplyHead};
use vnic_device::ring::Extent;
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::rdma::spec::shape;
use vnic_tests::driver::rdma::{Driver, HEAP_AT, Options, Pieces, World};

/// Commands of an input, at most.
const COMMANDS: usize = 48;
const MEMORY: u64 = 1 << 20;

struct Stage {
    world: World,
    driver: Driver,
}

fn extent(u: &mut Unstructured<'_>) -> Result<Extent> {
    Ok(if u.ratio(1, 8)? {
        Extent {
            gpa: u.arbitrary()?,
            len: u.arbitrary()?,
        }
    } else {
        Extent {
            gpa: HEAP_AT + 64 * u.int_in_range(0..=MEMORY / 64 + 1)?,
            len: match u.int_in_range(0..=3)? {
                0 => 4096 * u.int_in_range(0..=16)?,
                1 => u.int_in_range(0..=64)?,
                2 => 64 + 8 * (1 << u.int_in_range(4..=13)?),
                _ => 64 + 64 * (1 << u.int_in_range(0..=11)?),
            },
        }
    })
}

fn words(u: &mut Unstructured<'_>, handles: &[u32]) -> Result<u32> {
    Ok(match u.int_in_range(0..=7)? {
        0..=2 if !handles.is_empty() => *u.choose(handles)?,
        3 => 1 << u.int_in_range(0..=31)?,
        4 => u32::MAX - u.int_in_range(0..=2)?,
        5 => u.arbitrary()?,
        _ => u.int_in_range(0..=40)?,
    })
}

/// Lengths of descriptors, at least so many bytes: a ring has 128.
fn lengths(u: &mut Unstructured<'_>, least: u32) -> Result<Vec<u32>> {
    if !u.ratio(1, 8)? {
        return Ok(Vec::new());
    }
    (0..u.int_in_range(1..=3)?)
        .map(|_| u.int_in_range(least..=8 * least))
        .collect()
}

impl Stage {
    fn new() -> Stage {
        let world = World::new(1, &["a"]).expect("a NIC");
        let options = Options {
            memory: MEMORY,
            ..Options::default()
        };
        let driver = Driver::start(world.socket("a"), options).expect("a driver");
        Stage { world, driver }
    }

    fn command(&mut self, u: &mut Unstructured<'_>, handles: &mut Vec<u32>) -> Result<()> {
        let opcode = *u.choose(&Opcode::ALL)?;
        let (len, listed) = shape(opcode);
        let mut behind = Vec::new();
        while behind.len() < len {
            behind.extend_from_slice(&words(u, handles)?.to_le_bytes());
        }
        behind.truncate(len);
        let extents = if listed {
            let count = u.int_in_range(0..=4)?;
            (0..count).map(|_| extent(u)).collect::<Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        if listed && !u.ratio(1, 8)? {
            // The announcement of the list ends the body.
            behind[len - 8..].copy_from_slice(&(extents.len() as u64).to_le_bytes());
        }
        behind.extend_from_slice(extents.as_bytes());
        let mut head: CommandHead = self.driver.head(opcode, len, behind.len() - len);
        match u.int_in_range(0..=31)? {
            0 => head.opcode = u.arbitrary()?,
            1 => head.body_len = u.arbitrary()?,
            2 => head.len = u.arbitrary()?,
            3 => behind.truncate(u.int_in_range(0..=behind.len())?),
            _ => {}
        }
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(&behind);
        if u.ratio(1, 32)? {
            bytes.truncate(u.int_in_range(1..=bytes.len())?);
        }
        self.driver.pieces = Pieces {
            readable: lengths(u, 8)?,
            writable: lengths(u, 64)?,
            indirect: false,
        };
        let room = if u.ratio(1, 16)? {
            u.int_in_range(0..=64)?
        } else {
            size_of::<ReplyHead>() + 4096
        };
        let (used, out) = self.driver.raw(&bytes, room);
        assert!(used as usize <= room, "{used} bytes in {room}");
        let Ok((reply, rest)) = ReplyHead::read_from_prefix(&out) else {
            return Ok(());
        };
        if used == 0 {
            return Ok(());
        }
        assert_eq!(used as usize, size_of::<ReplyHead>() + reply.len as usize);
        if bytes.len() >= size_of::<CommandHead>() {
            assert_eq!(reply.cookie, head.cookie, "{head:?} {reply:?}");
        }
        if reply.status == CommandStatus::Ok.number() && reply.len >= 4 {
            let made = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
            if handles.len() < 64 {
                handles.push(made);
            }
        }
        Ok(())
    }

    fn input(&mut self, bytes: &[u8]) {
        let mut u = Unstructured::new(bytes);
        let mut handles = Vec::new();
        for _ in 0..COMMANDS {
            if u.is_empty() || self.command(&mut u, &mut handles).is_err() {
                break;
            }
        }
        self.driver.pieces = Pieces::default();
        // (An input may have said RESET, which ends the agreement of HELLO.)
        let hello = Hello {
            abi_major: 1,
            minor_max: 3,
            ..Hello::default()
        };
        self.driver.command(Opcode::Hello, hello.as_bytes(), &[]);
        let reset = self.driver.status(Opcode::Reset, &[0_u8; 0], &[]);
        assert_eq!(reset, CommandStatus::Ok);
        assert_eq!(self.world.objects("a"), [], "objects are left after a RESET");
        assert_eq!(self.world.rig.core_counter("panics"), 0);
        self.driver.hello();
    }
}

/// See the module.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }
    STAGE.with_borrow_mut(|stage| stage.get_or_insert_with(Stage::new).input(bytes));
}
