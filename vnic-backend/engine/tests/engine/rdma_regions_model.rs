//! Regions and windows against an oracle that knows every byte by itself: it keeps a list of byte addresses for each
//! object, and looks at one byte after another.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use vnic_engine::rdma::region::Regions;
use vnic_engine::rdma::{
    Access, Limits, MemoryWalk, MrHandle, MwBind, MwHandle, MwType, Object, PdHandle, QpNumber, Registration,
    Reregister, Sge, Span, SpanList, Status, VerbsError,
};
use vnic_wire::aeth::NakCode;

const MAX_MR: u32 = 12;
const MAX_MW: u32 = 8;
const MAX_SIZE: u64 = 60;

fn limits() -> Limits {
    Limits {
        max_mr: MAX_MR,
        max_mw: MAX_MW,
        max_mr_size: MAX_SIZE,
        ..Limits::default()
    }
}

/// A region as the oracle sees it.
struct OracleRegion {
    mr: MrHandle,
    key: u32,
    pd: PdHandle,
    access: Access,
    base: u64,
    /// Where each of its bytes is.
    bytes: Vec<u64>,
    valid: bool,
    /// Memory of it went away.
    lost: bool,
    alive: bool,
}

/// A window as the oracle sees it.
struct OracleWindow {
    mw: MwHandle,
    key: u32,
    pd: PdHandle,
    kind: MwType,
    shown: Option<Shown>,
    alive: bool,
}

#[derive(Clone)]
struct Shown {
    region: usize,
    base: u64,
    /// Where each of its bytes is.
    bytes: Vec<u64>,
    access: Access,
    qp: QpNumber,
}

impl OracleRegion {
    /// Where the byte at an address is.
    fn byte(&self, addr: u64) -> Option<u64> {
        let nth = addr.checked_sub(self.base)?;
        self.bytes.get(usize::try_from(nth).ok()?).copied()
    }
}

impl Shown {
    fn byte(&self, addr: u64) -> Option<u64> {
        let nth = addr.checked_sub(self.base)?;
        self.bytes.get(usize::try_from(nth).ok()?).copied()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Register(PdHandle, u64, Access, Vec<Span>),
    Reregister(Index, Option<(u64, Vec<Span>)>, Option<PdHandle>, Option<Access>),
    Deregister(Index),
    /// These addresses go away.
    Lose(u64, u64),
    Alloc(PdHandle, MwType),
    Dealloc(Index),
    Bind {
        pd: PdHandle,
        qp: QpNumber,
        window: Index,
        region: Index,
        variant: u8,
        foreign_key: bool,
        from: i64,
        len: u64,
        access: Access,
    },
    InvalidateLocal(PdHandle, QpNumber, Key),
    InvalidateRemote(PdHandle, QpNumber, Key),
    Local(PdHandle, Vec<(Key, i64, u32)>, u64, u64, bool),
    Remote(PdHandle, QpNumber, Key, i64, u64, Access),
}

/// A key: one of those that were ever given, perhaps with something wrong about it.
#[derive(Debug, Clone)]
struct Key {
    which: Index,
    wrong: u32,
}

fn pd() -> impl Strategy<Value = PdHandle> {
    // Mostly the same, so that most operations fit together.
    prop_oneof![5 => Just(PdHandle(0)), 1 => Just(PdHandle(1))]
}

fn qp() -> impl Strategy<Value = QpNumber> {
    prop_oneof![4 => Just(QpNumber(2)), 1 => Just(QpNumber(3))]
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        4 => Just(Access::all() - Access::ZERO_BASED),
        1 => Just(Access::all()),
        2 => Just(Access::REMOTE_READ | Access::MW_BIND | Access::INVALIDATE),
        4 => (0..=Access::all().bits()).prop_map(Access::from_bits_truncate),
    ]
}

fn need() -> impl Strategy<Value = Access> {
    select(vec![
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
    ])
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    // Small numbers: spans touch, overlap and continue each other.
    let at = prop_oneof![12 => 0u64..64, 1 => u64::MAX - 20..=u64::MAX];
    let span = (at, 0u64..16).prop_map(|(at, len)| Span { at, len });
    vec(span, 0..7)
}

fn iova() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..64, 1 => u64::MAX - 40..=u64::MAX]
}

fn key() -> impl Strategy<Value = Key> {
    let wrong = prop_oneof![12 => Just(0u32), 1 => (0u32..32).prop_map(|bit| 1 << bit)];
    (any::<Index>(), wrong).prop_map(|(which, wrong)| Key { which, wrong })
}

fn from() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0i64..40, 1 => -10i64..0, 1 => any::<i64>()]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..24, 1 => any::<u64>()]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (pd(), iova(), access(), spans()).prop_map(|(p, i, a, s)| Op::Register(p, i, a, s)),
        1 => (
            any::<Index>(),
            proptest::option::of((iova(), spans())),
            proptest::option::of(pd()),
            proptest::option::of(access()),
        )
            .prop_map(|(i, t, p, a)| Op::Reregister(i, t, p, a)),
        1 => any::<Index>().prop_map(Op::Deregister),
        1 => (0u64..64, 0u64..4).prop_map(|(at, len)| Op::Lose(at, len)),
        2 => (pd(), select(vec![MwType::Type1, MwType::Type2])).prop_map(|(p, k)| Op::Alloc(p, k)),
        1 => any::<Index>().prop_map(Op::Dealloc),
        4 => (
            (pd(), qp(), any::<Index>(), any::<Index>(), any::<u8>()),
            (prop::bool::weighted(0.1), from(), len(), access()),
        )
            .prop_map(|((pd, qp, window, region, variant), (foreign_key, from, len, access))| Op::Bind {
                pd, qp, window, region, variant, foreign_key, from, len, access,
            }),
        1 => (pd(), qp(), key()).prop_map(|(p, q, k)| Op::InvalidateLocal(p, q, k)),
        1 => (pd(), qp(), key()).prop_map(|(p, q, k)| Op::InvalidateRemote(p, q, k)),
        6 => (pd(), vec((key(), from(), 0u32..24), 0..5), 0u64..40, len(), any::<bool>())
            .prop_map(|(p, s, o, l, w)| Op::Local(p, s, o, l, w)),
        8 => (pd(), qp(), key(), from(), len(), need()).prop_map(|(p, q, k, f, l, n)| Op::Remote(p, q, k, f, l, n)),
    ]
}

/// Addresses of all bytes of a list of spans, when there is such a region.
fn bytes(iova: u64, access: Access, spans: &[Span]) -> Option<(u64, Vec<u64>)> {
    let mut bytes = Vec::new();
    for span in spans.iter().filter(|span| span.len > 0) {
        span.at.checked_add(span.len)?;
        bytes.extend(span.at..span.at + span.len);
    }
    let base = if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    };
    let last = (bytes.len() as u64).saturating_sub(1);
    base.checked_add(last)?;
    (bytes.len() as u64 <= MAX_SIZE).then_some((base, bytes))
}

fn sensible(access: Access) -> bool {
    !access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) || access.contains(Access::LOCAL_WRITE)
}

fn flat(spans: &SpanList) -> Vec<u64> {
    spans.iter().flat_map(|s| s.at..s.at + s.len).collect()
}

struct Both {
    regions: Regions,
    oracle: Vec<OracleRegion>,
    windows: Vec<OracleWindow>,
    /// Every key that was ever given, with an address around which it meant something.
    keys: Vec<(u32, u64)>,
}

impl Both {
    fn new() -> Both {
        Both {
            regions: Regions::new(&limits()),
            oracle: Vec::new(),
            windows: Vec::new(),
            keys: vec![(0, 0)],
        }
    }

    fn key(&self, key: &Key) -> (u32, u64) {
        let (number, base) = *key.which.get(&self.keys);
        (number ^ key.wrong, base)
    }

    /// A key that was just given was never given before.
    fn fresh(&mut self, key: u32, base: u64) {
        assert_ne!(key, 0);
        assert!(
            self.keys.iter().all(|(old, _)| *old != key),
            "key {key:#x} came back"
        );
        self.keys.push((key, base));
    }

    fn bound_to(&self, region: usize) -> u32 {
        let shows = |w: &&OracleWindow| w.alive && w.shown.as_ref().is_some_and(|s| s.region == region);
        self.windows.iter().filter(shows).count() as u32
    }

    fn register(&mut self, pd: PdHandle, iova: u64, access: Access, spans: Vec<Span>) {
        let room = self.oracle.iter().filter(|r| r.alive).count() < MAX_MR as usize;
        let expected = bytes(iova, access, &spans).filter(|_| room && sensible(access));
        let got = self.regions.register(pd, iova, access, spans);
        assert_eq!(got.is_ok(), expected.is_some(), "{got:?}");
        if let (Ok(Registration { mr, lkey, rkey }), Some((base, bytes))) = (got, expected) {
            assert_eq!(lkey, rkey);
            self.fresh(lkey, base);
            self.oracle.push(OracleRegion {
                mr,
                key: lkey,
                pd,
                access,
                base,
                bytes,
                valid: true,
                lost: false,
                alive: true,
            });
        }
    }

    fn reregister(
        &mut self,
        which: &Index,
        translation: Option<(u64, Vec<Span>)>,
        pd: Option<PdHandle>,
        access: Option<Access>,
    ) {
        if self.oracle.is_empty() {
            return;
        }
        let at = which.index(self.oracle.len());
        let bound = self.bound_to(at);
        let old = &self.oracle[at];
        let moved = translation.is_some();
        let new_access = access.unwrap_or(old.access);
        let expected = match &translation {
            Some((iova, spans)) => bytes(*iova, new_access, spans),
            None if new_access.contains(Access::ZERO_BASED) => Some((0, old.bytes.clone())),
            None => Some((old.base, old.bytes.clone())),
        };
        let expected = expected.filter(|_| old.alive && bound == 0 && sensible(new_access));
        let change = Reregister {
            translation: translation.map(|(iova, spans)| (iova, spans.into())),
            pd,
            access,
        };
        let got = self.regions.reregister(old.mr, change);
        assert_eq!(got.is_ok(), expected.is_some(), "{got:?}");
        if let (Ok((Registration { mr, lkey, .. }, _)), Some((base, bytes))) = (got, expected) {
            let region = &mut self.oracle[at];
            assert_eq!(mr, region.mr);
            let kept = region.valid;
            assert_eq!(
                lkey == region.key,
                kept,
                "a valid key stays, another one never comes back"
            );
            region.key = lkey;
            region.pd = pd.unwrap_or(region.pd);
            (region.access, region.base, region.bytes) = (new_access, base, bytes);
            region.lost &= !moved;
            region.valid = !region.lost;
            if !kept {
                self.fresh(lkey, base);
            }
        }
    }

    fn deregister(&mut self, which: &Index) {
        if self.oracle.is_empty() {
            return;
        }
        let at = which.index(self.oracle.len());
        let bound = self.bound_to(at);
        let region = &mut self.oracle[at];
        let expected = match (region.alive, bound) {
            (false, _) => Err(VerbsError::NoSuch(Object::Mr)),
            (true, 0) => Ok(()),
            (true, users) => Err(VerbsError::InUse {
                object: Object::Mr,
                users,
            }),
        };
        region.alive &= expected.is_err();
        assert_eq!(self.regions.deregister(region.mr).map(drop), expected);
    }

    fn lose(&mut self, at: u64, len: u64) {
        let gone = at..at + len;
        let mut expected = Vec::new();
        for region in &mut self.oracle {
            let hit = region.bytes.iter().any(|byte| gone.contains(byte));
            if region.alive && !region.lost && hit {
                (region.lost, region.valid) = (true, false);
                expected.push(region.mr);
            }
        }
        let is_there = |span: Span| {
            assert!(span.len > 0);
            gone.is_empty() || span.at >= gone.end || span.at + span.len <= gone.start
        };
        let (mut walk, mut got) = (MemoryWalk::default(), Vec::new());
        while !walk.is_over() {
            let (lost, looked) = self.regions.lose(&mut walk, 1, &is_there);
            assert!(looked <= 2);
            got.extend(lost);
        }
        got.sort();
        expected.sort();
        assert_eq!(got, expected);
    }

    fn alloc(&mut self, pd: PdHandle, kind: MwType) {
        let room = self.windows.iter().filter(|w| w.alive).count() < MAX_MW as usize;
        match self.regions.alloc_mw(pd, kind) {
            Ok((mw, key)) => {
                assert!(room);
                self.fresh(key, 0);
                self.windows.push(OracleWindow {
                    mw,
                    key,
                    pd,
                    kind,
                    shown: None,
                    alive: true,
                });
            }
            Err(error) => {
                assert!(!room);
                assert_eq!(
                    error,
                    VerbsError::LimitReached {
                        object: Object::Mw,
                        limit: MAX_MW
                    }
                );
            }
        }
    }

    fn dealloc(&mut self, which: &Index) {
        if self.windows.is_empty() {
            return;
        }
        let at = which.index(self.windows.len());
        let window = &mut self.windows[at];
        assert_eq!(self.regions.dealloc_mw(window.mw).is_ok(), window.alive);
        window.alive = false;
    }

    #[allow(clippy::too_many_arguments)]
    fn bind(
        &mut self,
        pd: PdHandle,
        qp: QpNumber,
        window: &Index,
        region: &Index,
        variant: u8,
        foreign_key: bool,
        from: i64,
        len: u64,
        access: Access,
    ) {
        if self.windows.is_empty() || self.oracle.is_empty() {
            return;
        }
        let (w, r) = (window.index(self.windows.len()), region.index(self.oracle.len()));
        let (window, region) = (&self.windows[w], &self.oracle[r]);
        let addr = region.base.wrapping_add_signed(from);
        let mut rkey = window.key & !0xff | u32::from(variant);
        if foreign_key {
            rkey ^= 0x100;
        }
        let request = MwBind {
            mw: window.mw,
            rkey,
            mr: region.mr,
            addr,
            len,
            access,
        };
        let zero_based = access.contains(Access::ZERO_BASED);
        let window_ok = window.alive
            && window.pd == pd
            && match window.kind {
                MwType::Type1 => !zero_based,
                MwType::Type2 => window.shown.is_none() && len > 0 && !foreign_key,
            };
        let bytes: Option<Vec<u64>> = if len > MAX_SIZE {
            None
        } else {
            (0..len).map(|i| region.byte(addr.checked_add(i)?)).collect()
        };
        let changes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let region_ok = region.alive
            && region.valid
            && region.pd == pd
            && region.access.contains(Access::MW_BIND)
            && !region.access.contains(Access::ZERO_BASED)
            && (!changes || region.access.contains(Access::LOCAL_WRITE));
        let expected = window_ok && (len == 0 || region_ok && bytes.is_some());
        match self.regions.bind(pd, qp, &request) {
            Ok(key) => {
                assert!(expected);
                let window = &mut self.windows[w];
                let base = if zero_based { 0 } else { addr };
                window.shown = bytes.filter(|_| len > 0).map(|bytes| Shown {
                    region: r,
                    base,
                    bytes,
                    access,
                    qp,
                });
                window.key = key;
                match window.kind {
                    MwType::Type1 => self.fresh(key, base),
                    MwType::Type2 => {
                        assert_eq!(key, rkey);
                        self.keys.push((key, base));
                    }
                }
            }
            Err(status) => {
                assert!(!expected);
                assert_eq!(status, Status::MwBindError);
            }
        }
    }

    fn invalidate(&mut self, pd: PdHandle, qp: QpNumber, key: u32, remote: bool) {
        let mut expected = false;
        for (at, region) in self.oracle.iter().enumerate() {
            let named = region.alive && region.key == key && region.pd == pd;
            let allowed = region.access.contains(Access::INVALIDATE) && self.bound_to(at) == 0;
            expected |= named && allowed && (region.valid || !remote);
        }
        for region in &mut self.oracle {
            if region.alive && region.key == key && expected {
                region.valid = false;
            }
        }
        for window in &mut self.windows {
            let named = window.alive && window.key == key && window.pd == pd && window.kind == MwType::Type2;
            let allowed = match &window.shown {
                Some(shown) => shown.qp == qp,
                None => !remote,
            };
            if named && allowed {
                expected = true;
                window.shown = None;
            }
        }
        if remote {
            let wanted = if expected {
                Ok(())
            } else {
                Err(NakCode::RemoteAccess)
            };
            assert_eq!(self.regions.invalidate_remote(pd, qp, key), wanted);
        } else {
            let wanted = if expected {
                Ok(())
            } else {
                Err(Status::MwBindError)
            };
            assert_eq!(self.regions.invalidate_local(pd, qp, key), wanted);
        }
    }

    fn local(&self, pd: PdHandle, list: &[(Key, i64, u32)], offset: u64, len: u64, write: bool) {
        let sges: Vec<Sge> = list
            .iter()
            .map(|(key, from, len)| {
                let (lkey, base) = self.key(key);
                Sge {
                    addr: base.wrapping_add_signed(*from),
                    len: *len,
                    lkey,
                }
            })
            .collect();
        let need = if write {
            Access::LOCAL_WRITE
        } else {
            Access::empty()
        };
        let all = sges
            .iter()
            .flat_map(|sge| (0..u64::from(sge.len)).map(move |i| (sge, i)));
        let mut expected = Ok(Vec::new());
        let mut left = len;
        for (sge, i) in all.skip(offset as usize) {
            if left == 0 {
                break;
            }
            left -= 1;
            let byte = self.oracle.iter().find_map(|r| {
                let named = r.alive && r.valid && r.key == sge.lkey && r.pd == pd;
                let allowed = named && r.access.contains(need);
                r.byte(sge.addr.checked_add(i)?).filter(|_| allowed)
            });
            match (&mut expected, byte) {
                (Ok(bytes), Some(byte)) => bytes.push(byte),
                _ => expected = Err(Status::LocalProtectionError),
            }
        }
        if expected.is_ok() && left > 0 {
            expected = Err(Status::LocalLengthError);
        }
        let mut out = SpanList::new();
        let mark = Span { at: 1 << 40, len: 1 };
        out.push(mark);
        let got = self.regions.local(pd, &sges, offset, len, need, &mut out);
        assert_eq!(out.remove(0), mark);
        assert!(out.iter().all(|s| s.len > 0));
        assert!(got.is_ok() || out.is_empty());
        assert_eq!(got.map(|()| flat(&out)), expected);
    }

    fn remote(&self, pd: PdHandle, qp: QpNumber, key: &Key, from: i64, len: u64, need: Access) {
        let (rkey, base) = self.key(key);
        let addr = base.wrapping_add_signed(from);
        let byte = |i: u64| -> Option<u64> {
            let addr = addr.checked_add(i)?;
            let by_region = self.oracle.iter().find_map(|r| {
                let named = r.alive && r.valid && r.key == rkey && r.pd == pd;
                r.byte(addr).filter(|_| named && r.access.contains(need))
            });
            let by_window = self.windows.iter().find_map(|w| {
                let shown = w
                    .shown
                    .as_ref()
                    .filter(|_| w.alive && w.key == rkey && w.pd == pd)?;
                let obeys = w.kind == MwType::Type1 || shown.qp == qp;
                let obeys = obeys && !self.oracle[shown.region].lost;
                shown.byte(addr).filter(|_| obeys && shown.access.contains(need))
            });
            by_region.or(by_window)
        };
        let expected: Option<Vec<u64>> = if len > MAX_SIZE {
            None
        } else {
            (0..len).map(byte).collect()
        };
        let mut out = SpanList::new();
        let got = self.regions.remote(pd, qp, rkey, addr, len, need, &mut out);
        assert!(got.is_ok() || out.is_empty());
        assert!(out.iter().all(|s| s.len > 0));
        assert_eq!(got.map(|()| flat(&out)), expected.ok_or(NakCode::RemoteAccess));
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Register(pd, iova, access, spans) => self.register(pd, iova, access, spans),
            Op::Reregister(which, translation, pd, access) => {
                self.reregister(&which, translation, pd, access);
            }
            Op::Deregister(which) => self.deregister(&which),
            Op::Lose(at, len) => self.lose(at, len),
            Op::Alloc(pd, kind) => self.alloc(pd, kind),
            Op::Dealloc(which) => self.dealloc(&which),
            Op::Bind {
                pd,
                qp,
                window,
                region,
                variant,
                foreign_key,
                from,
                len,
                access,
            } => self.bind(pd, qp, &window, &region, variant, foreign_key, from, len, access),
            Op::InvalidateLocal(pd, qp, key) => self.invalidate(pd, qp, self.key(&key).0, false),
            Op::InvalidateRemote(pd, qp, key) => self.invalidate(pd, qp, self.key(&key).0, true),
            Op::Local(pd, list, offset, len, write) => self.local(pd, &list, offset, len, write),
            Op::Remote(pd, qp, key, from, len, need) => self.remote(pd, qp, &key, from, len, need),
        }
        let alive = self.oracle.iter().filter(|r| r.alive).count() as u32;
        assert_eq!(self.regions.region_usage().used, alive);
        let alive = self.windows.iter().filter(|w| w.alive).count() as u32;
        assert_eq!(self.regions.window_usage().used, alive);
    }

    /// Every byte around every key that was ever given, for all rights.
    fn sweep(&self) {
        for which in 0..self.keys.len() {
            let (rkey, base) = self.keys[which];
            let window = self.windows.iter().find(|w| w.alive && w.key == rkey);
            for from in -2..70 {
                for need in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
                    for qp in [QpNumber(2), QpNumber(3)] {
                        let addr = base.wrapping_add_signed(from);
                        let mut out = SpanList::new();
                        let got = self
                            .regions
                            .remote(PdHandle(0), qp, rkey, addr, 1, need, &mut out);
                        let by_region = self.oracle.iter().find_map(|r| {
                            let live = r.alive && r.valid && r.key == rkey && r.pd == PdHandle(0);
                            r.byte(addr).filter(|_| live && r.access.contains(need))
                        });
                        let by_window = window.and_then(|w| {
                            let shown = w.shown.as_ref().filter(|_| w.pd == PdHandle(0))?;
                            let obeys = w.kind == MwType::Type1 || shown.qp == qp;
                            let obeys = obeys && !self.oracle[shown.region].lost;
                            shown.byte(addr).filter(|_| obeys && shown.access.contains(need))
                        });
                        assert_eq!(got.is_ok(), by_region.or(by_window).is_some());
                        assert_eq!(flat(&out).first().copied(), by_region.or(by_window));
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_as_the_oracle_says(ops in vec(op(), 1..80)) {
        let mut both = Both::new();
        for op in ops {
            both.step(op);
        }
        both.sweep();
    }
}
