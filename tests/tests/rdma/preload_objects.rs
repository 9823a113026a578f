//! Programs in C on the preloaded library, beside a NIC in this process: what can be made and destroyed when, and who hears
//! of which event. The programs are beside this file.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_appliance::config::scenario_from_text;
use vnic_appliance::scenarios::Player;
use vnic_backend::settings::AdapterSettings;
use vnic_backend::{AdapterSpec, GidKind, GidSetting, MacAddr, PkeyTable, subnet};
use vnic_tests::driver::packets::{Flow, parse, udp};
use vnic_tests::driver::rdma::World;
use vnic_tests::driver::rig::{deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_tests::lab::{built, skip};

/// After this a program hangs. Never a statement about speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// The library that is preloaded.
fn library() -> Result<PathBuf> {
    built("vnic-verbs-preload", "libvnic_ibverbs.so")
}

/// A program beside this file, compiled.
fn compile(name: &str, into: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/rdma/preload_objects/{name}.c"));
    let program = into.join(name);
    let out = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .args(["-libverbs", "-lrdmacm", "-lpthread", "-ldl"])
        .output()
        .context("a compiler for C")?;
    ensure!(
        out.status.success(),
        "{} (are libibverbs-dev and librdmacm-dev installed?)",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(program)
}

/// A program that runs. Its end is waited for, whatever happens.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(program: &Path, socket: &Path, case: &str) -> Result<Program> {
        let child = Command::new(program)
            .arg(case)
            .env("LD_PRELOAD", library()?)
            .env("VNIC_SOCKET", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Program(child))
    }

    /// The next line that it says.
    fn line(&mut self) -> Result<String> {
        let output = self.0.stdout.as_mut().context("its output")?;
        let mut line = String::new();
        BufReader::with_capacity(1, output).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// It says this next.
    fn says(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == expected, "{line:?}, not {expected:?}");
        Ok(())
    }

    /// It answers this to a line, at last: what it knows of before may be a second old.
    fn answers(&mut self, question: &str, expected: &str) -> Result<()> {
        let mut last = Ok(String::new());
        let same = wait_for(|| {
            last = self.asked(question);
            last.as_ref().is_ok_and(|line| line == expected)
        });
        ensure!(same, "{question:?}: {last:?}, not {expected:?}");
        Ok(())
    }

    fn asked(&mut self, question: &str) -> Result<String> {
        let input = self.0.stdin.as_mut().context("its input")?;
        writeln!(input, "{question}")?;
        self.line()
    }

    /// It says `ok CASE` and ends without an error.
    fn finish(mut self, case: &str) -> Result<()> {
        drop(self.0.stdin.take());
        let id = rustix::process::Pid::from_child(&self.0);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        });
        let mut said = [String::new(), String::new()];
        // A program says little: neither pipe fills up.
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said[0])?;
        }
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut said[1])?;
        }
        let status = self.0.wait()?;
        drop(done);
        let _ = watch.join();
        ensure!(
            status.success() && said[0].lines().any(|line| line == format!("ok {case}")),
            "{case}: {status}: {}{}",
            said[0],
            said[1]
        );
        Ok(())
    }
}

/// Runs cases of a program, each in a process of its own, one after the other on the same adapter.
fn run(program: &str, cases: &[&str]) -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let place = tempfile::tempdir()?;
    let program = compile(program, place.path())?;
    for case in cases {
        Program::start(&program, &world.socket("vf0"), case)?.finish(case)?;
    }
    Ok(())
}

#[test]
fn devices_say_what_they_are_and_are_shared() -> Result<()> {
    run("devices", &["queries", "closing", "threads", "children"])
}

#[test]
fn processes_share_an_adapter_and_children_open_it_for_themselves() -> Result<()> {
    run("processes", &["ranks", "children_open"])
}

#[test]
fn objects_last_as_long_as_they_are_needed() -> Result<()> {
    run(
        "lifetimes",
        &[
            "domains",
            "regions",
            "completion_queues",
            "queue_pairs",
            "shared_receive_queues",
            "xrc",
            "answers",
        ],
    )
}

/// The other adapter's guest gets the segments of all requests, in order, with the headers that stood there when each was posted.
#[test]
fn frames_are_cut_into_segments() -> Result<()> {
    let mut world = World::new(1, &["vf0", "vf1"])?;
    let mut guest = world.rig.attach("vf1", Options::default())?;
    world.rig.up("vf1")?;
    guest.post(0, 200);
    let place = tempfile::tempdir()?;
    let program = compile("segments", place.path())?;
    let sent: Vec<u8> = (0..4000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    for case in ["segments", "calls"] {
        Program::start(&program, &world.socket("vf0"), case)?.finish(case)?;
        came_in_segments(&mut guest, &sent)?;
        guest.post(0, 120);
    }
    Ok(())
}

fn came_in_segments(guest: &mut Guest, sent: &[u8]) -> Result<()> {
    for request in 0..40u8 {
        let mut got = Vec::new();
        for (i, len) in [1400, 1400, 1200].into_iter().enumerate() {
            let (_, _, frame) = guest.recv(0, deadline()).context("no segment")?;
            assert_eq!(frame[18..20], (0x1234 + i as u16).to_be_bytes(), "identification");
            assert_eq!(frame[37], request, "the headers of the request");
            let segment = parse(&frame);
            assert_eq!(segment.seq, 0x1000 + 1400 * i as u32);
            assert_eq!((segment.fin_psh.1, segment.payload.len()), (i == 2, len));
            got.extend(segment.payload);
        }
        assert!(got == sent, "request {request}");
    }
    Ok(())
}

#[test]
fn frames_are_spread_over_work_queues() -> Result<()> {
    let mut world = World::new(1, &["vf0", "vf1"])?;
    let mut guest = world.rig.attach("vf1", Options::default())?;
    world.rig.up("vf1")?;
    let place = tempfile::tempdir()?;
    let program = compile("spread", place.path())?;
    Program::start(&program, &world.socket("vf0"), "objects")?.finish("objects")?;
    let mut frames = Program::start(&program, &world.socket("vf0"), "frames")?;
    frames.says("ready")?;
    for port in 1000..1064 {
        let flow = Flow {
            to: MacAddr([2, 0, 0, 0, 0, 1]),
            from: MacAddr([2, 0, 0, 0, 0, 2]),
            v6: false,
            vlan: None,
            port,
        };
        guest.send_wait(0, &udp(&flow, b"spread"), NetHdr::default());
    }
    frames.finish("frames")
}

#[test]
fn memory_is_registered_by_its_file() -> Result<()> {
    run(
        "memory",
        &["dmabufs", "shrinking", "null_regions", "imports", "unmapped"],
    )
}

#[test]
fn pages_are_given_on_demand() -> Result<()> {
    run(
        "on_demand",
        &[
            "capabilities",
            "operations",
            "shared_queues",
            "mappings",
            "rights",
            "everything",
            "threads",
            "advice",
        ],
    )
}

#[test]
fn a_dma_buf_is_registered_where_the_adapter_allows_it() -> Result<()> {
    const NAME: &str = "a_dma_buf_is_registered_where_the_adapter_allows_it";
    let driver = Path::new("/dev/udmabuf");
    if let Err(e) = std::fs::OpenOptions::new().read(true).write(true).open(driver) {
        skip(NAME, &format!("{}: {e}", driver.display()));
        return Ok(());
    }
    let world = World::new(1, &["vf0"])?;
    let place = tempfile::tempdir()?;
    let program = compile("memory", place.path())?;
    Program::start(&program, &world.socket("vf0"), "forbidden")?.finish("forbidden")?;
    let settings = AdapterSettings {
        gpu_direct: true,
        ..AdapterSettings::default()
    };
    world.rig.nic.configure_adapter("vf0", &settings)?;
    world.rig.nic.restart_adapter("vf0")?;
    Program::start(&program, &world.socket("vf0"), "udmabuf")?.finish("udmabuf")
}

#[test]
fn events_come_to_whom_they_concern() -> Result<()> {
    run(
        "events",
        &[
            "channels",
            "only_new_ones",
            "several",
            "destroying_waits",
            "signals_end_waiting",
            "asynchronous",
            "contexts",
        ],
    )
}

#[test]
fn a_process_connects_with_itself() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let gid = GidSetting {
        gid: std::net::Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped().octets(),
        kind: GidKind::RoceV2,
        vlan: None,
    };
    world.rig.nic.set_gid("vf0", Some(30), Some(gid))?;
    let place = tempfile::tempdir()?;
    let program = compile("connections", place.path())?;
    for case in [
        "addresses",
        "events_of_the_program",
        "channels",
        "destroying_waits",
        "unreachable",
        "connecting",
        "rejecting",
        "loopback",
        "without_queue_pairs",
        "endpoints",
        "xrc_endpoints",
        "datagrams",
        "groups",
    ] {
        Program::start(&program, &world.socket("vf0"), case)?.finish(case)?;
    }
    // (What goes to a group without members has nowhere to go: it is counted as dropped, and as no frame of a guest.)
    drop(world);
    Ok(())
}

const POLICY: &str = "
qos-levels
    qos-level
        name: DEFAULT
        sl: 0
    end-qos-level
    qos-level
        name: storage
        sl: 5
        mtu-limit: 2
        packet-life: 19
        pkey: 0x8002
    end-qos-level
    qos-level
        name: elsewhere
        sl: 1
        pkey: 0x9000
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        service-id: 0x1061b5b
        qos-level-name: elsewhere
    end-qos-match-rule
    qos-match-rule
        qos-class: 7
        qos-level-name: storage
    end-qos-match-rule
end-qos-match-rules
qos-ulps
    any, service-id 0x1061b59: 3
end-qos-ulps
";

#[test]
fn connections_have_the_quality_of_service_that_a_policy_gives_their_path() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let gid = GidSetting {
        gid: std::net::Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped().octets(),
        kind: GidKind::RoceV2,
        vlan: None,
    };
    let nic = &world.rig.nic;
    nic.set_gid("vf0", Some(30), Some(gid))?;
    let spec = AdapterSpec {
        pkeys: PkeyTable::new(&[0x8001, 0x8002])?,
        ..nic.adapter("vf0")?.wanted
    };
    nic.update_adapter(spec)?;
    let place = tempfile::tempdir()?;
    let program = compile("connections", place.path())?;
    let mut program = Program::start(&program, &world.socket("vf0"), "paths")?;
    let plain = "told 0, 0x8001, 16; ends 0 0, mtu 1024, P_Key 0, timeout 17";
    program.answers("7001 0", plain)?;
    program.answers("7002 28", plain)?;
    let policy = subnet::parse(POLICY).map_err(|error| anyhow::anyhow!("{error}"))?;
    nic.set_subnet_policy(Some(std::sync::Arc::new(policy)));
    // By service, by QoS class, by neither, and a level whose partition is nobody's.
    program.answers(
        "7001 0",
        "told 3, 0x8001, 0; ends 3 3, mtu 1024, P_Key 0, timeout 17",
    )?;
    program.answers(
        "7002 7",
        "told 5, 0x8002, 0; ends 5 5, mtu 512, P_Key 1, timeout 17",
    )?;
    program.answers(
        "7002 0",
        "told 0, 0x8001, 0; ends 0 0, mtu 1024, P_Key 0, timeout 17",
    )?;
    program.answers("7003 0", "no path: Network is unreachable")?;
    nic.set_subnet_policy(None);
    program.answers("7003 0", plain)?;
    program.finish("paths")
}

/// A program that runs a case until it says that it is ready.
fn ready(world: &World, case: &str) -> Result<(tempfile::TempDir, Program)> {
    let place = tempfile::tempdir()?;
    let program = compile("events", place.path())?;
    let mut program = Program::start(&program, &world.socket("vf0"), case)?;
    program.says("ready")?;
    Ok((place, program))
}

#[test]
fn the_end_of_the_daemon_is_heard_of() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let (_place, program) = ready(&world, "the_end")?;
    drop(world);
    program.finish("the_end")
}

/// A player of a scenario with these steps.
fn player(world: &World, steps: &str) -> Result<Player> {
    let text = format!("name = \"test\"\n{steps}");
    let scenario = scenario_from_text(Path::new("test.toml"), &text, &BTreeMap::new())?;
    Ok(Player::new(world.rig.nic.clone(), &scenario))
}

#[test]
fn programs_see_ports_and_devices_fail() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let gid = GidSetting {
        gid: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        kind: GidKind::RoceV2,
        vlan: None,
    };
    world.rig.nic.set_gid("vf0", Some(30), Some(gid))?;
    let (_place, mut program) = ready(&world, "outages")?;
    let steps = [
        ("mtu", "mtu = 256\nfor = \"70ms\""),
        ("port_down", "for = \"10ms\""),
        ("gid_moved", "to = 40\nfor = \"1ms\""),
        ("device_fatal", ""),
    ];
    let steps = (1..).zip(steps).map(|(n, (action, more))| {
        format!("[[step]]\nat = \"{n}0ms\"\naction = {action:?}\nadapter = \"vf0\"\n{more}\n")
    });
    let mut player = player(&world, &steps.collect::<String>())?;
    // The program asks after each event, and what it asks for must still be so.
    for (ms, said) in [
        (20, Some("down")),
        (30, Some("up")),
        (31, Some("moved")),
        (1000, None),
    ] {
        while let Some(at) = player.next().filter(|at| *at <= Duration::from_millis(ms)) {
            player.play(at).map_err(anyhow::Error::msg)?;
        }
        said.map_or(Ok(()), |said| program.says(said))?;
    }
    program.finish("outages")
}

#[test]
fn a_scenario_kills_the_process_that_has_a_device() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let (_place, mut program) = ready(&world, "the_end")?;
    let kill = "[[step]]\nat = \"1ms\"\naction = \"kill\"\nadapter = \"vf0\"\n";
    let played = player(&world, kill)?.play(Duration::from_millis(1));
    played.map_err(anyhow::Error::msg)?;
    let status = program.0.wait()?;
    ensure!(status.signal() == Some(9), "{status}");
    world.finish()
}
