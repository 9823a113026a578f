//! A transport with a small device behind it, for tests of the driver half: memory in pages of a chosen size
//! that are never neighbours for the device, and answers to the commands that every driver gives.

#![expect(unsafe_code, reason = "the seam's other side, for tests of the driver half")]

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use vnic_device::command::device::capabilities::RATE_LIMIT;
use vnic_device::command::device::{DeviceReply, HelloReply};
use vnic_device::command::{CommandHead, Object, Opcode, ReplyHead};
use vnic_device::config::{ABI_MAJOR, Config, MAGIC};
use vnic_device::event::EventRecord;
use vnic_device::ring::Extent;
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::Error;
use crate::shared::Memory;
use crate::sync::lock;
use crate::transport::{Pinned, SharedPages, Transport, Virtqueue};

pub(crate) struct Fake {
    config: Config,
    page: usize,
    interrupt: OwnedFd,
    memory: Mutex<Vec<(u64, Memory)>>,
    queues: Mutex<Vec<Virtqueue>>,
    /// Buffers taken of each virtqueue.
    taken: Mutex<[u16; 3]>,
    /// Notifications of the wake-up queue so far.
    pub kicks: AtomicUsize,
    /// Commands so far.
    pub commands: Mutex<Vec<Opcode>>,
    /// Whether the device leaves commands unanswered.
    pub deaf: AtomicBool,
    /// Whether the device speaks version 1.0.
    pub old: AtomicBool,
    /// Statuses with which the next commands end; OK when there are none.
    pub statuses: Mutex<VecDeque<(CommandStatus, &'static str)>>,
    handles: AtomicUsize,
    gone: Mutex<Option<String>>,
    /// Whether the device was stopped.
    pub stopped: AtomicBool,
}

impl Fake {
    /// A device with pages of `page` bytes.
    pub fn new(page: usize) -> Fake {
        Fake {
            config: Config {
                magic: MAGIC,
                abi_major: ABI_MAJOR,
                config_len: 20,
                event_queues: 1,
                wake_queues: 1,
                ..Config::default()
            },
            page,
            interrupt: eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"),
            memory: Mutex::default(),
            queues: Mutex::default(),
            taken: Mutex::default(),
            kicks: AtomicUsize::new(0),
            commands: Mutex::default(),
            deaf: AtomicBool::new(false),
            old: AtomicBool::new(false),
            statuses: Mutex::default(),
            handles: AtomicUsize::new(1),
            gone: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    pub fn shared(page: usize) -> Arc<Fake> {
        Arc::new(Fake::new(page))
    }

    /// The memory that the device sees at an address, up to the end of its page.
    pub fn seen(&self, gpa: u64) -> Memory {
        let memory = lock(&self.memory);
        let (at, page) = memory
            .iter()
            .find(|(at, m)| (*at..at + m.len() as u64).contains(&gpa))
            .expect("memory that was given out");
        let offset = (gpa - at) as usize;
        page.part(offset, page.len() - offset)
    }

    pub fn u64(&self, gpa: u64) -> u64 {
        let mut bytes = [0; 8];
        self.seen(gpa).read(0, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn set_u64(&self, gpa: u64, value: u64) {
        self.seen(gpa).write(0, &value.to_le_bytes());
    }

    pub fn set_u16(&self, gpa: u64, value: u16) {
        self.seen(gpa).u16(0).store(value, SeqCst);
    }

    fn u16(&self, gpa: u64) -> u16 {
        self.seen(gpa).u16(0).load(SeqCst)
    }

    fn interrupt_now(&self) {
        rustix::io::write(&self.interrupt, &1u64.to_ne_bytes()).expect("an eventfd takes it");
    }

    /// The daemon ends.
    pub fn hang_up(&self) {
        *lock(&self.gone) = Some("it hung up".into());
        self.interrupt_now();
    }

    /// Raises an event.
    pub fn raise(&self, record: EventRecord) {
        let buffer = self.next_chain(1).expect("a buffer for the event");
        let (head, pieces) = buffer;
        self.seen(pieces[0].0).write(0, record.as_bytes());
        self.give_back(1, head, size_of::<EventRecord>() as u32);
        self.interrupt_now();
    }

    /// Head and pieces (address, bytes, written by the device?) of the next chain of a virtqueue.
    #[allow(clippy::type_complexity)]
    fn next_chain(&self, queue: usize) -> Option<(u16, Vec<(u64, usize, bool)>)> {
        let layout = *lock(&self.queues).get(queue)?;
        let mut taken = lock(&self.taken);
        if self.u16(layout.available + 2) == taken[queue] {
            return None;
        }
        let head = self.u16(layout.available + 4 + 2 * u64::from(taken[queue] % layout.size));
        taken[queue] = taken[queue].wrapping_add(1);
        let mut pieces = Vec::new();
        let mut at = head;
        loop {
            let descriptor = layout.descriptors + 16 * u64::from(at);
            let (gpa, word) = (self.u64(descriptor), self.u64(descriptor + 8));
            pieces.push((gpa, word as u32 as usize, word >> 32 & 2 != 0));
            if word >> 32 & 1 == 0 {
                return Some((head, pieces));
            }
            at = (word >> 48) as u16;
        }
    }

    fn give_back(&self, queue: usize, head: u16, len: u32) {
        let layout = lock(&self.queues)[queue];
        let index = self.u16(layout.used + 2);
        let entry = layout.used + 4 + 8 * u64::from(index % layout.size);
        for (i, half) in [u32::from(head), len].into_iter().enumerate() {
            self.seen(entry + 4 * i as u64).write(0, &half.to_le_bytes());
        }
        self.set_u16(layout.used + 2, index.wrapping_add(1));
    }

    /// Carries out the commands that wait.
    fn serve(&self) {
        while let Some((head, pieces)) = self.next_chain(0) {
            let mut command = Vec::new();
            for (gpa, len, _) in pieces.iter().filter(|p| !p.2) {
                let mut bytes = vec![0; *len];
                self.seen(*gpa).read(0, &mut bytes);
                command.extend(bytes);
            }
            let (request, _) = CommandHead::read_from_prefix(&command).expect("a head");
            assert_eq!(command.len(), size_of::<CommandHead>() + request.len as usize);
            let opcode = Opcode::from_number(request.opcode).expect("a command");
            let (status, body) = self.carry_out(opcode);
            let reply = ReplyHead {
                status: status.number(),
                len: body.len() as u32,
                cookie: request.cookie,
            };
            let mut reply = [reply.as_bytes(), &body].concat();
            let len = reply.len() as u32;
            for (gpa, room, _) in pieces.iter().filter(|p| p.2) {
                let part: Vec<u8> = reply.drain(..reply.len().min(*room)).collect();
                self.seen(*gpa).write(0, &part);
            }
            assert!(reply.is_empty(), "no room for the reply to {opcode:?}");
            self.give_back(0, head, len);
            self.interrupt_now();
        }
    }

    fn carry_out(&self, opcode: Opcode) -> (CommandStatus, Vec<u8>) {
        lock(&self.commands).push(opcode);
        if let Some((status, text)) = lock(&self.statuses).pop_front()
            && status != CommandStatus::Ok
        {
            return (status, text.into());
        }
        let body = match opcode {
            Opcode::Hello => HelloReply::new_zeroed().as_bytes().to_vec(),
            Opcode::QueryDevice => {
                let reply = DeviceReply {
                    max_command_len: 65536,
                    capabilities: RATE_LIMIT,
                    min_qp_rate: 1,
                    max_qp_rate: 7,
                    ..DeviceReply::default()
                };
                if self.old.load(SeqCst) {
                    let first = DeviceReply {
                        capabilities: 0,
                        min_qp_rate: 0,
                        ..reply
                    };
                    first.as_bytes()[..DeviceReply::LEN_1_0].to_vec()
                } else {
                    reply.as_bytes().to_vec()
                }
            }
            Opcode::AllocPd | Opcode::CreateDoorbells | Opcode::CreateCq | Opcode::CreateQp => Object {
                handle: self.handles.fetch_add(1, SeqCst) as u32,
                reserved: 0,
            }
            .as_bytes()
            .to_vec(),
            Opcode::RegisterMr => vnic_device::command::memory::MrReply {
                mr: self.handles.fetch_add(1, SeqCst) as u32,
                ..Default::default()
            }
            .as_bytes()
            .to_vec(),
            _ => Vec::new(),
        };
        (CommandStatus::Ok, body)
    }
}

impl Transport for Fake {
    fn config(&self) -> &Config {
        &self.config
    }

    fn name(&self) -> &str {
        "a fake"
    }

    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error> {
        *lock(&self.queues) = queues.to_vec();
        Ok(())
    }

    fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }

    fn queue_size_max(&self, _virtqueue: u16) -> u16 {
        128
    }

    fn notify(&self, virtqueue: u16) {
        match virtqueue {
            0 if !self.deaf.load(SeqCst) => self.serve(),
            2 => {
                self.kicks.fetch_add(1, SeqCst);
            }
            _ => {}
        }
    }

    fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }

    fn acknowledge(&self) -> Result<(), Error> {
        let _ = rustix::io::read(&self.interrupt, &mut [0u8; 8]);
        Ok(())
    }

    fn gone(&self) -> Option<Error> {
        lock(&self.gone).clone().map(Error::Gone)
    }

    fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        let len = len.next_multiple_of(self.page);
        let memory = crate::shared::tests::memory(len + 4096);
        let skip = memory.addr().wrapping_neg() as usize % 4096;
        let memory = memory.part(skip, len);
        let mut all = lock(&self.memory);
        // Backwards and with gaps: memory that is contiguous here is not contiguous for the device.
        let base = 0x1_0000_0000 * (all.len() as u64 + 1);
        let mut extents = Vec::new();
        for i in 0..len / self.page {
            let gpa = base - ((i * 2 + 2) * self.page) as u64;
            all.push((gpa, memory.part(i * self.page, self.page)));
            extents.push(Extent {
                gpa,
                len: self.page as u64,
            });
        }
        let start = NonNull::new(memory.addr() as *mut u8).expect("not null");
        Ok(SharedPages {
            start,
            len,
            extents,
            owner: Box::new(memory),
        })
    }

    // SAFETY: nothing is ever pinned.
    unsafe fn pin(&self, _start: NonNull<u8>, _len: usize, _write: bool) -> Result<Pinned, Error> {
        Err(Error::Setup("a fake pins nothing".into()))
    }

    fn share(&self, _file: BorrowedFd<'_>, _offset: u64, _len: usize) -> Result<Pinned, Error> {
        Err(Error::Setup("a fake shares nothing".into()))
    }
}
