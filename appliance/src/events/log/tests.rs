//! Tests of the event log.

use super::*;

fn note(text: &str) -> Record {
    let owner = Owner::Adapter(text.to_owned());
    Record::now(told(&kinds::ADAPTER_ADDED, text), owner)
}

fn keep(events: usize) -> Keep {
    Keep {
        events,
        ..Keep::default()
    }
}

fn messages(log: &EventLog, after: u64) -> Vec<(u64, String)> {
    let part = log.read(after, u64::MAX, usize::MAX, |_| true).expect("events");
    let all = part.events.iter();
    all.map(|e| (e.revision, e.message.clone())).collect()
}

fn numbers(log: &EventLog) -> Vec<u64> {
    messages(log, 0)
        .into_iter()
        .map(|(revision, _)| revision)
        .collect()
}

#[test]
fn events_are_numbered_read_and_followed_wherever_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    for dir in [None, Some(dir.path())] {
        let log = EventLog::open(dir, Keep::default()).expect("a log");
        for name in ["a", "b"] {
            log.append(note(name));
        }
        log.flush();
        let mut following = log.follow();
        assert_eq!(following.last, 3);
        log.append(note("c"));
        assert_eq!(following.news.try_recv().expect("news").message, "c");
        let texts: Vec<_> = messages(&log, 1).into_iter().map(|(_, m)| m).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert_eq!(messages(&log, 3), [(4, "c".to_owned())]);
        let part = log.read(0, 3, 1, |e| e.message != "a").expect("a part");
        assert_eq!((part.events[0].revision, part.events.len()), (1, 1));
        let part = log.read(1, 3, 9, |e| e.message != "a").expect("a part");
        assert_eq!((part.events[0].revision, part.up_to), (3, 3));
        assert!(
            log.read(4, u64::MAX, 9, |_| true)
                .expect("a part")
                .events
                .is_empty()
        );
        assert_eq!(log.keeps(4, 0), Ok(()));
        assert_eq!(log.keeps(5, 0), Err(NotKept::Ahead(4)));
        log.close();
    }
}

#[test]
fn an_end_in_order_leaves_no_hole_and_another_end_gives_no_number_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
    log.append(note("a"));
    drop(log);
    let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
    assert_eq!(numbers(&log), [1, 2, 3]);
    log.append(note("b"));
    log.flush();
    // A copy of the files as `kill -9` would leave them.
    let copy = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(dir.path()).expect("files") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
    }
    log.append(note("seen by a follower, and never stored"));
    let log = EventLog::open(Some(copy.path()), Keep::default()).expect("a log");
    let all = messages(&log, 0);
    assert_eq!(
        all.iter().map(|(r, _)| *r).take(4).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    let (revision, text) = &all[4];
    assert!(*revision > 5 && text.contains("did not end in order"), "{all:?}");
    assert_eq!(log.keeps(5, 0), Ok(()));
    assert_eq!(messages(&log, 5).len(), 1);
}

#[test]
fn the_oldest_go_by_number_and_by_age() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
    for i in 0..20 {
        log.append(note(&format!("n{i}")));
        log.flush();
    }
    assert_eq!(numbers(&log), [17, 18, 19, 20, 21]);
    assert_eq!(log.keeps(3, 0), Err(NotKept::Gone(17)));
    assert_eq!((log.keeps(16, 0), log.keeps(0, 0)), (Ok(()), Ok(())));
    drop(log);
    let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
    assert_eq!(numbers(&log), [18, 19, 20, 21, 22]);
    let mut old = note("old");
    old.time = SystemTime::now() - Duration::from_secs(40 * 86_400);
    log.append(old);
    log.flush();
    assert_eq!(messages(&log, 22), [(23, "old".to_owned())]);
    for i in 0..5 {
        log.append(note(&format!("m{i}")));
    }
    log.flush();
    log.append(note("last"));
    log.flush();
    assert_eq!(numbers(&log), [25, 26, 27, 28, 29]);
    drop(log);

    let memory = EventLog::open(None, keep(3)).expect("a log");
    for i in 0..5 {
        memory.append(note(&format!("n{i}")));
    }
    assert_eq!(numbers(&memory), [4, 5, 6]);
}

#[test]
fn what_guests_and_strangers_cause_takes_no_room_of_what_operators_did() {
    let caused = |kind, i: usize| {
        let mut record = note(&format!("n{i}"));
        record.kind = kind;
        record
    };
    let dir = tempfile::tempdir().expect("a directory");
    for dir in [None, Some(dir.path())] {
        let log = EventLog::open(dir, keep(5)).expect("a log");
        log.append(caused(&kinds::SETTINGS_CHANGED, 0));
        log.append(caused(&kinds::ACCESS_REFUSED, 0));
        for i in 0..2000 {
            log.append(caused(&kinds::GID_CHANGED, i));
        }
        log.append(caused(&kinds::SETTINGS_CHANGED, 1));
        // An event that was stored at once is pruned with a later batch.
        log.flush();
        log.flush();
        let kept = [1, 2, 3, 1999, 2000, 2001, 2002, 2003, 2004];
        assert_eq!(numbers(&log), kept);
        // `most` limits a part, however small it is.
        let part = log.read(2, 2001, 2, |_| true).expect("a part");
        assert_eq!((part.events.len(), part.up_to), (2, 1999));
        // A follower that continues from a revision before a pruned one gets an error.
        assert_eq!(log.keeps(1998, 0), Ok(()));
        assert_eq!(log.keeps(3, 0), Err(NotKept::Gone(1999)));
        assert_eq!((log.gone(), log.keeps(3, log.gone())), (1998, Ok(())));
        for i in 0..9 {
            log.append(caused(&kinds::ACCESS_REFUSED, i));
        }
        log.flush();
        log.flush();
        let kept = [
            1, 2, 1999, 2000, 2001, 2002, 2003, 2004, 2009, 2010, 2011, 2012, 2013,
        ];
        assert_eq!(numbers(&log), kept);
        log.close();
    }
    let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
    assert_eq!(log.keeps(1997, 0), Err(NotKept::Gone(2009)));
    assert_eq!(messages(&log, 0).len(), 14);
}

#[test]
fn a_guest_takes_no_room_of_another_ones_events() {
    let caused = |owner: &str, i: u64| {
        let mut record = note(owner);
        // Each event has its own key and is recorded one by one.
        (record.kind, record.key) = (&kinds::GID_CHANGED, i);
        record
    };
    let dir = tempfile::tempdir().expect("a directory");
    for dir in [None, Some(dir.path())] {
        let log = EventLog::open(dir, keep(6)).expect("a log");
        for i in 0..2 {
            log.append(caused("quiet", i));
        }
        for i in 0..2000 {
            log.append(caused("loud", i));
        }
        log.append(caused("late", 0));
        log.flush();
        log.flush();
        let of = |name: &str| messages(&log, 0).iter().filter(|(_, text)| text == name).count();
        assert_eq!((of("quiet"), of("loud"), of("late")), (2, 3, 1));
        log.close();
    }
    // The next daemon knows the owners.
    let log = EventLog::open(Some(dir.path()), keep(6)).expect("a log");
    for i in 0..2000 {
        log.append(caused("loud", i));
    }
    log.flush();
    let of = |name: &str| messages(&log, 0).iter().filter(|(_, text)| text == name).count();
    assert_eq!((of("quiet"), of("loud"), of("late")), (2, 3, 1));
}

#[test]
fn a_log_that_cannot_be_read_or_written_keeps_nobody_from_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(FILE), vec![7_u8; 10_000]).expect("garbage");
    let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
    let all = messages(&log, 0);
    assert!(all[0].1.contains("the event log was damaged"), "{all:?}");
    assert!(all[0].1.contains("kept as"), "{all:?}");
    drop(log);
    let kept = std::fs::read_dir(dir.path()).expect("files").flatten();
    let kept = kept.map(|e| e.file_name().to_string_lossy().into_owned());
    assert!(kept.into_iter().any(|n| n.starts_with("events.redb.damaged-")));

    let nowhere = dir.path().join("is/not/there");
    let log = EventLog::open(Some(&nowhere), Keep::default()).expect("a log");
    log.append(note("a"));
    let all = messages(&log, 0);
    assert!(all[0].1.contains("in memory only"), "{all:?}");
    assert_eq!(all.len(), 3);
}

#[test]
fn floods_are_summed_up_in_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
    for _ in 0..5000 {
        log.append(note("same"));
    }
    log.close();
    let part = log.read(1, u64::MAX, usize::MAX, |_| true).expect("events");
    let told = part.events.iter().map(|e| e.suppressed.max(1)).sum::<u64>();
    assert_eq!(told, 5000);
    assert!(part.events.len() < 1000, "{}", part.events.len());
}

#[test]
fn a_boot_is_written_as_the_kernel_does() {
    let kernel = "8b2b3c4d-0123-4567-89ab-cdef01234567";
    assert_eq!(as_kernel("8b2b3c4d0123456789abcdef01234567"), kernel);
    assert_eq!(as_kernel(kernel), kernel);
    assert_eq!(as_kernel(""), "");
}

#[test]
fn a_log_whose_writer_is_gone_goes_on_in_memory_within_its_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = EventLog::open(Some(dir.path()), keep(10)).expect("a log");
    log.append(note("before"));
    log.shared.give_up();
    let mut following = log.follow();
    for n in 0..100 {
        log.append(note(&format!("vf{n}")));
    }
    // Nobody waits for a writer that is not there.
    log.flush();
    assert_eq!(following.news.try_recv().expect("news").message, "vf0");
    let kept = messages(&log, log.gone());
    assert!(kept.len() <= 12, "{kept:?}");
    assert_eq!(kept.last().map(|(_, text)| text.as_str()), Some("vf99"));
    log.close();
}
