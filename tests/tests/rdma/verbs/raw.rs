//! Memory of the program's own, registered where it is. Each test has a process of its own: pages of the heap, which all tests of a
//! process share, become the device's, and one of the tests forks.

#![expect(unsafe_code, reason = "registers memory of the heap")]

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr::NonNull;

use vnic_tests::lab::own_process;

use super::*;

const EPERM: i32 = 1;
const EFAULT: i32 = 14;
const EINVAL: i32 = 22;

/// Bytes of the heap, freed at the end. They are read and written through the address only, as the device writes
/// them, too.
struct Heap {
    start: NonNull<u8>,
    len: usize,
}

impl Heap {
    fn new(data: Vec<u8>) -> Heap {
        let len = data.len();
        let start = NonNull::from(Box::leak(data.into_boxed_slice())).cast();
        Heap { start, len }
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: allocated by `new`; the device does not write while a test looks.
        (0..self.len)
            .map(|i| unsafe { self.start.add(i).read_volatile() })
            .collect()
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: within what `new` allocated, as the tests see to.
        unsafe { self.start.add(offset) }
    }

    fn addr(&self, offset: usize) -> u64 {
        self.at(offset).as_ptr() as u64
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: leaked by `new`.
        drop(unsafe { Box::from_raw(all) });
    }
}

fn register(side: &Side, heap: &Heap, offset: usize, len: usize, access: Access) -> Result<MemoryRegion> {
    // SAFETY: the tests drop regions before the memory.
    Ok(unsafe {
        side.pd
            .register_raw(heap.at(offset), len, heap.addr(offset), access)
    }?)
}

#[test]
fn ordinary_memory_is_written_and_read() -> Result<()> {
    own_process(|| {
        let Pair { rig: _rig, a, b } = pair()?;
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect(&qa, &qb)?;
        for (i, len) in [1, 8, 100, 4096, 10_000, 300_000].into_iter().enumerate() {
            let data = pattern(i as u64, len);
            let from = Heap::new(data.clone());
            let to = Heap::new(vec![0xee; len + 20]);
            let source = register(&a, &from, 0, len, Access::empty())?;
            // Twice: the second time there is nothing to be done.
            for _ in 0..2 {
                let target = register(&b, &to, 10, len, Access::REMOTE_ALL)?;
                qa.post_send(&[SendWr::write(source.slice(..), to.addr(10), target.rkey()).signaled()])?;
                a.done()?;
            }
            let got = to.bytes();
            assert_eq!(got[10..10 + len], data, "WRITE of {len}");
            assert!(got[..10].iter().chain(&got[10 + len..]).all(|b| *b == 0xee));
            // And back, into other memory.
            let target = register(&b, &to, 0, len + 20, Access::REMOTE_READ)?;
            let back = Heap::new(vec![0; len]);
            let sink = register(&a, &back, 0, len, Access::LOCAL_WRITE)?;
            qa.post_send(&[SendWr::read(sink.slice(..), to.addr(10), target.rkey()).signaled()])?;
            a.done()?;
            assert_eq!(back.bytes(), data, "READ of {len}");
        }
        Ok(())
    })
}

#[test]
fn regions_of_ordinary_memory_change() -> Result<()> {
    own_process(|| {
        let Pair { rig: _rig, a, b } = pair()?;
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect(&qa, &qb)?;
        let (one, two) = (Heap::new(vec![1; 5000]), Heap::new(vec![2; 70_000]));
        let mut region = register(&b, &one, 1, 4000, Access::REMOTE_READ)?;
        let read = |addr: u64, rkey: u32| -> Result<u8> {
            qa.post_send(&[SendWr::read(a.region.slice(..1), addr, rkey).signaled()])?;
            a.done()?;
            Ok(a.region.load_u8(0))
        };
        assert_eq!(read(one.addr(1), region.rkey())?, 1);
        let old = region.rkey();
        // SAFETY: both are there until the region is dropped.
        unsafe { region.reregister_raw((two.at(9), 60_000, 0x1000), None, None) }?;
        assert_eq!(region.rkey(), old);
        assert_eq!((region.len(), region.length()), (60_000, 60_000));
        assert_eq!(read(0x1000 + 59_999, region.rkey())?, 2);
        // Into a buffer of the library's, and back; with other rights.
        let buffer = b.context.allocate(4096)?;
        buffer.fill(.., 3);
        region.reregister(Reregister {
            translation: Some((&buffer, 0, 4096, None)),
            ..Reregister::default()
        })?;
        assert_eq!(read(buffer.addr(), region.rkey())?, 3);
        let rights = Some(Access::REMOTE_ALL);
        // SAFETY: as above.
        unsafe { region.reregister_raw((one.at(0), 5000, one.addr(0)), None, rights) }?;
        assert_eq!(read(one.addr(77), region.rkey())?, 1);
        drop(region);
        Ok(())
    })
}

#[test]
fn what_cannot_be_registered_is_refused() -> Result<()> {
    own_process(|| {
        let Pair { rig: _rig, a, .. } = pair()?;
        let heap = Heap::new(vec![0; 10]);
        let errno = |start: NonNull<u8>, len: usize, access: Access| {
            // SAFETY: it is refused.
            let refused = unsafe { a.pd.register_raw(start, len, 0, access) };
            refused.expect_err("refused").errno()
        };
        assert_eq!(errno(heap.at(0), 0, Access::empty()), EINVAL);
        assert_eq!(errno(heap.at(0), usize::MAX, Access::empty()), EINVAL);
        let nowhere = NonNull::<u8>::without_provenance(0x10_000.try_into()?);
        assert_eq!(errno(nowhere, 100, Access::empty()), EFAULT);
        static CONSTANT: [u8; 10] = [7; 10];
        let constant = NonNull::from(&CONSTANT).cast();
        assert_eq!(errno(constant, 10, Access::LOCAL_WRITE), EFAULT);
        // SAFETY: a constant is always there, and nobody may write it.
        let mut region = unsafe { a.pd.register_raw(constant, 10, 0, Access::REMOTE_READ) }?;
        assert_eq!(region.load_u8(9), 7);
        let change = Reregister {
            access: Some(Access::REMOTE_ALL),
            ..Reregister::default()
        };
        assert_eq!(region.reregister(change).expect_err("refused").errno(), EFAULT);
        Ok(())
    })
}

/// The kernel protects no page of a private file mapping: only stopping threads would do.
#[test]
fn threads_are_not_stopped_where_the_environment_forbids_it() -> Result<()> {
    own_process(|| {
        // SAFETY: no other thread of this process looks at the environment now.
        unsafe { std::env::set_var("VNIC_STOP_THREADS", "0") };
        let Pair { rig: _rig, a, .. } = pair()?;
        static CONSTANT: [u8; 10] = [7; 10];
        let constant = NonNull::from(&CONSTANT).cast();
        // SAFETY: a constant is always there, and nobody may write it.
        let refused = unsafe { a.pd.register_raw(constant, 10, 0, Access::REMOTE_READ) };
        let refused = refused.expect_err("refused");
        assert_eq!(refused.errno(), EPERM);
        assert!(
            refused.to_string().contains("unset VNIC_STOP_THREADS"),
            "{refused}"
        );
        Ok(())
    })
}

/// What `ibv_dereg_mr` answers with EBUSY.
#[test]
fn regions_with_windows_are_not_deregistered() -> Result<()> {
    own_process(|| {
        let Pair { rig: _rig, a, b } = pair()?;
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect(&qa, &qb)?;
        let heap = Heap::new(vec![0; 100]);
        let region = register(&b, &heap, 0, 100, Access::REMOTE_ALL | Access::MW_BIND)?;
        let window = b.pd.alloc_mw(MwType::Type1)?;
        qb.post_send(&[window.bind(&region, .., Access::REMOTE_READ).signaled()])?;
        b.done()?;
        let Err(region) = region.deregister() else {
            bail!("a window is bound");
        };
        qa.post_send(&[SendWr::read(a.region.slice(..10), region.addr(), region.rkey()).signaled()])?;
        a.done()?;
        drop(window);
        ensure!(region.deregister().is_ok(), "nothing is bound");
        Ok(())
    })
}

/// A child has copies of the memory, and no device: what it does, and that it ends, does nothing to its parent.
#[test]
fn children_leave_their_parents_alone() -> Result<()> {
    own_process(|| {
        let Pair { rig: _rig, a, b } = pair()?;
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect(&qa, &qb)?;
        let heap = Heap::new(vec![1; 10_000]);
        let start = heap.addr(0) as usize;
        let region = register(&b, &heap, 1000, 8000, Access::REMOTE_ALL)?;
        let (addr, rkey, number) = (region.addr(), region.rkey(), qb.number());
        // Of a child, before it executes another program.
        let in_child = move || {
            for at in start..start + 10_000 {
                // SAFETY: the child's own copy.
                unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(2) };
            }
            Ok(())
        };
        let mut command = Command::new("true");
        // SAFETY: it only writes memory.
        let ended = unsafe { command.pre_exec(in_child) }.status()?;
        ensure!(ended.success(), "{ended}");
        assert_eq!(heap.bytes(), vec![1; 10_000]);
        let mut region = Some(region);
        let mut pd = Some(b.pd.clone());
        let ending = move || {
            let is_gone = pd
                .take()
                .is_some_and(|pd| pd.allocate(1, Access::empty()).is_err_and(|e| e.is_gone()));
            drop(region.take());
            if is_gone {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Other.into())
            }
        };
        let mut command = Command::new("true");
        // SAFETY: no other thread of this test holds a lock of the library's.
        let ended = unsafe { command.pre_exec(ending) }.status()?;
        ensure!(ended.success(), "{ended}");
        a.region.fill(..100, 7);
        qa.post_send(&[SendWr::write(a.region.slice(..100), addr, rkey).signaled()])?;
        a.done()?;
        assert_eq!(heap.bytes()[1000..1100], [7; 100]);
        assert_eq!(qb.number(), number);
        drop(command);
        Ok(())
    })
}
