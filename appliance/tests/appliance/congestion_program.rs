//! Programs of congestion control by `vnicctl cc` and gRPC: NV parameters allow them, what is wrong is named, and what was loaded is
//! there after the daemon started again.

use std::path::PathBuf;

use crate::common::lab::{Lab, fields};
use tonic::Code;
use tonic_types::StatusExt as _;
use vnic_control::v1;
use vnic_control::v1::congestion_service_client::CongestionServiceClient;

const AIMD: &str = include_str!("../../../vnic-backend/engine/examples/aimd.wat");

/// Writes the example into the laboratory's folder, in binary form and as text.
fn files(lab: &Lab) -> (PathBuf, PathBuf) {
    let (binary, text) = (lab.dir.path().join("aimd.wasm"), lab.dir.path().join("aimd.wat"));
    std::fs::write(&binary, wat::parse_str(AIMD).expect("a module")).expect("a file");
    std::fs::write(&text, AIMD).expect("a file");
    (binary, text)
}

async fn nv(lab: &Lab, assignments: &[&str]) {
    let words = [&["nvconfig", "set", "-y"], assignments].concat();
    lab.said(&words).await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
}

async fn line(lab: &Lab, begins: &str) -> Option<String> {
    let shown = lab.said(&["cc", "show", "vf0"]).await;
    let line = shown.lines().find(|line| line.starts_with(begins));
    line.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_loaded_kept_and_removed() {
    let lab = Lab::start(1).await;
    let (binary, text) = files(&lab);
    let load = ["cc", "load", "vf0", binary.to_str().expect("UTF-8")];
    let said = lab.refused(1, &load).await;
    assert!(said.contains("USER_PROGRAMMABLE_CC=1"), "{said}");
    // It acts from the reset of the device on, and not with ROCE_CC_LEGACY_DCQCN.
    lab.said(&["nvconfig", "set", "-y", "USER_PROGRAMMABLE_CC=1"])
        .await;
    lab.refused(1, &load).await;
    nv(&lab, &["ROCE_CC_LEGACY_DCQCN=1"]).await;
    let said = lab.refused(1, &load).await;
    assert!(said.contains("ROCE_CC_LEGACY_DCQCN=0"), "{said}");
    let said = lab
        .refused(1, &["cc", "set", "vf0", "--algorithm", "timely"])
        .await;
    assert!(
        said.contains("timely") && said.contains("ROCE_CC_LEGACY_DCQCN=0"),
        "{said}"
    );
    nv(&lab, &["ROCE_CC_LEGACY_DCQCN=0"]).await;

    let said = lab
        .refused(1, &["cc", "set", "vf0", "--algorithm", "program"])
        .await;
    assert!(said.contains("no program is loaded"), "{said}");
    let said = lab.refused(1, &["cc", "set", "vf0", "program.cut=1"]).await;
    assert!(said.contains("no program is loaded"), "{said}");
    let said = lab
        .refused(1, &["cc", "load", "vf0", text.to_str().expect("UTF-8")])
        .await;
    assert!(said.contains("vnic-sim program"), "{said}");

    let said = lab.said(&load).await;
    assert!(said.contains("Algorithm: program\n"), "{said}");
    let program = line(&lab, "Program: ").await.expect("it is shown");
    assert!(
        program.ends_with("on_start, on_notification, on_ack, on_loss"),
        "{program}"
    );
    lab.said(&[
        "cc",
        "set",
        "vf0",
        "program.step_bps=40M",
        "program.target_ns=20us",
    ])
    .await;
    let row = |line: Option<String>| {
        let line = line.expect("a row");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        words
    };
    let step = row(line(&lab, "program.step_bps").await);
    assert_eq!(step[1..4], ["40000000", "bit/s", "set"]);
    for (wrong, problem) in [
        ("program.step_bps=1", "1M to 100G bit/s"),
        ("program.nothing=1", "beta, cut, hold_ns, step_bps, target_ns"),
    ] {
        let said = lab.refused(1, &["cc", "set", "vf0", wrong]).await;
        assert!(said.contains(problem), "{said}");
    }

    // All of it is there after the daemon started again.
    let before = lab.said(&["cc", "show", "vf0"]).await;
    let lab = lab.restart(1).await;
    assert_eq!(lab.said(&["cc", "show", "vf0"]).await, before);
    let all = lab.said(&["cc", "get", "vf0"]).await;
    assert!(all.contains("program.target_ns=20000\n"), "{all}");
    let values: Vec<&str> = all.lines().collect();
    lab.said(&[&["cc", "set", "vf0"], values.as_slice()].concat())
        .await;
    lab.said(&["cc", "set", "vf0", "program.target_ns="]).await;
    assert_eq!(row(line(&lab, "program.target_ns").await)[1], "50000");

    // NV parameters forbid it: it stays, and does not act.
    nv(&lab, &["USER_PROGRAMMABLE_CC=0"]).await;
    let note = line(&lab, "Note: program: dcqcn acts").await;
    assert!(note.is_some(), "{}", lab.said(&["cc", "show", "vf0"]).await);
    lab.said(&["cc", "set", "vf0", "program.cut=64"]).await;
    nv(&lab, &["USER_PROGRAMMABLE_CC=1"]).await;
    assert_eq!(line(&lab, "Note: program").await, None);

    let said = lab.said(&["cc", "set", "vf0", "--algorithm", "dcqcn"]).await;
    assert!(
        said.contains("Algorithm: dcqcn\n") && said.contains("\nProgram: "),
        "{said}"
    );
    lab.said(&["cc", "set", "vf0", "--algorithm", "program"]).await;
    let said = lab.said(&["cc", "unload", "vf0"]).await;
    assert!(
        said.contains("Algorithm: dcqcn\n") && !said.contains("Program"),
        "{said}"
    );
    let lab = lab.restart(1).await;
    assert_eq!(line(&lab, "Program").await, None);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_program_is_said_and_changes_nothing() {
    let lab = Lab::start(1).await;
    let mut service = CongestionServiceClient::new(lab.channel.clone());
    let mut load = async |program: Vec<u8>| {
        let request = v1::SetCongestionRequest {
            name: "adapters/vf0/congestion".to_owned(),
            program: Some(program),
            ..Default::default()
        };
        service.set_congestion(request).await
    };
    let whole = wat::parse_str(AIMD).expect("a module");
    let refused = load(whole.clone()).await.expect_err("NV parameters say no");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let info = refused.get_details_error_info().expect("a reason");
    assert_eq!(info.reason, "NOT_PROGRAMMABLE");
    nv(&lab, &["USER_PROGRAMMABLE_CC=1"]).await;
    let float = wat::parse_str("(module (memory 1) (func (param f64)))").expect("a module");
    for (bytes, problem) in [
        (b"\0asm".to_vec(), "not a WebAssembly module"),
        (whole[..whole.len() - 1].to_vec(), "at byte "),
        (float, "floating point"),
        (
            wat::parse_str("(module (memory 1))").expect("a module"),
            "\"memory\"",
        ),
        (vec![0; 65_537], "65536 are accepted"),
    ] {
        let refused = load(bytes).await.expect_err(problem);
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, vec!["program".to_owned()])
        );
        assert!(refused.message().contains(problem), "{}", refused.message());
    }
    assert_eq!(line(&lab, "Program").await, None);
    let loaded = load(whole.clone()).await.expect("it is loaded").into_inner();
    let program = loaded.program.expect("it is told");
    assert_eq!(
        (program.size as usize, program.flow_bytes, program.code.len()),
        (whole.len(), 48, 0)
    );
    lab.end().await;
}
