//! The store: what was answered survives kill -9; damage is told, never taken for values.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use vnic_appliance::store::{self, Batch, OnDamage, Rows, Schema, Store, StoreError};
use vnic_control::v1;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const TABLE: &str = "table";
const NAME: &str = "test.redb";

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).expect("a size")).expect("a size")
    }
}

fn open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(dir, NAME, Schema::new(1), OnDamage::Refuse).map(|(store, _)| store)
}

fn put(key: u64, value: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(TABLE, key.to_be_bytes(), value.to_be_bytes());
    batch
}

#[test]
fn rows_are_there_again_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path()).expect("made");
    for n in [3, 1, 2, 300] {
        store.commit(put(n, n * 10)).expect("written");
    }
    let mut batch = Batch::new();
    batch
        .delete(TABLE, 1_u64.to_be_bytes())
        .delete(TABLE, 300_u64.to_be_bytes());
    store.commit(batch).expect("written");
    store.close();
    assert!(matches!(store.commit(put(9, 9)), Err(StoreError::Closed)));
    let store = open(dir.path()).expect("opened");
    let expected: Rows = [2_u64, 3]
        .map(|n| (n.to_be_bytes().to_vec(), (n * 10).to_be_bytes().to_vec()))
        .into();
    assert_eq!(store.all(TABLE).expect("rows"), expected);
    assert_eq!(
        store.rows(TABLE, &3_u64.to_be_bytes(), 9).expect("rows"),
        expected[1..]
    );
    assert_eq!(store.rows(TABLE, &[], 1).expect("rows"), expected[..1]);
    assert!(store.all("no_such_table").expect("no rows").is_empty());
}

/// Values of schema 1 are numbers; of 2, twice that; of 3, in another table.
fn third() -> Schema {
    Schema {
        number: 3,
        migrations: &[
            |rows| {
                let mut batch = Batch::new();
                for (key, value) in rows(TABLE).map_err(|e| e.to_string())? {
                    let value = u64::from_be_bytes(value.try_into().map_err(|_| "a value has not 8 bytes")?);
                    batch.put(TABLE, key, (value * 2).to_be_bytes());
                }
                Ok(batch)
            },
            |rows| {
                let mut batch = Batch::new();
                for (key, value) in rows(TABLE).map_err(|e| e.to_string())? {
                    batch.delete(TABLE, key.clone()).put("other", key, value);
                }
                Ok(batch)
            },
        ],
    }
}

fn open_as(dir: &Path, schema: Schema) -> Result<Store, StoreError> {
    // What another schema has is no damage: it must not be put aside.
    Store::open(dir, NAME, schema, OnDamage::Reset).map(|(store, _)| store)
}

#[test]
fn a_file_with_an_older_schema_is_brought_up_to_date() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path()).expect("made");
    for n in 0..20 {
        store.commit(put(n, n)).expect("written");
    }
    store.close();
    let store = open_as(dir.path(), third()).expect("brought up to date");
    let expected: Rows = (0..20_u64)
        .map(|n| (n.to_be_bytes().to_vec(), (n * 2).to_be_bytes().to_vec()))
        .collect();
    assert_eq!(store.all("other").expect("rows"), expected);
    assert!(store.all(TABLE).expect("rows").is_empty());
    store.commit(put(99, 1)).expect("it can be written");
    store.close();
    // Once only.
    let store = open_as(dir.path(), third()).expect("opened");
    assert_eq!(store.all("other").expect("rows"), expected);
    store.close();

    // The older version refuses it, says how to go back, and that works.
    let error = open(dir.path()).err().expect("refused");
    assert!(matches!(
        error,
        StoreError::Newer {
            found: 3,
            known: 1,
            ..
        }
    ));
    let (file, kept) = (dir.path().join(NAME), dir.path().join(format!("{NAME}.schema-1")));
    let mark = dir.path().join(format!("{NAME}.mark"));
    let text = error.to_string();
    for path in [&kept, &mark] {
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    std::fs::remove_file(mark).expect("removed");
    std::fs::rename(kept, file).expect("put back");
    let store = open(dir.path()).expect("opened");
    assert_eq!(store.all(TABLE).expect("rows")[7].1, 7_u64.to_be_bytes());
    assert_eq!(store.all(TABLE).expect("rows").len(), 20);
}

#[test]
fn a_file_that_cannot_be_brought_up_to_date_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path()).expect("made");
    let mut batch = put(1, 1);
    batch.put(TABLE, *b"key", *b"no number");
    store.commit(batch).expect("written");
    let rows = store.all(TABLE).expect("rows");
    store.close();

    let error = open_as(dir.path(), third()).err().expect("refused");
    let file = dir.path().join(NAME);
    assert_eq!(
        error.to_string(),
        format!(
            "{} has schema 1, this version of vnicd has 3 and cannot read it: a value has not 8 bytes",
            file.display()
        )
    );
    // The step from 1 to 2 is gone: a later version has forgotten it.
    let forgotten = Schema {
        migrations: &third().migrations[1..],
        ..third()
    };
    let error = open_as(dir.path(), forgotten).err().expect("refused").to_string();
    assert!(
        error.ends_with("the oldest that it can bring up to date is 2; upgrade by a version between"),
        "{error}"
    );
    let store = open(dir.path()).expect("as it was");
    assert_eq!(store.all(TABLE).expect("rows"), rows);
}

#[test]
fn a_daemon_refuses_a_state_that_is_newer_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let newer = Schema::new(store::STATE_SCHEMA.number + 1);
    let state = dir.path().join("state");
    std::fs::create_dir(&state).expect("a directory");
    let (store, _) = Store::open(&state, store::STATE, newer, OnDamage::Refuse).expect("made");
    store.commit(put(1, 1)).expect("written");
    store.close();
    // Not even when it may put damaged files aside.
    for more in [&[][..], &["--reset-damaged-state"]] {
        let mut refused = Daemon::spawn(dir.path(), more);
        assert_eq!(refused.wait().expect("its end").code(), Some(1));
        let log = std::fs::read_to_string(dir.path().join("log")).expect("the log");
        let says = format!(
            "state.redb has schema {}, this version of vnicd knows {}",
            newer.number,
            store::STATE_SCHEMA.number
        );
        assert!(log.contains(&says), "{log}");
        std::fs::remove_file(dir.path().join("log")).expect("removed");
    }
    let (store, _) = Store::open(&state, store::STATE, newer, OnDamage::Refuse).expect("opened");
    assert_eq!(store.all(TABLE).expect("rows").len(), 1);
}

#[test]
fn writers_share_a_commit() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(open(dir.path()).expect("made"));
    let threads: Vec<_> = (0..16_u64)
        .map(|t| {
            let store = store.clone();
            std::thread::spawn(move || {
                for n in 0..50 {
                    store.commit(put(t * 1000 + n, n)).expect("written");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a writer");
    }
    let (batches, commits) = store.written();
    assert_eq!(batches, 16 * 50);
    assert!(commits < batches, "{commits} commits for {batches} batches");
    assert_eq!(store.all(TABLE).expect("rows").len(), 16 * 50);
}

/// A store with a history, as a kill leaves it and as an orderly end leaves it; and what is in it.
fn histories() -> (tempfile::TempDir, Vec<PathBuf>, Rows) {
    let dir = tempfile::tempdir().expect("a directory");
    let (live, killed) = (dir.path().join("orderly"), dir.path().join("killed"));
    for d in [&live, &killed] {
        std::fs::create_dir(d).expect("a directory");
    }
    let store = open(&live).expect("made");
    let mut random = Random(7);
    for n in 0..300 {
        let mut batch = put(random.next() % 100, n);
        batch.delete(TABLE, (random.next() % 100).to_be_bytes());
        store.commit(batch).expect("written");
    }
    let rows = store.all(TABLE).expect("rows");
    for file in [NAME.to_owned(), format!("{NAME}.mark")] {
        std::fs::copy(live.join(&file), killed.join(&file)).expect("copied");
    }
    store.close();
    (dir, vec![live, killed], rows)
}

#[test]
fn damage_is_told_and_never_taken_for_values() {
    let (_dir, histories, rows) = histories();
    let work = tempfile::tempdir().expect("a directory");
    let mut random = Random(42);
    let (mut told, mut harmless) = (0, 0);
    for round in 0..400 {
        let from = &histories[round % histories.len()];
        for file in [NAME.to_owned(), format!("{NAME}.mark")] {
            std::fs::copy(from.join(&file), work.path().join(&file)).expect("copied");
        }
        let file = work.path().join(NAME);
        let mut bytes = std::fs::read(&file).expect("the file");
        // A place that means something: zeros are mostly unused.
        let mut at = match round % 4 {
            0 => random.below(320),
            _ => random.below(bytes.len()),
        };
        while at + 1 < bytes.len() && bytes[at] == 0 {
            at += 1;
        }
        let how = random.below(6);
        match how {
            0 => bytes.truncate(at),
            1 => bytes.truncate(0),
            2 => bytes[at] ^= 1 << random.below(8),
            3 => {
                let end = bytes.len().min(at + 4096);
                bytes[at..end].fill(0);
            }
            4 => bytes[at] = u8::try_from(random.below(256)).expect("a byte"),
            _ => {
                let end = bytes.len().min(at + 64);
                for byte in &mut bytes[at..end] {
                    *byte = u8::try_from(random.below(256)).expect("a byte");
                }
            }
        }
        std::fs::write(&file, &bytes).expect("damaged");
        match open(work.path()) {
            Err(StoreError::Damaged { problem, .. }) => {
                assert!(!problem.is_empty());
                told += 1;
            }
            Err(other) => panic!("round {round}, kind {how} at {at}: {other}"),
            Ok(store) => {
                assert_eq!(
                    store.all(TABLE).expect("rows"),
                    rows,
                    "round {round}, kind {how} at {at}"
                );
                harmless += 1;
            }
        }
    }
    eprintln!("{told} damages told, {harmless} without effect");
    assert!(told > 100 && harmless > 0);
}

#[test]
fn a_store_that_is_behind_its_mark_is_damaged() {
    let (_dir, histories, rows) = histories();
    let dir = &histories[0];
    let file = dir.join(NAME);
    // An older state of the file, all right in itself.
    let old = std::fs::read(&file).expect("the file");
    let store = open(dir).expect("opened");
    store.commit(put(1000, 1)).expect("written");
    store.close();
    std::fs::write(&file, &old).expect("put back");
    let error = open(dir).err().expect("behind").to_string();
    assert!(
        error.contains("was answered") && error.contains("--reset-damaged-state"),
        "{error}"
    );
    // Gone, or empty, is damaged, too.
    std::fs::remove_file(&file).expect("removed");
    assert!(matches!(open(dir), Err(StoreError::Damaged { .. })));
    std::fs::write(&file, []).expect("emptied");
    assert!(matches!(open(dir), Err(StoreError::Damaged { .. })));
    // A backup is taken when it comes without the mark, as the error says.
    std::fs::write(&file, &old).expect("put back");
    std::fs::remove_file(dir.join(format!("{NAME}.mark"))).expect("removed");
    let store = open(dir).expect("taken");
    assert_eq!(store.all(TABLE).expect("rows"), rows);
    store.close();
    // A reset keeps what there was.
    std::fs::write(&file, "not a database").expect("damaged");
    let (store, reset) = Store::open(dir, NAME, Schema::new(1), OnDamage::Reset).expect("begun anew");
    let kept = reset.expect("a reset").kept.expect("kept");
    assert_eq!(std::fs::read(kept).expect("the old one"), b"not a database");
    assert!(store.all(TABLE).expect("rows").is_empty());
}

/// A daemon in a process of its own, killed when the test ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ADAPTERS: usize = 8;

impl Daemon {
    fn spawn(dir: &Path, more: &[&str]) -> Child {
        // Into a file: nobody reads it while the test writes.
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.join("log"))
            .expect("a log");
        Command::new(env!("CARGO_BIN_EXE_vnicd"))
            .args(["--socket-dir", dir.to_str().expect("a path"), "--metrics", "off"])
            .args(["--adapters", &ADAPTERS.to_string()])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("vnicd")
    }

    fn start(dir: &Path, more: &[&str]) -> Daemon {
        let mut child = Daemon::spawn(dir, more);
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output"))
            .read_line(&mut line)
            .expect("a line");
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(line.contains("ready"), "{line}{}", log());
        Daemon(child)
    }
}

async fn connect(dir: &Path) -> Channel {
    Endpoint::from_shared(format!("unix:{}", dir.join("control.sock").display()))
        .expect("an address")
        .timeout(Duration::from_secs(120))
        .connect()
        .await
        .expect("a connection")
}

const KEYS: [&str; 2] = ["RfdReservationFactor", "TxMaxPostSendsCoalescing"];

/// What a client's last transactions were: the last that was answered, and the one under way.
#[derive(Default, Clone)]
struct Written {
    answered: Option<(u64, u64)>,
    under_way: Option<u64>,
}

fn values(n: u64) -> [String; 2] {
    [(n % 5_000_000 + 1).to_string(), (n % 32 + 1).to_string()]
}

async fn write(channel: Channel, adapter: usize, mut n: u64, answered: Arc<AtomicU64>) -> Written {
    let mut client = RegistryServiceClient::new(channel);
    let mut written = Written::default();
    loop {
        n += 1;
        written.under_way = Some(n);
        // Both keys, or none.
        let operations = KEYS
            .iter()
            .zip(values(n))
            .map(|(key, value)| v1::RegistryOperation {
                scope: format!("adapters/vf{adapter}"),
                key: (*key).to_owned(),
                action: Some(v1::registry_operation::Action::Set(value)),
                if_match: None,
            });
        let request = v1::ApplyTransactionRequest {
            operations: operations.collect(),
            validate_only: false,
        };
        match client.apply_transaction(request).await {
            Ok(done) => {
                written.answered = Some((n, done.into_inner().revision));
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => return written,
        }
    }
}

/// Several clients write; the daemon is killed at a seeded point, five times; nothing answered is lost, and no
/// transaction is there by half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = Random(20);
    let mut total = 0;
    let mut spent = Duration::ZERO;
    for round in 0..5_u64 {
        let daemon = Daemon::start(dir.path(), &[]);
        let answered = Arc::new(AtomicU64::new(0));
        let point = 2000 + random.next() % 100;
        let began = Instant::now();
        let mut clients = Vec::new();
        for adapter in 0..ADAPTERS {
            let channel = connect(dir.path()).await;
            clients.push(tokio::spawn(write(
                channel,
                adapter,
                round * 100_000,
                answered.clone(),
            )));
        }
        while answered.load(Ordering::Relaxed) < point {
            assert!(
                !clients.iter().all(tokio::task::JoinHandle::is_finished),
                "all writes fail"
            );
            // The daemon needs the CPU more than this loop.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        spent += began.elapsed();
        // SIGKILL.
        drop(daemon);
        let mut all = Vec::new();
        for client in clients {
            all.push(client.await.expect("a client"));
        }
        total += answered.load(Ordering::Relaxed);
        let daemon = Daemon::start(dir.path(), &[]);
        let mut client = RegistryServiceClient::new(connect(dir.path()).await);
        for (adapter, written) in all.iter().enumerate() {
            let mut found = Vec::new();
            for key in KEYS {
                let request = v1::GetEntryRequest {
                    scope: format!("adapters/vf{adapter}"),
                    key: key.to_owned(),
                };
                found.push(client.get_entry(request).await.expect("an entry").into_inner());
            }
            let (last, revision) = written.answered.expect("each client writes");
            assert_eq!(found[0].etag, found[1].etag, "half a transaction");
            let stored = [0, 1].map(|i: usize| found[i].stored.clone().expect("stored"));
            let etag: u64 = found[0].etag.parse().expect("a number");
            if etag == revision {
                assert_eq!(stored, values(last), "vf{adapter}");
            } else {
                // The one that was under way was written, and its answer did not come through.
                assert!(etag > revision, "vf{adapter}: {etag} after {revision}");
                assert_eq!(
                    stored,
                    values(written.under_way.expect("under way")),
                    "vf{adapter}"
                );
            }
        }
        drop(daemon);
    }
    assert!(total >= 10_000);
    let rate = total * 1000 / u64::try_from(spent.as_millis()).unwrap_or(1).max(1);
    eprintln!("{total} transactions answered, {rate} a second with {ADAPTERS} clients");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_with_a_damaged_store_starts_only_when_told_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let set = |value: &str| v1::SetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: KEYS[0].to_owned(),
        value: value.to_owned(),
        if_match: Some("0".to_owned()),
    };
    let daemon = Daemon::start(dir.path(), &[]);
    let mut client = RegistryServiceClient::new(connect(dir.path()).await);
    client.set_entry(set("77")).await.expect("set");
    drop(daemon);
    let file = dir.path().join("state/state.redb");
    let bytes = std::fs::read(&file).expect("the store");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("cut");

    let mut refused = Daemon::spawn(dir.path(), &[]);
    assert_eq!(refused.wait().expect("its end").code(), Some(1));
    let log = std::fs::read_to_string(dir.path().join("log")).expect("the log");
    assert!(
        log.contains("is damaged") && log.contains("--reset-damaged-state"),
        "{log}"
    );
    assert_eq!(
        std::fs::read(&file).expect("the store").len(),
        bytes.len() / 2,
        "untouched"
    );

    let _daemon = Daemon::start(dir.path(), &["--reset-damaged-state"]);
    let mut client = RegistryServiceClient::new(connect(dir.path()).await);
    client.set_entry(set("78")).await.expect("nothing is stored");
    assert_eq!(
        client.set_entry(set("79")).await.expect_err("it is").code(),
        Code::Aborted
    );
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    for entry in std::fs::read_dir(dir.path().join("state")).expect("the directory") {
        let entry = entry.expect("a file");
        let length = entry.metadata().expect("its length").len();
        names.insert(entry.file_name().to_string_lossy().into_owned(), length);
    }
    let kept = names.iter().find(|(name, _)| {
        name.starts_with("state.redb.damaged-") && Path::new(name).extension().is_none_or(|e| e != "mark")
    });
    assert_eq!(
        kept.map(|(_, length)| *length),
        u64::try_from(bytes.len() / 2).ok(),
        "{names:?}"
    );
    let mut events = v1::event_service_client::EventServiceClient::new(connect(dir.path()).await);
    let list = events.list_events(v1::ListEventsRequest::default()).await;
    let all = list.expect("events").into_inner().events;
    assert!(
        all.iter()
            .any(|e| e.kind == "state_reset" && e.message.contains("damaged-")),
        "{all:?}"
    );
}
