//! Posts that fail on purpose, for programs under test: `VNIC_POST_FAULTS`.
//!
//! ```text
//! VNIC_POST_FAULTS=send:ENOMEM:skip=2:count=1,recv:EINVAL
//! ```
//!
//! Rings that a rule is about take their slow way for each work request, and ask here. Without rules no ring asks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use crate::{Error, PostReason};

/// Environment variable with rules for work requests that are posted, with commas between them. A rule is what is posted (`send`, `recv`,
/// `srq_recv`), the errno, and maybe `skip=N` (so many are let go first) and `count=N` (so many fail at most), with colons between them.
pub const POST_FAULTS_VARIABLE: &str = "VNIC_POST_FAULTS";

/// What is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Post {
    Send,
    Receive,
    SharedReceive,
}

const POSTS: [(&str, Post); 3] = [
    ("send", Post::Send),
    ("recv", Post::Receive),
    ("srq_recv", Post::SharedReceive),
];
const ERRNOS: [(&str, Errno); 10] = [
    ("EINVAL", Errno::INVAL),
    ("ENOMEM", Errno::NOMEM),
    ("EAGAIN", Errno::AGAIN),
    ("EIO", Errno::IO),
    ("EBUSY", Errno::BUSY),
    ("EFAULT", Errno::FAULT),
    ("ENODEV", Errno::NODEV),
    ("ENOSPC", Errno::NOSPC),
    ("EPERM", Errno::PERM),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
];

#[derive(Debug)]
struct Rule {
    post: Post,
    errno: i32,
    skip: u64,
    count: u64,
    seen: AtomicU64,
}

impl Rule {
    fn read(text: &str) -> Result<Rule, String> {
        let mut parts = text.split(':').map(str::trim);
        let mut next = || parts.next().unwrap_or_default();
        let (post, errno) = (next(), next());
        let mut rule = Rule {
            post: named(post, &POSTS)?,
            errno: named(errno, &ERRNOS)?.raw_os_error(),
            skip: 0,
            count: u64::MAX,
            seen: AtomicU64::new(0),
        };
        for part in parts {
            let number = |text: &str| {
                text.parse()
                    .map_err(|_| format!("{part:?}: {text:?} is not a number"))
            };
            match part.split_once('=') {
                Some(("skip", n)) => rule.skip = number(n)?,
                Some(("count", n)) => rule.count = number(n)?,
                _ => return Err(format!("{part:?} is neither skip=N nor count=N")),
            }
        }
        Ok(rule)
    }

    fn hits(&self) -> bool {
        let before = self.seen.fetch_add(1, Relaxed);
        before.checked_sub(self.skip).is_some_and(|n| n < self.count)
    }
}

fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("{text:?} is none of {}", names.join(", "))
    })
}

fn read(text: &str) -> Result<Vec<Rule>, String> {
    let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty());
    rules.map(Rule::read).collect()
}

/// The rules of this process; what is wrong with them.
fn rules() -> &'static Result<Vec<Rule>, String> {
    static RULES: OnceLock<Result<Vec<Rule>, String>> = OnceLock::new();
    RULES.get_or_init(|| read(&std::env::var(POST_FAULTS_VARIABLE).unwrap_or_default()))
}

/// Refuses wrong rules, at the start of a device.
pub(crate) fn check() -> Result<(), Error> {
    match rules() {
        Ok(_) => Ok(()),
        Err(problem) => Err(Error::Setup(format!("{POST_FAULTS_VARIABLE}: {problem}"))),
    }
}

/// Whether a rule is about this.
pub(crate) fn any(post: Post) -> bool {
    rules()
        .as_ref()
        .is_ok_and(|rules| rules.iter().any(|rule| rule.post == post))
}

fn judged(rules: &[Rule], post: Post) -> Result<(), PostReason> {
    let mut of = rules.iter().filter(|rule| rule.post == post);
    match of.find(|rule| rule.hits()) {
        None => Ok(()),
        Some(rule) => Err(PostReason::OnDemand(rule.errno)),
    }
}

/// Refuses a work request if a rule says so.
#[cold]
pub(crate) fn judge(post: Post) -> Result<(), PostReason> {
    rules().as_ref().map_or(Ok(()), |rules| judged(rules, post))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kth_fails_and_others_do_not() {
        let rules = read("send:ENOMEM:skip=2:count=1, recv:EIO , send:EAGAIN:skip=4").expect("rules");
        let sends: Vec<_> = (0..7).map(|_| judged(&rules, Post::Send)).collect();
        let (memory, again) = (Errno::NOMEM.raw_os_error(), Errno::AGAIN.raw_os_error());
        let on_demand = |errno| Err(PostReason::OnDemand(errno));
        let (no, yes) = (on_demand(memory), on_demand(again));
        // What the first rule hits, the second one does not see.
        assert_eq!(sends, [Ok(()), Ok(()), no, Ok(()), Ok(()), yes, yes]);
        assert_eq!(judged(&rules, Post::Receive), on_demand(Errno::IO.raw_os_error()));
        assert_eq!(judged(&rules, Post::SharedReceive), Ok(()));
        assert!(read("").expect("none").is_empty());
    }

    #[test]
    fn wrong_rules_say_what_is_allowed() {
        for (text, words) in [
            ("sends:EIO", "\"sends\" is none of send, recv, srq_recv"),
            ("send", "\"\" is none of EINVAL, ENOMEM"),
            ("send:12", "\"12\" is none of EINVAL"),
            ("send:EIO:skip=x", "\"x\" is not a number"),
            ("send:EIO:after=3", "neither skip=N nor count=N"),
        ] {
            let told = read(text).expect_err(text);
            assert!(told.contains(words), "{told}");
        }
    }
}
