//! The configuration file: what is accepted, and that everything which is wrong is reported with its place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vnic_appliance::config::{Environment, Overrides, Settings};
use vnic_backend::lag::TeamType;
use vnic_backend::subnet::GroupSpec;
use vnic_backend::{PortKind, SocketRole, VlanMode};

fn environment() -> Environment {
    Environment {
        runtime_directory: None,
        state_directory: None,
        xdg_runtime_dir: Some("/run/user/1000".into()),
        root: false,
        cpus: (0..8).collect(),
        machine_id: "test".to_owned(),
    }
}

fn parse(text: &str) -> Result<Settings, String> {
    Settings::from_text(Path::new("x.toml"), text, &Overrides::default(), &environment())
        .map_err(|e| e.to_string())
}

#[track_caller]
fn errors(text: &str, expected: &[&str]) {
    let found = parse(text).expect_err("the file is wrong");
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "in:\n{text}");
}

#[test]
fn an_empty_file_is_a_nic_without_adapters() {
    let settings = parse("").expect("valid");
    assert_eq!(settings.socket_dir, Path::new("/run/user/1000/vnic"));
    assert_eq!(settings.state_dir, Path::new("/run/user/1000/vnic/state"));
    assert_eq!(
        settings.control.unix,
        Path::new("/run/user/1000/vnic/control.sock")
    );
    assert_eq!((settings.control.mode, settings.control.tcp), (0o660, None));
    assert_eq!(settings.metrics, Some(([127, 0, 0, 1], 9400).into()));
    assert_eq!(settings.nic.data_cores, [7]);
    assert!(settings.adapters.is_empty() && settings.ports.is_empty());
}

#[test]
fn every_key_is_read() {
    let settings = parse(
        r#"
        [nic]
        data_cores = "2,4-5"
        idle_spin_us = 7
        mac_ageing_s = 60
        socket_dir = "/s"
        state_dir = "/t"
        [control]
        listen = ["unix:/c.sock", "tcp:[::1]:0"]
        tls = { certificate = "/c.pem", key = "/c.key", client_ca = "/ca.pem" }
        mode = "0600"
        group = "12"
        [metrics]
        listen = "off"
        [[adapter]]
        name = "blue"
        mac = "02:00:00:00:00:01"
        macs = ["02-00-00-00-00-02"]
        mtu = 9000
        queue_pairs = 4
        vlan = { access = 10 }
        anti_spoofing = false
        data_core = 4
        socket_role = "connect"
        socket_owner = "root"
        socket_group = "7"
        socket_mode = "0600"
        socket_users = ["root", "1001"]
        allowed_addresses = ["10.0.0.5", "10.0.1.0/24", "fd00::/64"]
        pkeys = ["0x8001", "2"]
        socket = "/elsewhere.sock"
        rdma = true
        rdma_socket = "/elsewhere-rdma.sock"
        [[adapter]]
        name = "plain"
        rdma = false
        [[adapter]]
        name = "red"
        vlan = { trunk = [20, 30], native = 5 }
        [[port]]
        name = "p0"
        type = "tap"
        ifname = "tap0"
        queues = 4
        mtu = 2000
        speed_mbps = 25000
        storm_broadcast_pps = 1000
        storm_unknown_unicast_pps = 5000
        vlan = { trunk = "all" }
        data_core = 2
        "#,
    )
    .expect("valid");
    assert_eq!(settings.nic.data_cores, [2, 4, 5]);
    assert_eq!(settings.nic.idle_spin, Duration::from_micros(7));
    assert_eq!(settings.nic.switch.ageing, Duration::from_secs(60));
    assert_eq!(settings.control.unix, Path::new("/c.sock"));
    assert_eq!((settings.control.mode, settings.control.group), (0o600, Some(12)));
    assert!(settings.control.tcp.is_some() && settings.metrics.is_none());
    let blue = &settings.adapters[0];
    assert_eq!(blue.macs.len(), 2);
    assert_eq!((blue.mtu, blue.queue_pairs, blue.data_core), (9000, 4, Some(4)));
    assert_eq!(blue.vlan, VlanMode::Access(10));
    assert_eq!(
        (blue.anti_spoofing, blue.socket_role),
        (false, SocketRole::Connect)
    );
    let access = &blue.socket_access;
    assert_eq!(
        (access.owner, access.group, access.mode),
        (Some(0), Some(7), 0o600)
    );
    assert_eq!(blue.socket_access.users, [0, 1001]);
    let allowed = blue.allowed_addresses.iter().map(ToString::to_string);
    assert!(allowed.eq(["10.0.0.5", "10.0.1.0/24", "fd00::/64"]));
    assert_eq!(blue.pkeys.as_slice(), [0x8001, 2]);
    assert_eq!(settings.adapters[1].pkeys.as_slice(), [0xffff]);
    assert_eq!(blue.eth_socket, Path::new("/elsewhere.sock"));
    let rdma_socket = |i: usize| settings.adapters[i].rdma_socket.as_deref();
    assert_eq!(rdma_socket(0), Some(Path::new("/elsewhere-rdma.sock")));
    assert_eq!(rdma_socket(1), None);
    assert_eq!(rdma_socket(2), Some(Path::new("/s/red-rdma.sock")));
    let red = &settings.adapters[2];
    assert_eq!(
        red.vlan,
        VlanMode::Trunk {
            native: 5,
            allowed: Some(BTreeSet::from([20, 30]))
        }
    );
    assert_eq!((red.macs.len(), red.anti_spoofing), (1, true));
    assert_eq!(red.eth_socket, Path::new("/s/red-eth.sock"));
    let p0 = &settings.ports[0];
    assert_eq!(
        p0.kind,
        PortKind::Tap {
            ifname: "tap0".to_owned(),
            queues: 4,
        }
    );
    assert_eq!(p0.speed_mbps, Some(25_000));
    let storm = p0.storm;
    assert_eq!(
        (storm.broadcast_pps, storm.unknown_unicast_pps),
        (Some(1000), Some(5000))
    );
    assert_eq!((p0.kind.ifname(), p0.mtu, p0.data_core), ("tap0", 2000, Some(2)));
    assert_eq!(p0.vlan, VlanMode::default());
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    errors(
        "[nic]\nidle_spin_us = -1\nmac_agein_s = 5\n\n[[adapter]]\nname = \"Blue\"\nmtu = \"big\"\nqueue_pairs = 17\n\n\
         [[adapter]]\nmac = \"01:00:00:00:00:01\"\nanti_spoofing = 1\nvlan = { access = 4095 }\n\
         allowed_addresses = [\"10.0.0.5\", \"10.0.1.5/24\"]\n",
        &[
            "x.toml:2:16: nic.idle_spin_us: -1 is out of range: 0 to 1000000 microseconds",
            "x.toml:3:1: nic.mac_agein_s: unknown key; did you mean \"mac_ageing_s\"?",
            "x.toml:6:8: adapter[0].name: \"Blue\" is not a name: 1 to 15 of a-z, 0-9, '-' and '_', beginning \
             with a letter or digit",
            "x.toml:7:7: adapter[0].mtu: expected an integer, found string \"big\"",
            "x.toml:8:15: adapter[0].queue_pairs: 17 is out of range: 1 to 16",
            "x.toml:10:1: adapter[1].name: this key is required",
            "x.toml:11:7: adapter[1].mac: 01:00:00:00:00:01 is a group address: the first byte of an adapter's \
             own address must be even",
            "x.toml:12:17: adapter[1].anti_spoofing: expected true or false, found integer `1`",
            "x.toml:13:19: adapter[1].vlan.access: 4095 is out of range: 1 to 4094",
            "x.toml:14:34: adapter[1].allowed_addresses[1]: \"10.0.1.5/24\": the address has bits that are not in its \
             prefix; the prefix is 10.0.1.0/24",
        ],
    );
}

#[test]
fn what_is_no_table_of_p_keys_is_refused() {
    errors(
        "[[adapter]]\nname = \"a\"\npkeys = [\"0x8000\"]\n[[adapter]]\nname = \"b\"\npkeys = [\"1\", \"0x10000\"]\n",
        &[
            "x.toml:3:9: adapter[0].pkeys: P_Key 0x8000 is of no partition: 0x0001 to 0x7fff are allowed for limited members, \
             0x8001 to 0xffff for full ones",
            "x.toml:6:9: adapter[1].pkeys: \"0x10000\" is no P_Key: 0x0001 to 0xffff are allowed",
        ],
    );
}

#[test]
fn syntax_errors_have_a_place() {
    let found = parse("[nic]\ndata_cores = [1,\nx = \n").expect_err("broken");
    assert!(found.starts_with("x.toml:"), "{found}");
    let place: Vec<&str> = found.split(':').take(3).collect();
    assert!(
        place[1].parse::<usize>().is_ok() && place[2].parse::<usize>().is_ok(),
        "{found}"
    );
    errors("a = 1\na = 2\n", &["x.toml:2:1: duplicate key"]);
}

#[test]
fn names_and_addresses_are_used_once() {
    errors(
        "[[adapter]]\nname = \"a\"\nmac = \"02:00:00:00:00:01\"\n[[adapter]]\nname = \"a\"\n[[adapter]]\nname = \"b\"\n\
         macs = [\"02:00:00:00:00:02\", \"02:00:00:00:00:01\"]\n[[port]]\nname = \"b\"\ntype = \"tap\"\nifname = \"t\"\n",
        &[
            "x.toml:5:8: adapter[1].name: the name a is taken by line 2; names are unique among adapters and ports",
            "x.toml:8:30: adapter[2].macs[1]: 02:00:00:00:00:01 belongs to adapter a (line 3); each address belongs \
             to one adapter",
            "x.toml:10:8: port[0].name: the name b is taken by line 7; names are unique among adapters and ports",
        ],
    );
    errors(
        "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\n[[port]]\nname = \"p1\"\ntype = \"xdp\"\n\
         ifname = \"eth0\"\n",
        &["x.toml:8:10: port[1].ifname: port p0 has the network device eth0: a device is one port"],
    );
}

#[test]
fn cores_must_exist_and_be_data_cores() {
    errors(
        "[nic]\ndata_cores = [1, 99]\n",
        &["x.toml:2:14: nic.data_cores: CPU 99 is not one this process may run on: 0, 1, 2, 3, 4, 5, 6, 7"],
    );
    errors(
        "[nic]\ndata_cores = [1, 1]\n",
        &["x.toml:2:14: nic.data_cores: CPU 1 is named twice"],
    );
    errors(
        "[nic]\ndata_cores = []\n",
        &["x.toml:2:14: nic.data_cores: at least one data core is needed"],
    );
    errors(
        "[nic]\ndata_cores = [1]\n[[adapter]]\nname = \"a\"\ndata_core = 2\n",
        &["x.toml:5:13: adapter[0].data_core: CPU 2 is not a data core: only 1"],
    );
}

#[test]
fn tcp_takes_certificates() {
    for address in ["0.0.0.0:9401", "127.0.0.1:0"] {
        let found = parse(&format!("[control]\nlisten = [\"tcp:{address}\"]\n")).expect_err("refused");
        let begin =
            format!("x.toml:2:10: control.listen: tcp:{address} takes mutual TLS: name certificate, key and");
        assert!(found.starts_with(&begin), "{found}");
    }
    let tls = "[control.tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n";
    let settings = parse(&format!("control.listen = \"tcp:0.0.0.0:9401\"\n{tls}")).expect("valid");
    assert_eq!(settings.control.tls.expect("files").client_ca, Path::new("/a"));
    errors(
        "[control.tls]\ncertificate = \"c\"\nca = \"/a\"\n",
        &[
            "x.toml:1:1: control.tls.key: this key is required",
            "x.toml:1:1: control.tls.client_ca: this key is required",
            "x.toml:2:15: control.tls.certificate: \"c\" is not an absolute path",
            "x.toml:3:1: control.tls.ca: unknown key; allowed here: certificate, client_ca, client_crl, key",
        ],
    );
    errors(
        "[control]\nlisten = [\"unix:/a\", \"unix:/b\"]\n",
        &["x.toml:2:10: control.listen: at most one Unix socket and one TCP address are allowed"],
    );
}

#[test]
fn who_opens_sockets_must_exist_and_be_let_in() {
    errors(
        "[[adapter]]\nname = \"a\"\nsocket_owner = \"nobody-here\"\nsocket_group = \"4294967295\"\nsocket_mode = \"0680\"\n\
         [[adapter]]\nname = \"b\"\nsocket_mode = \"0440\"\n[[adapter]]\nname = \"c\"\nsocket_mode = 660\n",
        &[
            "x.toml:3:16: adapter[0].socket_owner: \"nobody-here\" is not a user of this machine: a name in \
             /etc/passwd or a number",
            "x.toml:4:16: adapter[0].socket_group: \"4294967295\" is not a group of this machine: a name in \
             /etc/group or a number",
            "x.toml:5:15: adapter[0].socket_mode: \"0680\" is not a mode: three or four octal digits such as \
             \"0660\", without bits beyond 0777",
            "x.toml:8:15: adapter[1].socket_mode: \"0440\" lets nobody connect, which takes the right to write: \
             \"0660\" lets owner and group",
            "x.toml:11:15: adapter[2].socket_mode: expected a string, found integer `660`",
        ],
    );
}

#[test]
fn wrong_shapes_are_named() {
    errors(
        "nic = 1\n",
        &["x.toml:1:7: nic: expected a table, found integer `1`"],
    );
    errors(
        "[adapter]\nname = \"a\"\n",
        &["x.toml:1:1: adapter: expected tables, each written as [[adapter]], found table"],
    );
    errors(
        "[[adapter]]\nname = \"a\"\nvlan = { access = 1, native = 2 }\n",
        &[
            "x.toml:3:8: adapter[0].vlan: either access = VLAN, or trunk = [VLAN, …] or \"all\" with native = VLAN \
             is allowed, not both",
        ],
    );
    errors(
        "[[port]]\nname = \"p\"\ntype = \"wire\"\n",
        &[
            "x.toml:1:1: port[0].ifname: this key is required",
            "x.toml:3:8: port[0].type: \"wire\"; allowed are \"tap\", \"packet\", \"xdp\", \"mesh\"",
        ],
    );
    errors(
        "[[port]]\nname = \"p\"\ntype = \"packet\"\nifname = \"eth0\"\nqueues = 2\nspeed_mbps = 400001\n\
         [[port]]\nname = \"q\"\ntype = \"tap\"\nifname = \"t\"\nqueues = 9\nspeed_mbps = 0\nstorm_broadcast_pps = 0\n",
        &[
            "x.toml:5:10: port[0].queues: only a port of type \"tap\" has queues",
            "x.toml:6:14: port[0].speed_mbps: 400001 is out of range: 1 to 400000 Mbit/s",
            "x.toml:11:10: port[1].queues: 9 is out of range: 1 to 8",
            "x.toml:12:14: port[1].speed_mbps: 0 is out of range: 1 to 400000 Mbit/s",
            "x.toml:13:23: port[1].storm_broadcast_pps: 0 is out of range: 1 to 100000000 frames a second",
        ],
    );
    errors(
        "[frobnicate]\n",
        &[
            "x.toml:1:2: frobnicate: unknown key; allowed here: access, adapter, control, events, fault, metrics, nic, port, subnet, team, tracing, verbs_fault",
        ],
    );
}

#[test]
fn columns_count_characters() {
    errors(
        "[[adapter]]\nname = \"ä\"\nvlan = { trunk = \"ä\", native = 0 }\n",
        &[
            "x.toml:2:8: adapter[0].name: \"ä\" is not a name: 1 to 15 of a-z, 0-9, '-' and '_', beginning with a \
             letter or digit",
            "x.toml:3:18: adapter[0].vlan.trunk: \"ä\": \"all\" or a list of VLANs is allowed",
            "x.toml:3:32: adapter[0].vlan.native: 0 is out of range: 1 to 4094",
        ],
    );
}

#[test]
fn sockets_belong_to_one_function_of_one_adapter() {
    errors(
        "[[adapter]]\nname = \"a\"\nsocket = \"/x\"\nrdma_socket = \"/x\"\n[[adapter]]\nname = \"b\"\nrdma_socket = \"/x\"\n\
         [[adapter]]\nname = \"c\"\nrdma = false\nrdma_socket = \"/c\"\n[[adapter]]\nname = \"d\"\nrdma = 1\n\
         [[adapter]]\nname = \"e\"\nrdma_socket = \"e.sock\"\n",
        &[
            "x.toml:4:15: adapter[0].rdma_socket: /x is the socket of adapter a",
            "x.toml:7:15: adapter[1].rdma_socket: /x is the socket of adapter a",
            "x.toml:11:15: adapter[2].rdma_socket: an adapter with rdma = false has no such socket: leave out one of the two",
            "x.toml:14:8: adapter[3].rdma: expected true or false, found integer `1`",
            "x.toml:17:15: adapter[4].rdma_socket: e.sock is not an absolute path",
        ],
    );
}

#[test]
fn a_socket_path_that_is_too_long_is_refused_before_the_daemon_starts() {
    let dir = format!("/{}", "d".repeat(100));
    let found = parse(&format!(
        "[nic]\nsocket_dir = \"{dir}\"\n[[adapter]]\nname = \"a\"\n"
    ))
    .expect_err("too long");
    assert!(found.contains("at most 107"), "{found}");
}

#[test]
fn the_command_line_overrides_the_file() {
    let overrides = Overrides {
        socket_dir: Some("/o".into()),
        metrics: Some(None),
        data_cores: Some(vec![3]),
        ..Overrides::default()
    };
    let text = "[nic]\nsocket_dir = \"/f\"\ndata_cores = [1]\n[metrics]\nlisten = \"127.0.0.1:1\"\n[[adapter]]\nname = \"a\"\ndata_core = 3\n";
    let settings = Settings::from_text(Path::new("x"), text, &overrides, &environment()).expect("valid");
    assert_eq!(settings.socket_dir, Path::new("/o"));
    assert_eq!(settings.adapters[0].eth_socket, Path::new("/o/a-eth.sock"));
    assert_eq!((settings.metrics, settings.nic.data_cores), (None, vec![3]));
}

#[test]
fn directories_follow_systemd_then_root_then_the_user() {
    let mut surroundings = environment();
    assert_eq!(
        surroundings.socket_dir(),
        Ok(PathBuf::from("/run/user/1000/vnic"))
    );
    surroundings.root = true;
    assert_eq!(surroundings.socket_dir(), Ok(PathBuf::from("/run/vnic")));
    assert_eq!(
        surroundings.state_dir(Path::new("/run/vnic")),
        Path::new("/var/lib/vnic")
    );
    assert_eq!(surroundings.state_dir(Path::new("/x")), Path::new("/x/state"));
    surroundings.runtime_directory = Some("/run/other".into());
    surroundings.state_directory = Some("/var/lib/other".into());
    assert_eq!(surroundings.socket_dir(), Ok(PathBuf::from("/run/other")));
    assert_eq!(
        surroundings.state_dir(Path::new("/x")),
        Path::new("/var/lib/other")
    );
    let nowhere = Environment {
        xdg_runtime_dir: None,
        ..environment()
    };
    assert!(nowhere.socket_dir().is_err_and(|e| e.contains("--socket-dir")));
}

/// The example of `deploy`, as it is and with every setting in it switched on.
#[test]
fn the_example_is_valid_and_complete() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config/vnicd.toml");
    let example = std::fs::read_to_string(path).expect("the example");
    let plain = parse(&example).expect("the example is valid");
    assert_eq!(plain.adapters.len(), 1);

    let all: String = example
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // The people of the example may not exist on this machine.
    let all = all.replace("group = \"kvm\"", "group = \"0\"");
    let all = all.replace("\"libvirt-qemu\"", "\"64055\"");
    let all = all.replace("{ alice =", "{ 1000 =").replace("{ kvm =", "{ 36 =");
    let switched_on = parse(&all).expect("every setting of the example is valid");
    assert_eq!((switched_on.ports.len(), switched_on.faults.len()), (3, 5));
    assert_eq!((switched_on.teams.len(), switched_on.verbs_faults.len()), (2, 14));
    assert_eq!(switched_on.subnet_groups.len(), 1);

    // An unknown key in each section makes the reader tell every key it knows.
    let probe = "zzzzzzzzzzzzzzzz = 1\n";
    let told = parse(&format!(
        "[nic]\n{probe}[control]\n{probe}[control.tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n{probe}[access]\n{probe}[events]\n{probe}[metrics]\n{probe}[tracing]\n{probe}[subnet]\n{probe}[[subnet.group]]\nname = \"g\"\npartition = \"1\"\n{probe}[[adapter]]\nname = \"a\"\n{probe}[[port]]\nname = \
         \"p\"\ntype = \"tap\"\nifname = \"t\"\n{probe}[[port]]\nname = \"m\"\ntype = \"mesh\"\nlisten = \"0.0.0.0:1\"\ncertificate = \"/c\"\nkey = \"/k\"\nca = \"/a\"\nnames = [\"*\"]\n{probe}[[team]]\nname = \"t\"\ntype = \"failover\"\nmembers = [\"p\"]\n{probe}[[fault]]\nname = \"f\"\naction = \"drop\"\n{probe}[[verbs_fault]]\nname = \"v\"\nadapter = \"a\"\nlose = true\n{probe}"
    ))
    .expect_err("unknown keys");
    let mut keys = 0;
    for line in told.lines() {
        let (_, known) = line.split_once("allowed here: ").expect("the list of keys");
        for key in known.split(", ") {
            assert!(
                all.lines()
                    .any(|l| l.starts_with(&format!("{key} = ")) || l.ends_with(&format!(".{key}]"))),
                "{key} is missing in the example"
            );
            keys += 1;
        }
    }
    assert!(keys > 40, "{told}");
}

#[test]
fn multicast_groups_are_read() {
    let text = "[subnet]\npolicy_file = \"/p\"\n[[subnet.group]]\nname = \"all\"\npartition = \"0xffff\"\n[[subnet.group]]\n\
                name = \"v\"\npartition = \"0x8001\"\nmgid = \"ff15::1\"\nqkey = 7\nmtu = 256\nrate_mbps = 2500\nsl = 15\nlifetime = 0\n";
    let settings = parse(text).expect("valid");
    let [(all, first), (v, second)] = settings.subnet_groups.as_slice() else {
        panic!("{:?}", settings.subnet_groups);
    };
    assert_eq!((all.as_str(), v.as_str()), ("all", "v"));
    let plain = GroupSpec {
        mgid: GroupSpec::broadcast_gid(0xffff),
        pkey: 0xffff,
        qkey: 0xb1b,
        mtu: 3,
        rate: 3,
        packet_life: 18,
        sl: 0,
    };
    assert_eq!(*first, plain);
    assert_eq!((second.pkey, second.qkey, second.mtu), (0x8001, 7, 1));
    assert_eq!((second.rate, second.sl, second.packet_life), (2, 15, 0));
    assert_eq!(second.mgid.to_string(), "ff15::1");

    let group = |name: &str, rest: &str| {
        format!("[[subnet.group]]\nname = \"{name}\"\npartition = \"0x8001\"\n{rest}\n")
    };
    for (line, problem) in [
        (
            "mgid = \"x\"",
            "4:8: subnet.group[0].mgid: \"x\" is no IPv6 address",
        ),
        (
            "mgid = \"fe80::1\"",
            "4:8: subnet.group[0].mgid: fe80::1 is no multicast address: a group's GID begins with ff",
        ),
        (
            "qkey = 0x80000000",
            "4:8: subnet.group[0].qkey: Q_Key 0x80000000 is out of range: 0 to 0x7fffffff",
        ),
        (
            "qkey = -1",
            "4:8: subnet.group[0].qkey: -1 is out of range: 0 to 0x7fffffff",
        ),
        (
            "mtu = 1500",
            "4:7: subnet.group[0].mtu: 1500: 256, 512, 1024, 2048, 4096 are allowed",
        ),
        ("sl = 16", "4:6: subnet.group[0].sl: 16 is out of range: 0 to 15"),
        (
            "lifetime = 64",
            "4:12: subnet.group[0].lifetime: 64 is out of range: 0 to 63",
        ),
    ] {
        errors(&group("a", line), &[&format!("x.toml:{problem}")]);
    }
    let told = parse(&group("a", "rate_mbps = 0")).expect_err("no such rate");
    assert!(
        told.starts_with("x.toml:4:13: subnet.group[0].rate_mbps: 0: 2500, 5000, 10000"),
        "{told}"
    );
    errors(
        "[[subnet.group]]\nname = \"a\"\n",
        &["x.toml:1:1: subnet.group[0].partition: this key is required"],
    );
    errors(
        "[[subnet.group]]\nname = \"a\"\npartition = \"0x8000\"\n",
        &[
            "x.toml:3:13: subnet.group[0].partition: P_Key 0x8000 is of no partition: 0x0001 to 0x7fff, with or without 0x8000, are allowed",
        ],
    );
    let two = group("a", "") + &group("a", "mgid = \"ff15::1\"");
    errors(
        &two,
        &[
            "x.toml:6:8: subnet.group[1].name: the name a is taken by line 2; names are unique among multicast groups",
        ],
    );
    let two = group("a", "") + &group("b", "");
    errors(
        &two,
        &["x.toml:5:1: subnet.group[1].mgid: the group \"a\" has the GID ff12:401b:8001::ffff:ffff"],
    );
}

#[test]
fn teams_are_read() {
    let ports = "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"a\"\n[[port]]\nname = \"p1\"\ntype = \
                 \"packet\"\nifname = \"b\"\n";
    let text = format!(
        "{ports}[[team]]\nname = \"My Team\"\ntype = \"aggregate\"\nmembers = [\"p1\", \"p0\"]\nteam_mac_of = \"p0\"\n\
         hash = \"five-tuple\"\nlacp = \"passive\"\nlacp_slow = true\nlacp_priority = 1\nlacp_key = 7\nfailback_delay = \
         \"5s\"\nquiet = \"2ms\"\npatience = \"never\"\nview_flows = 64\nvlan_id = 100\nvlan_prio = 3\nvlan = {{ access = \
         10 }}\n"
    );
    let settings = parse(&text).expect("valid");
    let [team] = settings.teams.as_slice() else {
        panic!("{:?}", settings.teams);
    };
    assert_eq!((team.name.as_str(), team.kind), ("My Team", TeamType::Aggregate));
    assert_eq!(team.members, ["p1", "p0"]);
    assert_eq!(
        (team.mac_of.as_deref(), team.vlan_id, team.vlan_prio),
        (Some("p0"), 100, 3)
    );
    let more = &team.settings;
    let lacp = more.lacp.expect("LACP");
    assert_eq!((lacp.active, lacp.short_timeout), (false, false));
    assert_eq!((lacp.system_priority, lacp.key), (1, 7));
    assert_eq!(more.hash.name(), "five-tuple");
    assert_eq!(
        (more.bond.failback_delay, more.bond.quiet),
        (Duration::from_secs(5), Duration::from_millis(2))
    );
    assert_eq!((more.bond.patience, more.bond.flows), (None, 64));
    assert_eq!(more.vlan, VlanMode::Access(10));

    let failover = format!(
        "{ports}[[team]]\nname = \"b\"\ntype = \"Failover\"\nmembers = [\"p0\", \"p1\"]\nprimary = \"p1\"\nno_failback \
         = true\n"
    );
    let team = parse(&failover).expect("valid").teams.remove(0);
    assert_eq!(
        (team.kind, team.primary.as_deref()),
        (TeamType::Failover, Some("p1"))
    );
    assert!(team.no_failback);
}

#[test]
fn wrong_teams_are_told_with_line_and_key() {
    let ports = "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"a\"\n";
    let wrong = |team: &str, expected: &[&str]| errors(&format!("{ports}{team}"), expected);
    wrong(
        "[[team]]\nname = \"a\"\ntype = \"mirror\"\nhash = \"layer4\"\nlacp = \"on\"\nvlan_id = 4095\nvlan_prio = 8\n\
         members = [\"p0\", \"p7\"]\n",
        &[
            "x.toml:7:8: team[0].type: \"aggregate\" or \"failover\" is allowed",
            "x.toml:8:8: team[0].hash: \"layer4\"; allowed: layer2, layer2+3, layer3+4, five-tuple; did you mean \
             \"layer2\"?",
            "x.toml:9:8: team[0].lacp: \"on\": \"off\", \"active\" or \"passive\" is allowed",
            "x.toml:10:11: team[0].vlan_id: 4095 is out of range: 0 to 4094 (0: none)",
            "x.toml:11:13: team[0].vlan_prio: 8 is out of range: 0 to 7",
            "x.toml:12:18: team[0].members[1]: no port of this file is named p7",
        ],
    );
    wrong(
        "[[team]]\nname = \"a\"\ntype = \"aggregate\"\nmembers = [\"p0\"]\n[[team]]\nname = \"A\"\ntype = \"aggregate\"\n\
         members = [\"p0\"]\n",
        &[
            "x.toml:10:8: team[1].name: the name \"A\" is taken by line 6; names of teams differ by more than case",
            "x.toml:12:12: team[1].members[0]: p0 is in team \"a\" (line 8); a port is in one team at most",
        ],
    );
    for (keys, expected) in [
        (
            "type = \"aggregate\"\nprimary = \"p0\"",
            "x.toml:9:11: team[0].primary: all members of an aggregate team carry frames; allowed: with failover",
        ),
        (
            "type = \"aggregate\"\nno_failback = true",
            "x.toml:9:15: team[0].no_failback: an aggregate team has no primary to go back to; allowed: with type \
             \"failover\"",
        ),
        (
            "type = \"failover\"\nprimary = \"p1\"",
            "x.toml:9:11: team[0].primary: p1 is none of its members",
        ),
        (
            "type = \"failover\"\nlacp = \"active\"",
            "x.toml:9:8: team[0].lacp: one member of a failover team carries all frames; allowed: off, or with aggregate",
        ),
        (
            "type = \"aggregate\"\nquiet = \"2s\"",
            "x.toml:9:9: team[0].quiet: 2s; allowed: at most 1s",
        ),
        (
            "type = \"aggregate\"\nhsah = \"layer2\"",
            "x.toml:9:1: team[0].hsah: unknown key; did you mean \"hash\"?",
        ),
    ] {
        wrong(
            &format!("[[team]]\nname = \"a\"\nmembers = [\"p0\"]\n{keys}\n"),
            &[expected],
        );
    }
    wrong(
        "[[team]]\nname = \" a\"\ntype = \"aggregate\"\n",
        &[
            "x.toml:5:1: team[0].members: this key is required",
            "x.toml:6:8: team[0].name: \" a\"; allowed: no control characters, no space at its ends",
        ],
    );
}

#[test]
fn roles_are_given_to_users_groups_and_certificates() {
    use vnic_appliance::access::Role::{Admin, Operator, Viewer};
    let settings = parse("").expect("valid");
    assert_eq!(settings.access.default, Some(Viewer));
    let text = "[access]\ndefault = \"none\"\nusers = { root = \"operator\", 1000 = \"admin\" }\n\
                groups = { 36 = \"viewer\" }\ncertificates = { \"a.example.com\" = \"admin\" }\n";
    let access = parse(text).expect("valid").access;
    assert_eq!(access.users, [(0, Operator), (1000, Admin)].into());
    assert_eq!(access.groups, [(36, Viewer)].into());
    assert_eq!(access.certificates["a.example.com"], Admin);
    assert_eq!(access.default, None);
    errors(
        "[access]\ndefault = \"root\"\nusers = { nobody-here = \"admin\", 5 = \"king\", 6 = 7 }\n\
         [access.groups]\nroot = \"viewer\"\n0 = \"viewer\"\n[access.certificates]\n\"\" = \"viewer\"\n",
        &[
            "x.toml:2:11: access.default: \"root\" is no role: \"viewer\", \"operator\" and \"admin\" are allowed, and \
             \"none\"",
            "x.toml:3:11: access.users.nobody-here: \"nobody-here\" is not a user of this machine: a name in /etc/passwd \
             or a number",
            "x.toml:3:38: access.users.5: \"king\" is no role: \"viewer\", \"operator\" and \"admin\" are allowed",
            "x.toml:3:50: access.users.6: expected a string, found integer `7`",
            "x.toml:5:1: access.groups.root: this one has a role already, by its name or its number",
            "x.toml:8:1: access.certificates.: a name of a certificate is not empty",
        ],
    );
}

#[test]
fn a_mesh_has_keys_of_its_own() {
    let files = "certificate = \"/c\"\nkey = \"/k\"\nca = \"/a\"\n";
    let settings = parse(&format!(
        "[[port]]\nname = \"m0\"\ntype = \"mesh\"\nmtu = 9000\nlisten = \"[::]:4790\"\n{files}peers = [\"b:1\", \"[::1]:2\"]\nnames = [\"b\"]\n"
    ))
    .expect("valid");
    let mesh = &settings.meshes["m0"];
    assert_eq!(settings.ports[0].kind.name(), "mesh");
    assert_eq!(mesh.listen.to_string(), "[::]:4790");
    assert_eq!(
        (&mesh.peers[..], &mesh.names[..]),
        (
            &["b:1".to_owned(), "[::1]:2".to_owned()][..],
            &["b".to_owned()][..]
        )
    );
    assert_eq!(mesh.files.key, Path::new("/k"));
    errors(
        &format!(
            "[[port]]\nname = \"m0\"\ntype = \"mesh\"\nlisten = \"4790\"\n{files}peers = [\"b\", \"c:1\", \"C:1\"]\nifname = \"x\"\n"
        ),
        &[
            "x.toml:1:1: port[0].names: whom the mesh takes is not said: list alternative names (DNS or URI) of peers' \
             certificates; \"*\" takes every certificate of the CA",
            "x.toml:4:10: port[0].listen: \"4790\" is no address to listen on: ADDR:PORT such as 0.0.0.0:4790 or [::]:4790",
            "x.toml:8:10: port[0].peers[0]: \"b\" is no peer: HOST:PORT such as node2.example.com:4790 or \
             [2001:db8::2]:4790",
            "x.toml:8:22: port[0].peers[2]: C:1 is named twice",
            "x.toml:9:10: port[0].ifname: a port of type \"mesh\" has no such key",
        ],
    );
    errors(
        "[[port]]\nname = \"p\"\ntype = \"tap\"\nifname = \"t\"\npeers = [1, 2]\nlisten = \"[::]:1\"\n",
        &[
            "x.toml:5:9: port[0].peers: only a port of type \"mesh\" has this key",
            "x.toml:5:10: port[0].peers[0]: expected a string, found integer `1`",
            "x.toml:6:10: port[0].listen: only a port of type \"mesh\" has this key",
        ],
    );
    errors(
        "[[port]]\nname = \"m0\"\ntype = \"mesh\"\nlisten = \"0.0.0.0:0\"\ncertificate = \"c.pem\"\nkey = \"/k\"\nnames = [\"*\"]\n",
        &[
            "x.toml:1:1: port[0].ca: this key is required",
            "x.toml:5:15: port[0].certificate: \"c.pem\" is not an absolute path",
        ],
    );
    errors(
        &format!("[[port]]\nname = \"m0\"\ntype = \"mesh\"\nlisten = \"0.0.0.0:0\"\n{files}names = []\n"),
        &[
            "x.toml:8:9: port[0].names: whom the mesh takes is not said: list alternative names (DNS or URI) of peers' \
             certificates; \"*\" takes every certificate of the CA",
        ],
    );
}
