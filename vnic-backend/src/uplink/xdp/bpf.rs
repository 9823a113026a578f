//! The program of an XDP port, and its load into the kernel (bpf(2)): five instructions that hand each frame to the socket of
//! its receive queue.

#![expect(unsafe_code, reason = "bpf(2), for which no safe crate has a name")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Constants of `linux/bpf.h`.
const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// The program accepts frames in several pieces (Linux 5.18).
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// Number of the helper function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Verdict of a program: the kernel's network stack gets the frame.
const XDP_PASS: i32 = 2;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: u8 = 16;
/// Source register of `bpf_ldimm64`: its immediate is the descriptor of a map.
const BPF_PSEUDO_MAP_FD: u8 = 1;

/// Place where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made an `sk_buff` (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// Before the network stack, with every driver (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// Executes a command of bpf(2) with its attributes, which the kernel may read.
fn bpf<T>(command: u32, attributes: &T) -> io::Result<RawFd> {
    let at: *const T = attributes;
    // SAFETY: the attributes are readable for the time of the call; each caller fills those of its command, and what
    // they point to outlives the call.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer as RawFd)
    }
}

/// Executes a command of bpf(2) that returns a descriptor.
fn make<T>(command: u32, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just made the descriptor (close-on-exec); it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the map from receive queues to sockets.
pub fn map(queues: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    make(
        BPF_MAP_CREATE,
        &Attributes {
            map_type: BPF_MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues,
        },
    )
}

/// Gives frames of `queue` to `socket`.
pub fn serve(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: i32,
        padding: u32,
        key: *const u32,
        value: *const i32,
        flags: u64,
    }
    let socket = socket.as_raw_fd();
    let attributes = Attributes {
        map: map.as_raw_fd(),
        padding: 0,
        key: &raw const queue,
        value: &raw const socket,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
}

/// Loads the program for this map. Frames without a socket go to the kernel's network stack.
pub fn program(map: BorrowedFd<'_>, pieces: bool) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: *const [u8; 8],
        license: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    let code = instructions(map.as_raw_fd());
    let attributes = Attributes {
        kind: BPF_PROG_TYPE_XDP,
        count: code.len() as u32,
        instructions: code.as_ptr(),
        // No helper function that it calls requires the GPL.
        license: c"Apache-2.0".as_ptr(),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: if pieces { BPF_F_XDP_HAS_FRAGS } else { 0 },
        name: *b"vnic_port\0\0\0\0\0\0\0",
    };
    make(BPF_PROG_LOAD, &attributes)
}

/// Code of `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS);`, as `linux/bpf_common.h` encodes it.
fn instructions(map: RawFd) -> [[u8; 8]; 6] {
    let one = |code: u8, registers: u8, offset: u8, immediate: i32| {
        let [a, b, c, d] = immediate.to_ne_bytes();
        let [low, high] = u16::from(offset).to_ne_bytes();
        [code, registers, low, high, a, b, c, d]
    };
    // The target register is in the lower half.
    let registers = |to: u8, from: u8| from << 4 | to;
    [
        // r2 = *(u32 *)(r1 + offset)
        one(0x61, registers(2, 1), RX_QUEUE_INDEX, 0),
        // r1 = map, in two halves
        one(0x18, registers(1, BPF_PSEUDO_MAP_FD), 0, map),
        one(0, 0, 0, 0),
        // r3 = verdict without a socket
        one(0xb7, registers(3, 0), 0, XDP_PASS),
        // call, exit
        one(0x85, 0, 0, REDIRECT_MAP),
        one(0x95, 0, 0, 0),
    ]
}

/// Runs the program for frames of this device until the returned link is closed, however its owner ends.
pub fn attach(program: BorrowedFd<'_>, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: i32,
        interface: u32,
        kind: u32,
        flags: u32,
        rest: [u64; 4],
    }
    make(
        BPF_LINK_CREATE,
        &Attributes {
            program: program.as_raw_fd(),
            interface,
            kind: BPF_XDP,
            flags: match mode {
                Mode::Generic => 1 << 1,
                Mode::Native => 1 << 2,
            },
            rest: [0; 4],
        },
    )
}
