//! Children.

#![expect(unsafe_code, reason = "its tests fork")]

use super::*;

#[test]
fn children_have_memory_of_their_own() {
    forks!();
    let (arenas, _) = device();
    let memory = Private::new(6 * page());
    let all = memory.start..memory.start + memory.len;
    for at in all.clone().step_by(8) {
        word(at).store(at as u64, Relaxed);
    }
    // Three whole pages, and parts of two; the last page was registered before.
    let (start, len) = (memory.start + 800, 4 * page());
    drop(pin(&arenas, memory.start + 5 * page(), 8, true).expect("adopted"));
    let pinned = pin(&arenas, start, len, true).expect("adopted");
    let given = arenas.allocate(page()).expect("memory");
    let given = given.start.as_ptr().expose_provenance();
    word(given).store(1, Relaxed);
    let code = in_child(|| {
        if all
            .clone()
            .step_by(8)
            .any(|at| word(at).load(Relaxed) != at as u64)
        {
            return 1;
        }
        for at in all.clone().step_by(8) {
            word(at).store(1, Relaxed);
        }
        word(given).store(2, Relaxed);
        i32::from(all.clone().step_by(8).any(|at| word(at).load(Relaxed) != 1))
    });
    assert_eq!(code, 0);
    assert_eq!(word(given).load(Relaxed), 1);
    for at in all.clone().step_by(8) {
        assert_eq!(word(at).load(Relaxed), at as u64);
    }
    // It is still registered.
    word(start).store(7, Relaxed);
    assert_eq!(word(pinned.extents[0].gpa as usize).load(Relaxed), 7);
}

/// What the parent writes after the fork is not seen in copies.
#[test]
fn parents_go_on_without_their_children() {
    forks!();
    let (arenas, _) = device();
    let memory = Private::new(2 * page());
    let pinned = pin(&arenas, memory.start + 8, page(), true).expect("adopted");
    let (mut read, mut write) = std::io::pipe().expect("a pipe");
    // SAFETY: the child reads and writes memory that is there, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = std::io::Read::read(&mut read, &mut [0]);
        let seen = [memory.start, memory.start + page()].map(|at| word(at).load(Relaxed));
        // Nothing of the parent's device is given back by a child.
        drop((pinned, arenas));
        // SAFETY: nothing of this process may run any more.
        unsafe { libc::_exit(i32::from(seen != [0, 0])) }
    }
    for at in [memory.start, memory.start + page()] {
        word(at).store(3, Relaxed);
    }
    std::io::Write::write_all(&mut write, &[1]).expect("written");
    let mut status = 0;
    // SAFETY: room for the answer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(word(pinned.extents[0].gpa as usize - 8).load(Relaxed), 3);
}

/// The stack on which is forked may have been registered before.
#[test]
fn a_stack_that_was_registered_is_forked_on() {
    forks!();
    let (arenas, _) = device();
    std::thread::spawn(move || {
        let mut local = [5u64; 4096];
        let at = local.as_mut_ptr().expose_provenance();
        // Around here, as a function that is called would have it.
        drop(pin(&arenas, at - 8 * page(), size_of_val(&local) + 8 * page(), true).expect("adopted"));
        for i in 0..20 {
            let code = in_child(|| {
                local[7] = 1 + i;
                std::hint::black_box(&mut local);
                i32::from(local[7] != 1 + i)
            });
            assert_eq!((code, local[7]), (0, 5));
        }
    })
    .join()
    .expect("it ends");
}

/// A child may register its memory with devices of its own.
#[test]
fn children_adopt_on_their_own() {
    forks!();
    let (arenas, _) = device();
    let memory = Private::new(2 * page());
    word(memory.start).store(1, Relaxed);
    let mine = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    let code = in_child(|| {
        let (arenas, _) = device();
        let Ok(theirs) = pin(&arenas, memory.start, memory.len, true) else {
            return 1;
        };
        let there = word(theirs.extents[0].gpa as usize);
        if there.load(Relaxed) != 1 {
            return 2;
        }
        there.store(2, Relaxed);
        i32::from(word(memory.start).load(Relaxed) != 2)
    });
    assert_eq!(code, 0);
    assert_eq!(word(mine.extents[0].gpa as usize).load(Relaxed), 1);
}
