//! A bump in the wire between two hosts with the real daemon: what the scenarios of `deploy/scenarios` put in is found in a capture at
//! the responder, and the engines at both ends do as the standard says.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use vnic_tests::lab::Wire;
use vnic_tests::lab::bump::sum;
use vnic_tests::lab::load::Pairs;

#[test]
fn what_is_put_into_the_wire_is_found() -> Result<()> {
    let wire = match Wire::new()? {
        Ok(wire) => wire,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    // Both ends react to marks.
    for end in &wire.ends {
        end.ctl(&["cc", "enable", "vf0", "0"])?;
    }
    let run = |scenario: &str| -> Result<Value> {
        // New queue pairs: their numbers begin anew.
        let found = wire.run(scenario, &[], || {
            Pairs::connect([&wire.ends[0], &wire.ends[1]], 2)?.write(60)
        })?;
        ensure!(
            found["flows"].as_array().is_some_and(|flows| flows.len() == 2),
            "{scenario}: {found}"
        );
        Ok(found)
    };
    let found = run("drop-one")?;
    ensure!(found["dropped_frames"] == 1 && sum(&found, "gaps") >= 1 && sum(&found, "naks") >= 1);
    let found = run("drop-twice")?;
    ensure!(found["dropped_frames"] == 2);
    let found = run("corrupt-one")?;
    ensure!(sum(&found, "corrupt") == 1 && sum(&found, "naks") >= 1);
    let found = run("mark-some")?;
    ensure!(sum(&found, "marked") > 0 && found["notifications"] != json!([]));
    // Nobody waits that long between two of many.
    let capture = wire
        .bump
        .path("state/captures/mark-some.pcapng")
        .display()
        .to_string();
    let found = wire.bump.finding(&[
        "capture",
        "check",
        &capture,
        "--at",
        "p1",
        "--cnp-interval",
        "60000000",
    ])?;
    ensure!(
        found["notifications"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|n| n["early"] == true),
        "{found}"
    );
    run("lose-acks")?;
    let found = run("swap-some")?;
    ensure!(sum(&found, "gaps") > 0 && sum(&found, "naks") > 0);
    Ok(())
}
