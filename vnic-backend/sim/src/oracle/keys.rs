//! Which key allowed what, and when: the oracle's own reading of IBTA volume 1, sections 10.6 and 9.7.4.1.5.

use std::collections::HashMap;

use vnic_engine::rdma::{Access, MrHandle, MwHandle, MwType, PdHandle, QpNumber, Sge, Span, SpanList};

use super::Seq;
use super::bytes::Right;

/// A key of a region or a window, from its birth to its death.
#[derive(Debug)]
struct Key {
    what: Target,
    pd: PdHandle,
    /// A type 2 window belongs to one queue pair.
    qp: Option<QpNumber>,
    /// First address.
    base: u64,
    len: u64,
    access: Access,
    /// The bytes behind it, as many as `len`.
    spans: Vec<Span>,
    /// It may count from the first, and surely counts from the second.
    born: (Seq, Option<Seq>),
    /// It may be void from the first, and surely is from the second.
    died: (Option<Seq>, Option<Seq>),
}

/// What a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A region.
    Mr(MrHandle),
    /// A window.
    Mw(MwHandle),
}

/// Who shows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The owner, in a scatter/gather element.
    Local,
    /// A peer, in a packet.
    Remote,
}

/// Was an access allowed for all of a span of time?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowed {
    /// At no time of it.
    Never,
    /// At some of it, or it is not known when exactly.
    Sometimes,
    /// All the time.
    Always,
}

/// A question about a key.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Whose memory.
    pub dev: usize,
    /// Protection domain of the queue pair.
    pub pd: PdHandle,
    /// The queue pair at which the key is shown.
    pub qp: QpNumber,
    /// Who shows it.
    pub side: Side,
    /// The key.
    pub key: u32,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Rights that are needed.
    pub need: Access,
}

impl Ask {
    /// What an element asks of the owner's keys.
    pub fn local(dev: usize, pd: PdHandle, qp: QpNumber, element: &Sge, need: Access) -> Ask {
        Ask {
            dev,
            pd,
            qp,
            side: Side::Local,
            key: element.lkey,
            addr: element.addr,
            len: u64::from(element.len),
            need,
        }
    }
}

/// All keys there ever were.
#[derive(Debug, Default)]
pub struct Keys {
    keys: Vec<(usize, Key)>,
    by_value: HashMap<(usize, Side, u32), Vec<usize>>,
    regions: HashMap<(usize, MrHandle), Region>,
    windows: HashMap<(usize, MwHandle), Window>,
}

/// A region as it is now.
#[derive(Debug, Clone)]
pub struct Region {
    /// Its domain.
    pub pd: PdHandle,
    /// First address.
    pub iova: u64,
    /// Rights.
    pub access: Access,
    /// The bytes behind it.
    pub spans: Vec<Span>,
    /// Its keys.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

#[derive(Debug)]
struct Window {
    pd: PdHandle,
    kind: MwType,
}

impl Region {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|s| s.len).sum()
    }

    /// First address that its keys know.
    pub fn base(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) {
            0
        } else {
            self.iova
        }
    }
}

/// Are these bytes all among the spans?
fn covers(spans: &[Span], at: u64, len: u64) -> bool {
    let (mut from, to) = (at, at + len);
    while from < to {
        let here = spans.iter().find(|s| s.at <= from && from < s.at + s.len);
        let Some(span) = here else { return false };
        from = span.at + span.len;
    }
    true
}

/// Bytes `from..from + len` of a list of spans.
pub fn slice(spans: &[Span], mut from: u64, mut len: u64) -> SpanList {
    let mut out = SpanList::new();
    for s in spans {
        if len == 0 {
            break;
        }
        if from >= s.len {
            from -= s.len;
            continue;
        }
        let n = (s.len - from).min(len);
        out.push(Span {
            at: s.at + from,
            len: n,
        });
        len -= n;
        from = 0;
    }
    out
}

impl Keys {
    /// A region was registered, or registered anew.
    pub fn register(&mut self, now: Seq, dev: usize, mr: MrHandle, region: Region) {
        self.deregister(now, dev, mr);
        for (side, value) in [(Side::Local, region.lkey), (Side::Remote, region.rkey)] {
            let key = Key {
                what: Target::Mr(mr),
                pd: region.pd,
                qp: None,
                base: region.base(),
                len: region.bytes(),
                access: region.access,
                spans: region.spans.clone(),
                born: (now, Some(now)),
                died: (None, None),
            };
            self.add(dev, side, value, key);
        }
        self.regions.insert((dev, mr), region);
    }

    /// A region is gone.
    pub fn deregister(&mut self, now: Seq, dev: usize, mr: MrHandle) {
        self.regions.remove(&(dev, mr));
        self.kill(dev, Target::Mr(mr), (now, Some(now)));
    }

    /// A window was allocated: it has a key, which allows nothing.
    pub fn add_window(&mut self, dev: usize, mw: MwHandle, pd: PdHandle, kind: MwType) {
        self.windows.insert((dev, mw), Window { pd, kind });
    }

    /// A window is gone.
    pub fn drop_window(&mut self, now: Seq, dev: usize, mw: MwHandle) {
        self.windows.remove(&(dev, mw));
        self.kill(dev, Target::Mw(mw), (now, Some(now)));
    }

    /// A region as it is now.
    pub fn region(&self, dev: usize, mr: MrHandle) -> Option<&Region> {
        self.regions.get(&(dev, mr))
    }

    /// A window's domain and type.
    pub fn window(&self, dev: usize, mw: MwHandle) -> Option<(PdHandle, MwType)> {
        self.windows.get(&(dev, mw)).map(|w| (w.pd, w.kind))
    }

    /// A bind was posted: the window's former key may go at any time, and the new one come.
    #[expect(clippy::too_many_arguments, reason = "a bind has so many")]
    pub fn bind(
        &mut self,
        now: Seq,
        dev: usize,
        qp: QpNumber,
        mw: MwHandle,
        key: u32,
        mr: MrHandle,
        range: (u64, u64),
        access: Access,
    ) {
        self.kill(dev, Target::Mw(mw), (now, None));
        let (Some(window), Some(region)) = (self.window(dev, mw), self.region(dev, mr)) else {
            return;
        };
        let (addr, len) = range;
        let Some(from) = addr.checked_sub(region.base()) else {
            return;
        };
        if len == 0 || from.checked_add(len).is_none_or(|end| end > region.bytes()) {
            return;
        }
        let zero = access.contains(Access::ZERO_BASED);
        let bound = Key {
            what: Target::Mw(mw),
            pd: window.0,
            qp: (window.1 == MwType::Type2).then_some(qp),
            base: if zero { 0 } else { addr },
            len,
            access,
            spans: slice(&region.spans, from, len).to_vec(),
            born: (now, None),
            died: (None, None),
        };
        self.add(dev, Side::Remote, key, bound);
    }

    /// The bind of this key was carried out; what the window was before is gone.
    pub fn bound(&mut self, now: Seq, dev: usize, mw: MwHandle, key: u32) {
        let newest = self
            .keys
            .iter()
            .enumerate()
            .filter(|(_, (d, k))| *d == dev && k.what == Target::Mw(mw))
            .map(|(i, _)| i)
            .next_back();
        let values = self.by_value.get(&(dev, Side::Remote, key));
        for (i, (d, k)) in self.keys.iter_mut().enumerate() {
            if *d != dev || k.what != Target::Mw(mw) {
                continue;
            }
            if Some(i) == newest && values.is_some_and(|v| v.contains(&i)) {
                k.born.1 = k.born.1.or(Some(now));
            } else {
                k.died = (k.died.0.or(Some(now)), k.died.1.or(Some(now)));
            }
        }
    }

    /// Somebody asked for this remote key to be invalidated (`done`: and it was).
    pub fn invalidate(&mut self, now: Seq, dev: usize, key: u32, done: bool) {
        for side in [Side::Remote, Side::Local] {
            for i in self.by_value.get(&(dev, side, key)).cloned().unwrap_or_default() {
                let k = &mut self.keys[i].1;
                k.died.0 = k.died.0.or(Some(now));
                if done {
                    k.died.1 = k.died.1.or(Some(now));
                }
                // A region's two keys live and die together.
                if let Target::Mr(_) = k.what {
                    let what = k.what;
                    self.kill(dev, what, (now, done.then_some(now)));
                }
            }
        }
    }

    /// What a key stands for now, if anything.
    pub fn target(&self, dev: usize, side: Side, key: u32) -> Option<Target> {
        self.by_value
            .get(&(dev, side, key))?
            .iter()
            .map(|i| &self.keys[*i].1)
            .rfind(|k| k.died.0.is_none())
            .map(|k| k.what)
    }

    /// Was it allowed between two times? And which bytes it is about, if it ever was.
    pub fn ask(&self, ask: &Ask, from: Seq, to: Seq) -> (Allowed, SpanList) {
        let mut best = (Allowed::Never, SpanList::new());
        for i in self
            .by_value
            .get(&(ask.dev, ask.side, ask.key))
            .into_iter()
            .flatten()
        {
            let k = &self.keys[*i].1;
            let allowed = k.at(ask, from, to);
            if allowed > best.0 {
                best = (allowed, slice(&k.spans, ask.addr - k.base, ask.len));
            }
        }
        best
    }

    /// The same, but of an own element that begins inside and ends outside, the part that is inside: a device may come
    /// so far before it notices.
    pub fn reach(&self, ask: &Ask, from: Seq, to: Seq) -> (Allowed, SpanList) {
        let whole = self.ask(ask, from, to);
        if whole.0 != Allowed::Never || ask.side == Side::Remote {
            return whole;
        }
        let values = self.by_value.get(&(ask.dev, ask.side, ask.key));
        let ends = values.into_iter().flatten().map(|i| &self.keys[*i].1);
        let room = ends.filter_map(|k| k.len.checked_sub(ask.addr.checked_sub(k.base)?));
        let part = room.filter(|n| *n > 0 && *n < ask.len).map(|len| {
            let (allowed, spans) = self.ask(&Ask { len, ..*ask }, from, to);
            (allowed.min(Allowed::Sometimes), spans)
        });
        part.max_by_key(|(allowed, _)| *allowed).unwrap_or(whole)
    }

    /// May some peer with the right key touch these bytes now?
    pub fn open_to_peers(&self, dev: usize, right: Right, at: u64, len: u64) -> bool {
        let needs: &[Access] = match right {
            Right::Read => &[Access::REMOTE_READ],
            Right::Write => &[Access::REMOTE_WRITE, Access::REMOTE_ATOMIC],
        };
        let values = self
            .by_value
            .iter()
            .filter(|((d, side, _), _)| *d == dev && *side == Side::Remote);
        values
            .flat_map(|(_, list)| list)
            .map(|i| &self.keys[*i].1)
            .any(|k| {
                k.died.1.is_none() && needs.iter().any(|n| k.access.contains(*n)) && covers(&k.spans, at, len)
            })
    }

    fn add(&mut self, dev: usize, side: Side, value: u32, key: Key) {
        self.by_value
            .entry((dev, side, value))
            .or_default()
            .push(self.keys.len());
        self.keys.push((dev, key));
    }

    fn kill(&mut self, dev: usize, what: Target, at: (Seq, Option<Seq>)) {
        for (_, k) in self.keys.iter_mut().filter(|(d, k)| *d == dev && k.what == what) {
            k.died.0 = k.died.0.or(Some(at.0));
            k.died.1 = k.died.1.or(at.1);
        }
    }
}

impl Key {
    fn at(&self, ask: &Ask, from: Seq, to: Seq) -> Allowed {
        let inside = ask
            .addr
            .checked_sub(self.base)
            .and_then(|o| o.checked_add(ask.len))
            .is_some_and(|end| end <= self.len);
        if !inside
            || self.pd != ask.pd
            || !self.access.contains(ask.need)
            || self.qp.is_some_and(|q| q != ask.qp)
        {
            return Allowed::Never;
        }
        if self.born.0 > to || self.died.1.is_some_and(|d| d <= from) {
            return Allowed::Never;
        }
        let whole = self.born.1.is_some_and(|b| b <= from) && self.died.0.is_none_or(|d| d > to);
        if whole {
            Allowed::Always
        } else {
            Allowed::Sometimes
        }
    }
}
