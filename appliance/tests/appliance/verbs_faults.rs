//! Rules for completions and commands as people and programs see them: gRPC and the command line. What they do to a program is in
//! `tests/tests/rdma`.

use std::path::Path;
use std::time::Duration;

use crate::common::lab::{Lab, fields};
use crate::common::process;
use tonic::Code;
use vnic_appliance::config::{Environment, Overrides, Settings};
use vnic_backend::{
    CommandStatus, CompletionFault, CompletionKind, CompletionStatus, Operation, Post, PostErrno,
    ProcessMatch, VerbsCommand, VerbsFaultAction, VerbsFaultSpec,
};
use vnic_control::v1;
use vnic_control::v1::completion_fault::Fault;
use vnic_control::v1::verbs_fault::Action;

fn create(id: &str, action: Option<Action>) -> v1::CreateVerbsFaultRequest {
    v1::CreateVerbsFaultRequest {
        verbs_fault_id: id.to_owned(),
        verbs_fault: Some(v1::VerbsFault {
            adapter: "adapters/vf0".to_owned(),
            action,
            ..v1::VerbsFault::default()
        }),
    }
}

fn span(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn slow(delay: i64) -> Option<Action> {
    Some(Action::Command(v1::CommandFault {
        commands: vec!["register-mr".to_owned()],
        delay: Some(span(delay)),
        ..v1::CommandFault::default()
    }))
}

fn completions(fault: Option<Fault>) -> Option<Action> {
    Some(Action::Completion(v1::CompletionFault {
        fault,
        ..v1::CompletionFault::default()
    }))
}

fn commands(commands: &[&str], status: &str) -> Option<Action> {
    Some(Action::Command(v1::CommandFault {
        commands: commands.iter().map(|&c| c.to_owned()).collect(),
        status: status.to_owned(),
        delay: None,
    }))
}

fn post(post: &str, errno: &str, operations: &[&str]) -> Option<Action> {
    Some(Action::Post(v1::PostFault {
        post: post.to_owned(),
        errno: errno.to_owned(),
        operations: operations.iter().map(|&o| o.to_owned()).collect(),
        queue_pair: None,
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_come_and_go() {
    let lab = Lab::start(2).await;
    let mut service = lab.faults();
    let wish = v1::VerbsFault {
        skip: 1,
        probability: Some(0.25),
        count: Some(9),
        seed: Some(77),
        adapter: "adapters/vf0".to_owned(),
        process: "server".to_owned(),
        min_bytes: Some(8),
        max_bytes: Some(u64::MAX),
        after: Some(span(10)),
        lasts: Some(span(604_800)),
        action: Some(Action::Completion(v1::CompletionFault {
            queue_pair: Some(17),
            kinds: vec!["Write".to_owned(), "fetch-add".to_owned()],
            fault: Some(Fault::Fail("REMOTE_ACCESS_ERROR".to_owned())),
        })),
        ..v1::VerbsFault::default()
    };
    let request = v1::CreateVerbsFaultRequest {
        verbs_fault_id: "one".to_owned(),
        verbs_fault: Some(wish.clone()),
    };
    let made = service.create_verbs_fault(request.clone()).await.expect("made");
    let made = made.into_inner();
    let expected = v1::VerbsFault {
        name: "verbsFaults/one".to_owned(),
        id: 1,
        create_time: made.create_time,
        lifetime: v1::Lifetime::UntilDaemonEnds.into(),
        action: Some(Action::Completion(v1::CompletionFault {
            queue_pair: Some(17),
            kinds: vec!["Write".to_owned(), "FetchAdd".to_owned()],
            fault: Some(Fault::Fail("RemoteAccessError".to_owned())),
        })),
        ..wish
    };
    assert!(made.create_time.is_some());
    assert_eq!(made, expected);
    let again = service.create_verbs_fault(request).await.expect_err("taken");
    assert_eq!(again.code(), Code::AlreadyExists);

    let refuses = create("another", commands(&["RegisterMr"], "limit-reached"));
    let second = service
        .create_verbs_fault(refuses)
        .await
        .expect("made")
        .into_inner();
    assert!(second.seed.is_some() && second.probability == Some(1.0));
    let mut page = v1::ListVerbsFaultsRequest {
        page_size: 1,
        ..v1::ListVerbsFaultsRequest::default()
    };
    let first = service.list_verbs_faults(page.clone()).await.expect("a page");
    let first = first.into_inner();
    assert_eq!(first.verbs_faults, std::slice::from_ref(&made));
    page.page_token = first.next_page_token;
    let rest = service
        .list_verbs_faults(page)
        .await
        .expect("a page")
        .into_inner();
    assert_eq!((rest.verbs_faults, &*rest.next_page_token), (vec![second], ""));

    let delete = |name: &str| v1::DeleteVerbsFaultRequest {
        name: name.to_owned(),
    };
    let last = service.delete_verbs_fault(delete("verbsFaults/one")).await;
    assert_eq!(last.expect("deleted").into_inner(), made);
    let gone = service.delete_verbs_fault(delete("verbsFaults/one")).await;
    assert_eq!(gone.expect_err("gone").code(), Code::NotFound);
    let odd = service.delete_verbs_fault(delete("faults/one")).await;
    assert_eq!(fields(&odd.expect_err("another form")), ["name"]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_every_field() {
    let lab = Lab::start(1).await;
    let mut service = lab.faults();
    let mut refused = async |request| service.create_verbs_fault(request).await.expect_err("refused");
    let wrong = v1::VerbsFault {
        adapter: "vf0".to_owned(),
        probability: Some(1.5),
        action: Some(Action::Completion(v1::CompletionFault {
            queue_pair: Some(1 << 24),
            kinds: vec!["send".to_owned(), "sends".to_owned()],
            fault: Some(Fault::Lie("success".to_owned())),
        })),
        ..v1::VerbsFault::default()
    };
    let wrong = refused(v1::CreateVerbsFaultRequest {
        verbs_fault_id: "A b".to_owned(),
        verbs_fault: Some(wrong),
    })
    .await;
    assert_eq!(wrong.code(), Code::InvalidArgument);
    let all = [
        "verbs_fault_id",
        "verbs_fault.adapter",
        "verbs_fault.probability",
        "verbs_fault.completion.queue_pair",
        "verbs_fault.completion.kinds[1]",
        "verbs_fault.completion.lie",
    ];
    assert_eq!(fields(&wrong), all);
    for words in ["0 to 16777215", "send, write, read", "retry-exceeded"] {
        assert!(wrong.message().contains(words), "{words} in {}", wrong.message());
    }
    for (action, field) in [
        (None, "action"),
        (completions(None), "completion.fault"),
        (completions(Some(Fault::Late(span(0)))), "completion.late"),
        (completions(Some(Fault::Late(span(-1)))), "completion.late"),
        (completions(Some(Fault::Swap(span(61)))), "completion.swap"),
        (completions(Some(Fault::Fail(String::new()))), "completion.fail"),
        (commands(&[], "invalid"), "command.commands"),
        (
            commands(&["create-qp", "make-qp"], "invalid"),
            "command.commands[1]",
        ),
        (commands(&["create-qp"], "ok"), "command.status"),
        (commands(&["create-qp"], ""), "command.status"),
        (slow(0), "command.delay"),
        (slow(61), "command.delay"),
        (
            Some(Action::NotReady(v1::NotReadyFault {
                queue_pair: Some(1 << 24),
            })),
            "not_ready.queue_pair",
        ),
        (post("sends", "EIO", &[]), "post.post"),
        (post("send", "EMEM", &[]), "post.errno"),
        (post("send", "EIO", &["write", "writ"]), "post.operations[1]"),
    ] {
        let status = refused(create("f", action)).await;
        assert_eq!(fields(&status), [format!("verbs_fault.{field}")]);
    }
    for (change, field) in [
        (
            v1::VerbsFault {
                process: "a-program-of-17-b".to_owned(),
                ..v1::VerbsFault::default()
            },
            "process",
        ),
        (
            v1::VerbsFault {
                min_bytes: Some(2),
                max_bytes: Some(1),
                ..v1::VerbsFault::default()
            },
            "max_bytes",
        ),
        (
            v1::VerbsFault {
                after: Some(span(-1)),
                ..v1::VerbsFault::default()
            },
            "after",
        ),
        (
            v1::VerbsFault {
                lasts: Some(span(604_801)),
                ..v1::VerbsFault::default()
            },
            "lasts",
        ),
    ] {
        let fault = v1::VerbsFault {
            adapter: "adapters/vf0".to_owned(),
            action: completions(Some(Fault::Lose(v1::LoseFault {}))),
            ..change
        };
        let status = refused(v1::CreateVerbsFaultRequest {
            verbs_fault_id: "f".to_owned(),
            verbs_fault: Some(fault),
        })
        .await;
        assert_eq!(fields(&status), [format!("verbs_fault.{field}")]);
    }
    // What only the NIC knows: of these commands none has a size.
    let mut sized = create("f", commands(&["create-qp"], "invalid"));
    if let Some(fault) = &mut sized.verbs_fault {
        fault.min_bytes = Some(1);
    }
    assert_eq!(fields(&refused(sized).await), ["verbs_fault.min_bytes"]);
    let mut nobody = create("f", completions(Some(Fault::Lose(v1::LoseFault {}))));
    if let Some(fault) = &mut nobody.verbs_fault {
        fault.adapter = "adapters/nobody".to_owned();
    }
    let nobody = refused(nobody).await;
    assert_eq!(fields(&nobody), ["verbs_fault.adapter"]);
    assert!(nobody.message().contains("no adapter is named nobody"));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_has_each_rule() {
    let lab = Lab::start(1).await;
    assert_eq!(
        lab.said(&["fault", "verbs", "list"]).await,
        "no faults of verbs\n"
    );
    let rules: &[(&str, &[&str], &str)] = &[
        (
            "lie",
            &["--lie", "retry-exceeded", "--kind", "write", "--kind", "read"],
            "lie retry-exceeded",
        ),
        (
            "fail",
            &["--fail", "remote-access-error", "--qp", "17"],
            "fail remote-access-error",
        ),
        ("lose", &["--lose", "--probability", "10%"], "lose"),
        ("double", &["--double", "--count", "0"], "double"),
        ("late", &["--late", "50ms"], "late 50ms"),
        ("hang", &["--hang"], "hang"),
        ("swap", &["--swap", "10ms"], "swap, at most 10ms"),
        ("length", &["--length", "7"], "length 7"),
        ("immediate", &["--immediate", "0xbad"], "immediate 0xbad"),
        (
            "refuse",
            &[
                "--command",
                "register-mr",
                "--command",
                "create-qp",
                "--status",
                "limit-reached",
            ],
            "refuse limit-reached",
        ),
        (
            "slow",
            &[
                "--command",
                "register-mr",
                "--min-bytes",
                "4096",
                "--delay",
                "200ms",
            ],
            "delay 200ms",
        ),
        (
            "later",
            &["--command", "hello", "--delay", "1s", "--status", "in-use"],
            "delay 1s, refuse in-use",
        ),
        ("overrun", &["--overrun", "--max-bytes", "9"], "overrun"),
        ("limit", &["--srq-limit", "--after", "1h"], "from 3600s"),
        (
            "storm",
            &["--not-ready", "--qp", "17", "--process", "server", "--for", "1ns"],
            "not-ready",
        ),
        (
            "third",
            &[
                "--post",
                "send",
                "--errno",
                "enomem",
                "--operation",
                "write",
                "--operation",
                "send-imm",
            ],
            "ENOMEM",
        ),
        ("nothing", &["--post", "shared-receive", "--errno", "EIO"], "EIO"),
    ];
    for (name, options, words) in rules {
        let add = ["fault", "verbs", "add", name, "--adapter", "vf0", "--seed", "42"];
        let shown = lab.said(&[&add, *options].concat()).await;
        assert!(shown.contains(words) && shown.contains("42"), "{shown}");
    }
    let table = lab.said(&["fault", "verbs", "list"]).await;
    let lines: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(lines.len(), rules.len(), "{table}");
    for (line, words) in [
        (0, "completions: write or read "),
        (1, "completions: any, QP 17 "),
        (2, "10 %"),
        (3, "spent"),
        (9, "register-mr or create-qp "),
        (10, "register-mr, 4096 bytes or more "),
        (12, "completions: any, 0 to 9 bytes "),
        (13, "waiting"),
        (14, "messages, QP 17, process server "),
        (14, "over"),
        (15, "posts: write or send-imm "),
        (16, "posts: shared-receive "),
    ] {
        assert!(lines[line].contains(words), "{words} in\n{table}");
    }
    let json = lab.json(&["fault", "verbs", "list"]).await;
    assert_eq!(json["verbs_faults"][0]["completion"]["lie"], "RetryExceeded");
    lab.said(&["fault", "verbs", "remove", "lie", "hang"]).await;

    let add = ["fault", "verbs", "add", "x", "--adapter", "vf0"];
    for (code, options, words) in [
        (2, &[][..], "--lie"),
        (2, &["--lose", "--double"], "cannot be used with"),
        (
            2,
            &["--lose", "--command", "create-qp", "--status", "invalid"],
            "cannot be used with",
        ),
        (2, &["--command", "create-qp"], "--status"),
        (
            2,
            &["--command", "create-qp", "--status", "invalid", "--kind", "send"],
            "cannot be used with",
        ),
        (2, &["--delay", "1s", "--lose"], "cannot be used with"),
        (2, &["--not-ready", "--min-bytes", "1"], "cannot be used with"),
        (2, &["--post", "send"], "--errno <ERRNO>"),
        (2, &["--lose", "--errno", "EIO"], "cannot be used with"),
        (2, &["--post", "send", "--errno", "EMEM"], "EPERM, EIO, EAGAIN"),
        (
            2,
            &["--post", "send", "--errno", "EIO", "--kind", "write"],
            "cannot be used with",
        ),
        (2, &["--lose", "--for", "0s"], "more than 0"),
        (2, &["--lie", "success"], "local-length-error"),
        (2, &["--late", "61s"], "at most 60s"),
    ] {
        let said = lab.refused(code, &[&add, options].concat()).await;
        assert!(said.contains(words), "{words} in:\n{said}");
    }
    // The log hears of rules, and of recordings.
    for (kind, told) in [("verbs_fault_added", "lie"), ("verbs_fault_removed", "hang")] {
        let events = lab.json(&["event", "list", "--kind", kind]).await;
        let events = events["events"].as_array().cloned().unwrap_or_default();
        let mut rules = events.iter().map(|event| &event["parameters"]["fault"]);
        assert!(rules.any(|rule| rule == told), "{events:?}");
        assert_eq!(events[0]["adapter"], "adapters/vf0");
    }
    lab.said(&["fault", "record", "start"]).await;
    lab.said(&["fault", "record", "stop"]).await;
    for (kind, fact) in [
        ("recording_started", "adapters"),
        ("recording_stopped", "requests"),
    ] {
        let events = lab.json(&["event", "list", "--kind", kind]).await;
        assert!(events["events"][0]["parameters"][fact].is_string(), "{events}");
    }
    let status = lab.said(&["status"]).await;
    assert!(status.contains("$ vnicctl fault verbs remove lose\n"), "{status}");
    let said = lab.refused(1, &["fault", "verbs", "remove", "x"]).await;
    assert!(said.contains("NOT_FOUND"), "{said}");
    lab.end().await;
}

fn parse(text: &str) -> Result<Settings, String> {
    let read = Settings::from_text(
        Path::new("x.toml"),
        text,
        &Overrides::default(),
        &Environment::current(),
    );
    read.map_err(|e| e.to_string())
}

#[test]
fn the_file_has_each_rule() {
    let head = "[[adapter]]\nname = \"a\"\n[[verbs_fault]]\nname = \"r\"\nadapter = \"a\"\n";
    let completion = |fault| VerbsFaultAction::Completion {
        qp: None,
        kinds: Vec::new(),
        fault,
    };
    let ms = Duration::from_millis;
    for (text, action) in [
        (
            "lie = \"retry-exceeded\"",
            completion(CompletionFault::Lie(CompletionStatus::RetryExceeded)),
        ),
        (
            "fail = \"FLUSH_ERROR\"\nqp = 17\nkind = \"write\"",
            VerbsFaultAction::Completion {
                qp: Some(17),
                kinds: vec![CompletionKind::Write],
                fault: CompletionFault::Fail(CompletionStatus::FlushError),
            },
        ),
        ("lose = true", completion(CompletionFault::Lose)),
        ("double = true", completion(CompletionFault::Double)),
        ("late = \"50ms\"", completion(CompletionFault::Late(ms(50)))),
        ("hang = true", completion(CompletionFault::Hang)),
        (
            "swap = \"1.5ms\"",
            completion(CompletionFault::Swap(Duration::from_micros(1500))),
        ),
        ("length = 7", completion(CompletionFault::Length(7))),
        (
            "immediate = 0xffffffff",
            completion(CompletionFault::Immediate(u32::MAX)),
        ),
        (
            "command = [\"register-mr\", \"ReregisterMr\"]\nstatus = \"limit-reached\"",
            VerbsFaultAction::Command {
                commands: vec![VerbsCommand::RegisterMr, VerbsCommand::ReregisterMr],
                status: Some(CommandStatus::LimitReached),
                delay: None,
            },
        ),
        (
            "command = \"reregister-mr\"\ndelay = \"200ms\"",
            VerbsFaultAction::Command {
                commands: vec![VerbsCommand::ReregisterMr],
                status: None,
                delay: Some(ms(200)),
            },
        ),
        ("overrun = true", completion(CompletionFault::Overrun)),
        ("srq_limit = true", completion(CompletionFault::SrqLimit)),
        (
            "not_ready = true\nqp = 17",
            VerbsFaultAction::NotReady { qp: Some(17) },
        ),
        (
            "post = \"send\"\nerrno = \"ENOMEM\"\noperation = [\"write\", \"send-imm\"]\nqp = 17",
            VerbsFaultAction::Post {
                post: Post::Send,
                qp: Some(17),
                operations: vec![Operation::Write, Operation::SendImm],
                errno: PostErrno::Enomem,
            },
        ),
        (
            "post = \"shared-receive\"\nerrno = \"eio\"",
            VerbsFaultAction::Post {
                post: Post::SharedReceive,
                qp: None,
                operations: Vec::new(),
                errno: PostErrno::Eio,
            },
        ),
    ] {
        let sized = !matches!(action, VerbsFaultAction::NotReady { .. });
        let bytes = if sized {
            "min_bytes = 8\nmax_bytes = 4096\n"
        } else {
            ""
        };
        let more = "process = \"server\"\nafter = \"10s\"\nfor = \"1.5s\"\nskip = 2\nprobability = \"1%\"\ncount = 3\nseed = 4\n";
        let settings = parse(&format!("{head}{text}\n{bytes}{more}"));
        let rule = VerbsFaultSpec {
            skip: 2,
            probability: 10_000,
            count: Some(3),
            seed: Some(4),
            process: Some(ProcessMatch::Program("server".to_owned())),
            min_bytes: sized.then_some(8),
            max_bytes: sized.then_some(4096),
            after: ms(10_000),
            lasts: Some(ms(1500)),
            ..VerbsFaultSpec::new("r", "a", action)
        };
        let settings = settings.unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        assert_eq!(settings.verbs_faults, [rule], "{text}");
        // What is written is read as the same.
        let written = settings.objects().pop().expect("the rule").table(Path::new("/"));
        let again = parse(&format!("[[adapter]]\nname = \"a\"\n{written}"));
        assert_eq!(
            again.expect("valid").verbs_faults,
            settings.verbs_faults,
            "{written}"
        );
    }
}

#[test]
fn what_is_wrong_in_the_file_has_its_place() {
    let found = parse(
        r#"[[adapter]]
name = "a"
rdma = false
[[verbs_fault]]
name = "one"
adapter = "a"
lie = "success"
qp = 16777216
kind = ["write", "sends"]
[[verbs_fault]]
name = "one"
adapter = "b"
lose = false
late = "50ms"
status = "invalid"
[[verbs_fault]]
name = "two"
command = []
kind = "write"
[[verbs_fault]]
name = "three"
adapter = "b"
laet = "5ms"
process = "a-program-of-17-b"
after = "8d"
for = "0s"
min_bytes = 8
max_bytes = 7
not_ready = true
[[verbs_fault]]
name = "four"
adapter = "b"
command = "alloc-pd"
status = "invalid"
max_bytes = 7
[[verbs_fault]]
name = "five"
adapter = "b"
post = "shared-receive"
qp = 1
operation = "write"
kind = "write"
"#,
    )
    .expect_err("wrong");
    let places: Vec<&str> = found.lines().collect();
    let expected = [
        "x.toml:6:11: verbs_fault[0].adapter: a has no RDMA function",
        "x.toml:7:7: verbs_fault[0].lie: \"success\" is no status of a failure: local-length-error",
        "x.toml:8:6: verbs_fault[0].qp: 16777216 is out of range: 0 to 16777215",
        "x.toml:9:8: verbs_fault[0].kind: \"sends\" is no kind of completions: send",
        "x.toml:11:8: verbs_fault[1].name: the name one is taken by line 5",
        "x.toml:12:11: verbs_fault[1].adapter: no adapter of this file is named b",
        "x.toml:13:8: verbs_fault[1].lose: true, or no such key",
        "x.toml:14:8: verbs_fault[1].late: not allowed with lose: a rule does one thing",
        "x.toml:15:10: verbs_fault[1].status: not allowed with lose",
        "x.toml:16:1: verbs_fault[2].adapter: this key is required",
        "x.toml:16:1: verbs_fault[2].status: this key is required",
        "x.toml:18:11: verbs_fault[2].command: an empty list; leave the key out",
        "x.toml:19:8: verbs_fault[2].kind: not allowed with command",
        "x.toml:22:11: verbs_fault[3].adapter: no adapter of this file is named b",
        "x.toml:23:1: verbs_fault[3].laet: unknown key; did you mean \"late\"?",
        "x.toml:24:11: verbs_fault[3].process: \"a-program-of-17-b\" is no name of a program: 1 to 15 bytes",
        "x.toml:25:9: verbs_fault[3].after: at most 7 d",
        "x.toml:26:7: verbs_fault[3].for: more than 0, at most 7 d",
        "x.toml:27:13: verbs_fault[3].min_bytes: not allowed with not_ready",
        "x.toml:28:13: verbs_fault[3].max_bytes: 7 is less than min_bytes, 8",
        "x.toml:28:13: verbs_fault[3].max_bytes: not allowed with not_ready",
        "x.toml:32:11: verbs_fault[4].adapter: no adapter of this file is named b",
        "x.toml:35:13: verbs_fault[4].max_bytes: of commands only registrations have a size",
        "x.toml:36:1: verbs_fault[5].errno: this key is required",
        "x.toml:38:11: verbs_fault[5].adapter: no adapter of this file is named b",
        "x.toml:40:6: verbs_fault[5].qp: such posts have none",
        "x.toml:41:13: verbs_fault[5].operation: such posts have none",
        "x.toml:42:8: verbs_fault[5].kind: not allowed with post",
    ];
    assert_eq!(places.len(), expected.len(), "{found}");
    let nothing = parse("[[adapter]]\nname = \"a\"\n[[verbs_fault]]\nname = \"r\"\nadapter = \"a\"\n");
    let nothing = nothing.expect_err("it does nothing");
    let words =
        "x.toml:3:1: verbs_fault[0]: says not what happens; one of these keys is required: lie, fail, lose";
    assert!(nothing.starts_with(words), "{nothing}");
    for (place, words) in places.iter().zip(expected) {
        assert!(place.starts_with(words), "{words} in\n{found}");
    }
}

/// Rules of the file are there at the start, come and go with it, and are in what the daemon exports.
#[test]
fn rules_of_the_file_come_and_go_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let adapter = "[[adapter]]\nname = \"a\"\n";
    let rule =
        |name: &str, more: &str| format!("[[verbs_fault]]\nname = \"{name}\"\nadapter = \"a\"\n{more}\n");
    let config = [
        adapter,
        &rule("liar", "lie = \"retry-exceeded\"\nkind = \"write\""),
    ]
    .concat();
    let daemon = process::start(dir.path(), &config);
    let rules = || daemon.said(&["fault", "verbs", "list"]);
    assert!(rules().contains("lie retry-exceeded"), "{}", rules());
    daemon.said(&["fault", "verbs", "add", "own", "--adapter", "a", "--hang"]);
    let export = daemon.said(&["export"]);
    for table in [
        "lie = \"retry-exceeded\"\nkind = [\"write\"]\n",
        "name = \"own\"\nadapter = \"a\"\nhang = true\n",
    ] {
        assert!(export.contains(table), "{export}");
    }
    let file = dir.path().join("export.toml");
    let path = file.display().to_string();
    std::fs::write(&file, &export).expect("written");
    assert_eq!(
        daemon.said(&["diff", "-f", &path, "--prune"]),
        "nothing to change\n"
    );

    // Another status is another rule; one without a seed keeps the one that the daemon has chosen.
    std::fs::write(
        &file,
        [adapter, &rule("liar", "fail = \"retry-exceeded\"")].concat(),
    )
    .expect("written");
    let said = daemon.said(&["apply", "-f", &path, "--prune"]);
    for line in [
        "! verbsFaults/liar: remove and make anew: done\n",
        "- verbsFaults/own: remove: done\n",
        "lie: \"retry-exceeded\" -> none\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    assert!(
        rules().contains("fail retry-exceeded") && !rules().contains("own"),
        "{}",
        rules()
    );

    // What the file of the daemon no longer has goes, and what was made by hand stays.
    daemon.said(&["fault", "verbs", "add", "own", "--adapter", "a", "--hang"]);
    let config = [
        "metrics.listen = \"off\"\n",
        adapter,
        &rule("new", "double = true"),
    ]
    .concat();
    let config = format!(
        "nic.socket_dir = {:?}\n{config}",
        dir.path().to_str().expect("a path")
    );
    std::fs::write(dir.path().join("vnicd.toml"), config).expect("written");
    let said = daemon.said(&["server", "reload"]);
    assert!(
        said.contains("verbsFaults/liar: remove") && said.contains("verbsFaults/new: add"),
        "{said}"
    );
    let rules = rules();
    assert!(
        rules.contains("double") && rules.contains("own") && !rules.contains("liar"),
        "{rules}"
    );
}
