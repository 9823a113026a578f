//! Command line of `vnicctl fault verbs`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use vnic_backend::{
    CommandStatus, CompletionKind, CompletionStatus, Operation, Post, PostErrno, ProcessMatch, VerbsCommand,
};

use crate::check::{self, Checked, fault as limits, verbs_fault as words};
use crate::cli::args::number;

/// Verbs of rules for completions, commands, receives and posts.
#[derive(Debug, Subcommand)]
pub enum VerbsFaultVerb {
    /// Make a rule; it lives until it is removed or the daemon ends (it is not stored)
    #[command(
        after_help = "Examples:\n  vnicctl fault verbs add liar --adapter vf0 --kind write --lie retry-exceeded --count 1\n  vnicctl \
                      fault verbs add slow --adapter vf0 --late 50ms --probability 10% --seed 42\n  vnicctl fault verbs add full \
                      --adapter vf0 --command register-mr --command create-qp --status limit-reached\n  vnicctl fault verbs add huge --adapter vf0 --command register-mr --min-bytes 1048576 \
                      --delay 200ms\n  vnicctl fault verbs add storm --adapter vf0 --not-ready --process my-server --after 10s --for \
                      5s\n  vnicctl fault verbs add third --adapter vf0 --post send --operation write --errno ENOMEM --skip 2 --count 1\n\nRules are asked in the \
                      order in which they were made. --lie, --fail and --length hit completions that ended well, --immediate those \
                      of them with immediate data. An unknown STATUS, KIND or COMMAND is answered by the list of all."
    )]
    Add(Box<VerbsFaultAdd>),
    /// List all rules, in the order in which they are asked
    #[command(after_help = "Example:\n  vnicctl -o json fault verbs list | jq '.verbs_faults[].injected'")]
    List,
    /// Remove rules; completions that they hold back go to the driver
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl fault verbs remove liar slow"
    )]
    Remove {
        /// Names of the rules
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

const COMPLETIONS: &str = "What happens to completions, one of them";
const WHICH: &str = "Which completions; all that is given must be true";
const COMMANDS: &str = "Or commands that are slow or refused";
const MESSAGES: &str = "Or messages that come";
const POSTS: &str = "Or posts that fail";
/// Actions that are neither about commands nor about posts.
const OTHERS: [&str; 12] = [
    "lie",
    "fail",
    "lose",
    "double",
    "late",
    "hang",
    "swap",
    "length",
    "immediate",
    "overrun",
    "srq_limit",
    "not_ready",
];
const OFTEN: &str = "How often";

// Wide: each field is an option of the command.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("action").required(true), group = ArgGroup::new("answer").multiple(true))]
pub struct VerbsFaultAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    #[arg(value_parser = check::name)]
    pub name: String,
    /// The adapter, with an RDMA function
    #[arg(long, value_name = "ADAPTER")]
    pub adapter: String,
    /// Only this process of the adapter: its number, or the name of its program [default: all]
    #[arg(long, value_name = "PROCESS", value_parser = words::process)]
    pub process: Option<ProcessMatch>,

    /// They tell this failure, and the queue pair goes on
    #[arg(long, group = "action", value_name = "STATUS", value_parser = words::completion_status, help_heading = COMPLETIONS)]
    pub lie: Option<CompletionStatus>,
    /// They tell this failure, and the queue pair goes to ERR
    #[arg(long, group = "action", value_name = "STATUS", value_parser = words::completion_status, help_heading = COMPLETIONS)]
    pub fail: Option<CompletionStatus>,
    /// They are lost
    #[arg(long, group = "action", help_heading = COMPLETIONS)]
    pub lose: bool,
    /// They come twice
    #[arg(long, group = "action", help_heading = COMPLETIONS)]
    pub double: bool,
    /// They come later by this, such as 50ms
    #[arg(long, group = "action", value_name = "SPAN", value_parser = held, help_heading = COMPLETIONS)]
    pub late: Option<Duration>,
    /// They are held back until the rule is removed
    #[arg(long, group = "action", help_heading = COMPLETIONS)]
    pub hang: bool,
    /// They come behind the next one of their completion queue, or after this time
    #[arg(long, group = "action", value_name = "SPAN", value_parser = held, help_heading = COMPLETIONS)]
    pub swap: Option<Duration>,
    /// They tell this length
    #[arg(long, group = "action", value_name = "BYTES", help_heading = COMPLETIONS)]
    pub length: Option<u32>,
    /// They tell this immediate data, such as 0x17
    #[arg(long, group = "action", value_name = "DATA", value_parser = number(any), help_heading = COMPLETIONS)]
    pub immediate: Option<u32>,

    /// Their completion queue overruns: they are lost, and its queue pairs go to ERR
    #[arg(long, group = "action", help_heading = COMPLETIONS)]
    pub overrun: bool,
    /// They come, and their shared receive queue tells that its limit is reached
    #[arg(long, group = "action", help_heading = COMPLETIONS)]
    pub srq_limit: bool,

    /// Only those of this queue pair
    #[arg(long, value_name = "QP", conflicts_with = "command", value_parser = number(limits::destination_qp), help_heading = WHICH)]
    pub qp: Option<u32>,
    /// Only those of this kind, such as send, write, read, recv; again for further ones
    #[arg(long, value_name = "KIND", conflicts_with_all = ["command", "not_ready", "post"], value_parser = words::kind, help_heading = WHICH)]
    pub kind: Vec<CompletionKind>,
    /// Only those that tell of so many bytes at least; of register-mr, reregister-mr and posts: only such regions and elements
    #[arg(long, value_name = "BYTES", conflicts_with = "not_ready", help_heading = WHICH)]
    pub min_bytes: Option<u64>,
    /// Only of so many bytes at most
    #[arg(long, value_name = "BYTES", conflicts_with = "not_ready", help_heading = WHICH)]
    pub max_bytes: Option<u64>,

    /// A command, such as register-mr, create-qp, modify-qp; again for further ones
    #[arg(long, group = "action", value_name = "COMMAND", requires = "answer", value_parser = words::command, help_heading = COMMANDS)]
    pub command: Vec<VerbsCommand>,
    /// What it is refused with, such as limit-reached
    #[arg(long, value_name = "STATUS", group = "answer", requires = "command", conflicts_with = "post", conflicts_with_all = OTHERS, value_parser = words::command_status, help_heading = COMMANDS)]
    pub status: Option<CommandStatus>,
    /// It waits so long before it is looked at, such as 200ms, and later ones of the process behind it
    #[arg(long, value_name = "SPAN", group = "answer", requires = "command", conflicts_with = "post", conflicts_with_all = OTHERS, value_parser = held, help_heading = COMMANDS)]
    pub delay: Option<Duration>,

    /// Messages that need a receive find none: RC peers get RNR NAK, UC and UD lose them
    #[arg(long, group = "action", help_heading = MESSAGES)]
    pub not_ready: bool,

    /// Posts: send, receive or shared-receive
    #[arg(long, group = "action", value_name = "POST", requires = "errno", value_parser = words::post, help_heading = POSTS)]
    pub post: Option<Post>,
    /// The error that they return, such as ENOMEM
    #[arg(long, value_name = "ERRNO", requires = "post", conflicts_with = "command", conflicts_with_all = OTHERS, value_parser = words::errno, help_heading = POSTS)]
    pub errno: Option<PostErrno>,
    /// Only sends of this operation, such as write, send-imm, fetch-add; again for further ones
    #[arg(long, value_name = "OPERATION", requires = "post", conflicts_with = "command", conflicts_with_all = OTHERS, value_parser = words::operation, help_heading = POSTS)]
    pub operation: Vec<Operation>,

    /// How probable it is that a match is hit, such as 0.01 or 1% [default: 1]
    #[arg(long, value_name = "P", value_parser = limits::probability_text, help_heading = OFTEN)]
    pub probability: Option<u32>,
    /// Let N matches go before it begins
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = OFTEN)]
    pub skip: u64,
    /// End after N injections
    #[arg(long, value_name = "N", help_heading = OFTEN)]
    pub count: Option<u64>,
    /// Begin so long after it was made, such as 10s
    #[arg(long, value_name = "SPAN", value_parser = after, help_heading = OFTEN)]
    pub after: Option<Duration>,
    /// End so long after its beginning
    #[arg(long = "for", value_name = "SPAN", value_parser = lasts, help_heading = OFTEN)]
    pub lasts: Option<Duration>,
    /// Begin of the random numbers: with the same seed the matches of the same numbers are hit [default: the daemon chooses]
    #[arg(long, value_name = "SEED", help_heading = OFTEN)]
    pub seed: Option<u64>,
}

fn after(text: &str) -> Checked<Duration> {
    limits::span(text).and_then(words::after)
}

fn lasts(text: &str) -> Checked<Duration> {
    limits::span(text).and_then(words::lasts)
}

fn held(text: &str) -> Checked<Duration> {
    limits::span(text).and_then(limits::held)
}

fn any(value: i64) -> Checked<u32> {
    u32::try_from(value).map_err(|_| format!("{value} is out of range: 0 to {}", u32::MAX))
}
