//! Checks of the parts of a rule for completions and commands.

use std::fmt::Debug;
use std::time::Duration;

use vnic_backend::{
    CommandStatus, CompletionKind, CompletionStatus, Operation, Post, PostErrno, ProcessMatch, RULE_TIME_MAX,
    VerbsCommand,
};

use super::Checked;

/// The value with a name, in each of the spellings `RetryExceeded`, `retry-exceeded` and `RETRY_EXCEEDED`.
fn named<T: Copy + Debug>(text: &str, what: &str, all: &[T]) -> Checked<T> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = plain(text);
    let found = all.iter().find(|one| plain(&format!("{one:?}")) == wanted);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|one| kebab(&format!("{one:?}"))).collect();
        format!("{text:?} is no {what}: {}", names.join(", "))
    })
}

/// A name such as `RetryExceeded` as options have it.
pub fn kebab(of: &str) -> String {
    let mut name = String::new();
    for c in of.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// All but the one that says that nothing failed.
fn failures<T: Copy + PartialEq>(all: &[T], good: T) -> Vec<T> {
    all.iter().copied().filter(|one| *one != good).collect()
}

/// Status of a completion that failed.
pub fn completion_status(text: &str) -> Checked<CompletionStatus> {
    let all = failures(&CompletionStatus::ALL, CompletionStatus::Success);
    named(text, "status of a failure", &all)
}

/// Kind of a completion.
pub fn kind(text: &str) -> Checked<CompletionKind> {
    named(text, "kind of completions", &CompletionKind::ALL)
}

/// Command.
pub fn command(text: &str) -> Checked<VerbsCommand> {
    // Of posts there are rules of their own.
    named(
        text,
        "command",
        &failures(&VerbsCommand::ALL, VerbsCommand::JudgePost),
    )
}

/// What is posted.
pub fn post(text: &str) -> Checked<Post> {
    named(text, "post", &Post::ALL)
}

/// Operation of a send.
pub fn operation(text: &str) -> Checked<Operation> {
    named(text, "operation", &Operation::ALL)
}

/// Error of a post.
pub fn errno(text: &str) -> Checked<PostErrno> {
    let wanted = text.to_ascii_uppercase();
    let found = PostErrno::ALL.into_iter().find(|one| errno_name(*one) == wanted);
    found.ok_or_else(|| {
        let names = PostErrno::ALL.map(errno_name);
        format!("{text:?} is no error of posts: {}", names.join(", "))
    })
}

/// Name of an error, such as `ENOMEM`.
pub fn errno_name(errno: PostErrno) -> String {
    format!("{errno:?}").to_ascii_uppercase()
}

/// Status of a command that is refused.
pub fn command_status(text: &str) -> Checked<CommandStatus> {
    let all = failures(&CommandStatus::ALL, CommandStatus::Ok);
    named(text, "status of a refusal", &all)
}

/// Number of a process, or name of its program.
pub fn process(text: &str) -> Checked<ProcessMatch> {
    text.parse()
}

/// Time before the beginning of a rule.
pub fn after(span: Duration) -> Checked<Duration> {
    match span <= RULE_TIME_MAX {
        true => Ok(span),
        false => Err("at most 7 d".to_owned()),
    }
}

/// Time of a rule.
pub fn lasts(span: Duration) -> Checked<Duration> {
    match span {
        Duration::ZERO => Err("more than 0, at most 7 d".to_owned()),
        span => after(span),
    }
}

/// Least and greatest number of bytes.
pub fn bytes(min: Option<u64>, max: Option<u64>) -> Checked<()> {
    match (min, max) {
        (Some(min), Some(max)) if min > max => Err(format!("{max} is less than min_bytes, {min}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_each_spelling_and_no_failure_is_a_success() {
        for text in ["RnrRetryExceeded", "rnr-retry-exceeded", "RNR_RETRY_EXCEEDED"] {
            assert_eq!(completion_status(text), Ok(CompletionStatus::RnrRetryExceeded));
        }
        for kind_of in CompletionKind::ALL {
            assert_eq!(kind(&kebab(&format!("{kind_of:?}"))), Ok(kind_of));
        }
        for one in VerbsCommand::ALL {
            let read = command(&kebab(&format!("{one:?}")));
            assert_eq!(read.ok(), Some(one).filter(|one| *one != VerbsCommand::JudgePost));
        }
        assert_eq!(post("shared-receive"), Ok(Post::SharedReceive));
        assert_eq!(operation("write_imm"), Ok(Operation::WriteImm));
        assert_eq!(errno("enomem"), Ok(PostErrno::Enomem));
        let told = errno("EMEM").expect_err("no errno");
        assert!(
            told.contains("\"EMEM\" is no error of posts: EPERM, EIO"),
            "{told}"
        );
        assert_eq!(command_status("limit-reached"), Ok(CommandStatus::LimitReached));
        assert!(completion_status("success").is_err() && command_status("ok").is_err());
        let told = kind("sends").expect_err("no kind");
        assert!(
            told.contains("\"sends\" is no kind of completions: send, write, read, compare-swap"),
            "{told}"
        );
    }
}
