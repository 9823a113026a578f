//! Rules for completions and commands as people and programs see them: gRPC and the command line. What they do to a program is in
//! `tests/tests/rdma`.

use crate::common::lab::{Lab, fields};
use tonic::Code;
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
    let span = |seconds| prost_types::Duration { seconds, nanos: 0 };
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
    ] {
        let status = refused(create("f", action)).await;
        assert_eq!(fields(&status), [format!("verbs_fault.{field}")]);
    }
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
        (2, &["--lie", "success"], "local-length-error"),
        (2, &["--late", "61s"], "at most 60s"),
    ] {
        let said = lab.refused(code, &[&add, options].concat()).await;
        assert!(said.contains(words), "{words} in:\n{said}");
    }
    let said = lab.refused(1, &["fault", "verbs", "remove", "x"]).await;
    assert!(said.contains("NOT_FOUND"), "{said}");
    lab.end().await;
}
