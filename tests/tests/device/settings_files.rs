//! Settings of an adapter that a script writes into files of its card reach the daemon, and the files show what the daemon has.

use std::process::Command;

use anyhow::{Result, ensure};
use vnic_tests::lab::hosts::two_cpus;
use vnic_tests::lab::{Host, Namespace, PATIENCE, built, output, wait_for};

/// Waits until a file has a text: the keeper of the files sees a write when the file is closed.
const SCRIPT: &str = r#"
    has() { until [ "$(cat "$1")" = "$2" ]; do sleep 0.02; done; }
    class=/sys/class/infiniband/mlx5_0/tc/1/traffic_class
    cd /sys/kernel/debug/mlx5/*/cc_params
    cat rp_ai_rate
    echo 106 >$class; has $class "Global tclass=106"
    echo 50 >rp_ai_rate; has rp_ai_rate 50
    echo 64 >np_cnp_dscp; has np_cnp_dscp 0
    echo -1 >$class; has $class ""
    # The last is taken though nobody waits for it.
    echo 105 >$class
"#;

#[test]
fn what_a_script_writes_into_a_cards_files_is_set() -> Result<()> {
    let net = match Namespace::new()? {
        Ok(net) => net,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let host = Host::start("settings", net, two_cpus()?[0], "[[adapter]]\nname = \"vf0\"\n")?;
    let said = output(
        Command::new(built("vnic-guest", "vnic-verbs")?)
            .args(["run", "--files", "only", "--name", "mlx5_0", "--socket"])
            .arg(host.rdma_socket("vf0"))
            .args([
                "--",
                "timeout",
                &PATIENCE.as_secs().to_string(),
                "sh",
                "-c",
                SCRIPT,
            ]),
    )?;
    ensure!(said == "10\n", "{said}");
    let parameters = host.ctl(&["cc", "show", "vf0"])?;
    let rate = parameters["parameters"].as_array().into_iter().flatten();
    let rate = rate
        .filter(|p| p["name"] == "DcqcnRpgAiRate")
        .map(|p| p["value"].clone());
    ensure!(rate.collect::<Vec<_>>() == ["50"], "{parameters}");
    wait_for("the last write", PATIENCE, || {
        let class = host.ctl(&["qos", "show", "vf0"])?["forced_traffic_class"].clone();
        ensure!(class == 105, "{class}");
        Ok(())
    })
}
