//! A row for each method that changes something: a request that is in order, and one that is refused.

use serde_json::{Value, json};
use tonic::Code;

/// Files of a mesh.
pub struct Files {
    pub certificate: String,
    pub key: String,
    pub ca: String,
}

/// A request that is in order.
pub enum Good {
    /// It is carried out in the end, after those of the rows before it.
    Does(Value),
    /// It is only validated; other rows, or the process of the tests, are in the way of carrying it out.
    Only(Value),
    /// There is none without a guest (`tests/tests/rdma/qos.rs` has one), or before another row is carried out (`fault.rs`).
    None,
}

pub struct Row {
    pub path: &'static str,
    pub good: Good,
    /// Why the other one is refused, and it; `None`: there is nothing in it that can be wrong.
    pub bad: Option<(Code, Value)>,
    /// Whether the method has an answer of its own to a request that is only validated.
    pub answers: bool,
}

fn row(path: &'static str, good: Good, bad: (Code, Value)) -> Row {
    let (bad, answers) = (Some(bad), false);
    Row {
        path,
        good,
        bad,
        answers,
    }
}

/// A row of a method whose request has no fields.
fn plain(path: &'static str) -> Row {
    let (good, bad) = (Good::Only(json!({})), None);
    Row {
        path,
        good,
        bad,
        answers: false,
    }
}

fn answers(row: Row) -> Row {
    Row { answers: true, ..row }
}

/// Rows in the order in which they are carried out.
pub fn rows(files: &Files, registry: &Value) -> Vec<Row> {
    use Code::{Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound};
    use Good::{Does, Only};
    let name = |name: &str| json!({"name": name});
    let nobody = |collection: &str| (NotFound, json!({"name": format!("{collection}/nobody")}));
    let mesh = json!({"listen": "127.0.0.1:0", "certificate": files.certificate, "key": files.key, "ca": files.ca, "names": ["*"]});
    let drop = |owner: &str| json!({"match": {"to": owner}, "drop": {}});
    let hang = |adapter: &str| json!({"adapter": adapter, "completion": {"hang": {}}});
    let affinity = |port: u32| json!({"udp_source_port": port, "port": "ports/p0"});
    let key = |scope: &str, value: &str| json!({"scope": scope, "key": "DelayDropTimeout", "value": value});
    vec![
        row(
            "/vnic.v1.AccessListService/SetAccessList",
            Does(json!({"access_list": {"name": "adapters/vf0/accessList", "deny_rx": true}})),
            (
                Aborted,
                json!({"access_list": {"name": "adapters/vf0/accessList", "deny_rx": true, "etag": "77"}}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/CreateAdapter",
            Does(json!({"adapter_id": "green", "adapter": {"mtu": 9000}})),
            (
                InvalidArgument,
                json!({"adapter_id": "green", "adapter": {"mtu": 1}}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/UpdateAdapter",
            Does(json!({"adapter": {"name": "adapters/vf1", "mtu": 2000}, "update_mask": "mtu"})),
            (
                Aborted,
                json!({"adapter": {"name": "adapters/vf1", "mtu": 2000, "etag": "1"}, "update_mask": "mtu"}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/RestartAdapter",
            Does(name("adapters/vf1")),
            nobody("adapters"),
        ),
        row(
            "/vnic.v1.AdapterService/AddMacAddresses",
            Does(json!({"name": "adapters/vf0", "macs": ["02:00:5e:00:00:07"]})),
            (
                InvalidArgument,
                json!({"name": "adapters/vf0", "macs": ["02:00:5e:00:00:08"]}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/RemoveMacAddresses",
            Does(json!({"name": "adapters/blue", "macs": ["02:00:5e:00:00:08"]})),
            (
                InvalidArgument,
                json!({"name": "adapters/blue", "macs": ["02:00:5e:00:00:09"]}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/HandOver",
            Does(name("adapters/vf2")),
            nobody("adapters"),
        ),
        row(
            "/vnic.v1.AdapterService/CancelMigration",
            Does(name("adapters/vf3")),
            nobody("adapters"),
        ),
        row(
            "/vnic.v1.AdapterService/BeginMigration",
            Does(name("adapters/spare")),
            (InvalidArgument, name("adapters/vf2")),
        ),
        row(
            "/vnic.v1.AdapterService/PrepareMigration",
            Does(json!({"name": "adapters/vf1", "source": "adapters/blue"})),
            (
                InvalidArgument,
                json!({"name": "adapters/vf1", "source": "adapters/vf1"}),
            ),
        ),
        row(
            "/vnic.v1.AdapterService/DeleteAdapter",
            Does(name("adapters/gone")),
            nobody("adapters"),
        ),
        row(
            "/vnic.v1.CaptureService/CreateCapture",
            Does(json!({"capture_id": "new", "filter": {"owners": ["adapters/vf0"]}})),
            (
                AlreadyExists,
                json!({"capture_id": "running", "filter": {"owners": ["adapters/vf0"]}}),
            ),
        ),
        row(
            "/vnic.v1.CaptureService/StopCapture",
            Does(name("captures/running")),
            nobody("captures"),
        ),
        answers(row(
            "/vnic.v1.ConfigService/ApplyConfig",
            Only(json!({"file": "x.toml", "text": "[[adapter]]\nname = \"more\"\n"})),
            (
                InvalidArgument,
                json!({"file": "x.toml", "text": "[[adapter]]\nname = \"more\"\nmtu = 1\n"}),
            ),
        )),
        answers(plain("/vnic.v1.ConfigService/ReloadConfig")),
        row(
            "/vnic.v1.CongestionService/SetCongestion",
            Does(json!({"name": "adapters/vf0/congestion", "algorithm": "none"})),
            (
                InvalidArgument,
                json!({"name": "adapters/vf0/congestion", "algorithm": "magic"}),
            ),
        ),
        row(
            "/vnic.v1.CongestionService/ResetCongestion",
            Does(name("adapters/vf0/congestion")),
            (NotFound, name("adapters/nobody/congestion")),
        ),
        row(
            "/vnic.v1.FaultService/CreateFault",
            Does(json!({"fault_id": "one", "fault": drop("adapters/vf0")})),
            (
                AlreadyExists,
                json!({"fault_id": "lossy", "fault": drop("adapters/vf0")}),
            ),
        ),
        row(
            "/vnic.v1.FaultService/BatchCreateFaults",
            Does(json!({"requests": [{"fault_id": "two", "fault": drop("adapters/vf0")}]})),
            (
                InvalidArgument,
                json!({"requests": [{"fault_id": "two", "fault": drop("adapters/nobody")}]}),
            ),
        ),
        row(
            "/vnic.v1.FaultService/DeleteFault",
            Does(name("faults/lossy")),
            nobody("faults"),
        ),
        row(
            "/vnic.v1.FaultService/PlayScenario",
            Does(
                json!({"content": "name = \"s\"\n[[step]]\nat = \"1h\"\naction = \"port_down\"\nadapter = \"vf0\"\n"}),
            ),
            (InvalidArgument, json!({"content": "name = \"s\"\n"})),
        ),
        row(
            "/vnic.v1.FaultService/StopScenario",
            Does(name("scenarios/old")),
            nobody("scenarios"),
        ),
        row(
            "/vnic.v1.FaultService/StopRecording",
            Good::None,
            (NotFound, json!({})),
        ),
        row(
            "/vnic.v1.FaultService/StartRecording",
            Does(json!({"adapters": ["adapters/vf0"]})),
            (NotFound, json!({"adapters": ["adapters/nobody"]})),
        ),
        row(
            "/vnic.v1.FaultService/CreateVerbsFault",
            Does(json!({"verbs_fault_id": "one", "verbs_fault": hang("adapters/vf0")})),
            (
                InvalidArgument,
                json!({"verbs_fault_id": "one", "verbs_fault": hang("adapters/nobody")}),
            ),
        ),
        row(
            "/vnic.v1.FaultService/DeleteVerbsFault",
            Does(name("verbsFaults/old")),
            nobody("verbsFaults"),
        ),
        row(
            "/vnic.v1.ClockService/SetClock",
            Does(json!({"time": "2026-11-29T10:00:00Z"})),
            (InvalidArgument, json!({"time": "1969-12-31T23:59:59Z"})),
        ),
        row(
            "/vnic.v1.ClockService/AdjustClock",
            Does(json!({"offset_ns": -5, "frequency_ppb": 7})),
            (InvalidArgument, json!({"frequency_ppb": 100_000_001})),
        ),
        row(
            "/vnic.v1.SubnetService/SetSubnetPolicy",
            Does(json!({"policy": {"text": "qos-ulps\ndefault: 1\nend-qos-ulps\n"}})),
            (InvalidArgument, json!({"policy": {"text": "qos-ulps\n"}})),
        ),
        row(
            "/vnic.v1.SubnetService/CreateSubnetGroup",
            Does(json!({"subnet_group_id": "new", "subnet_group": {"pkey": 0x8001}})),
            (
                InvalidArgument,
                json!({"subnet_group_id": "new", "subnet_group": {"pkey": 0x8001, "mtu_bytes": 3}}),
            ),
        ),
        row(
            "/vnic.v1.SubnetService/DeleteSubnetGroup",
            Does(name("subnetGroups/old")),
            nobody("subnetGroups"),
        ),
        row(
            "/vnic.v1.MirrorService/CreateMirror",
            Does(
                json!({"mirror_id": "new", "mirror": {"source": "adapters/vf0", "destination": "adapters/vf1", "direction": "DIRECTION_RX"}}),
            ),
            (
                InvalidArgument,
                json!({"mirror_id": "new", "mirror": {"source": "adapters/vf1", "destination": "adapters/vf0", "direction": "DIRECTION_RX"}}),
            ),
        ),
        row(
            "/vnic.v1.MirrorService/DeleteMirror",
            Does(name("mirrors/old")),
            nobody("mirrors"),
        ),
        row(
            "/vnic.v1.NvConfigService/SetNvParameters",
            Does(json!({"assignments": [{"name": "ROCE_CONTROL", "value": "1"}]})),
            (
                InvalidArgument,
                json!({"assignments": [{"name": "ROCE_CONTROL", "value": "77"}]}),
            ),
        ),
        row(
            "/vnic.v1.NvConfigService/ResetNvParameters",
            Does(json!({"names": ["ROCE_CONTROL"]})),
            (NotFound, json!({"names": ["NOTHING"]})),
        ),
        row(
            "/vnic.v1.OidService/SetOid",
            Does(json!({"adapter": "adapters/vf0", "code": 0xffa0_c932_u32, "data": "oh4MAAE="})),
            (
                NotFound,
                json!({"adapter": "adapters/nobody", "code": 0xffa0_c932_u32, "data": "oh4MAAE="}),
            ),
        ),
        row(
            "/vnic.v1.PortService/CreatePort",
            Does(json!({"port_id": "p2", "port": {"mesh": mesh}})),
            (AlreadyExists, json!({"port_id": "p1", "port": {"mesh": mesh}})),
        ),
        row(
            "/vnic.v1.PortService/UpdatePort",
            Does(json!({"name": "ports/p1", "speed_mbps": 1000})),
            (
                Aborted,
                json!({"name": "ports/p1", "speed_mbps": 1000, "etag": "1"}),
            ),
        ),
        row(
            "/vnic.v1.QosService/UpdateQos",
            Does(
                json!({"qos": {"name": "adapters/vf0/qos", "pfc": [false, false, false, true, false, false, false, false]}, "update_mask": "pfc"}),
            ),
            (
                InvalidArgument,
                json!({"qos": {"name": "adapters/vf0/qos", "rate_bps": "1"}, "update_mask": "rateBps"}),
            ),
        ),
        row(
            "/vnic.v1.QosService/ResetQos",
            Does(name("adapters/vf0/qos")),
            (NotFound, name("adapters/nobody/qos")),
        ),
        row(
            "/vnic.v1.QosService/SetQueuePairRate",
            Good::None,
            (
                NotFound,
                json!({"adapter": "adapters/vf0", "queue_pair": 77, "rate_bps": "1000000"}),
            ),
        ),
        row(
            "/vnic.v1.RdmaService/SetGid",
            Does(json!({"parent": "adapters/vf0", "gid": {"gid": "2001:db8::7"}})),
            (
                InvalidArgument,
                json!({"parent": "adapters/vf0", "gid": {"gid": "2001:db8::9"}}),
            ),
        ),
        row(
            "/vnic.v1.RdmaService/DeleteGid",
            Does(name("adapters/vf0/gids/100")),
            (NotFound, name("adapters/vf0/gids/101")),
        ),
        row(
            "/vnic.v1.RegistryService/SetEntry",
            Does(key("adapters/vf0", "60")),
            (NotFound, key("adapters/nobody", "60")),
        ),
        row(
            "/vnic.v1.RegistryService/DeleteEntry",
            Does(json!({"scope": "adapters/vf0", "key": "DelayDropTimeout"})),
            (
                Aborted,
                json!({"scope": "adapters/vf0", "key": "DelayDropTimeout", "if_match": "77"}),
            ),
        ),
        answers(row(
            "/vnic.v1.RegistryService/ApplyTransaction",
            Does(json!({"operations": [{"scope": "adapters/vf0", "key": "VlanPrio", "set": "5"}]})),
            (
                NotFound,
                json!({"operations": [{"scope": "adapters/vf0", "key": "Nothing", "set": "9"}]}),
            ),
        )),
        answers(row(
            "/vnic.v1.RegistryService/ImportRegistry",
            Does(json!({"content": registry})),
            (InvalidArgument, json!({"content": "AAAA"})),
        )),
        row(
            "/vnic.v1.ServerService/SetLogLevel",
            // The log of this process is not the daemon's.
            Only(json!({"filter": "debug"})),
            (InvalidArgument, json!({"filter": "loud"})),
        ),
        row(
            "/vnic.v1.TeamService/CreateTeam",
            Does(json!({"team_id": "t1", "team": {"type": "TYPE_FAILOVER"}})),
            (
                AlreadyExists,
                json!({"team_id": "t0", "team": {"type": "TYPE_FAILOVER"}}),
            ),
        ),
        row(
            "/vnic.v1.TeamService/UpdateTeam",
            Does(json!({"team": {"name": "teams/t0", "vlan_id": 7}, "update_mask": "vlanId"})),
            (
                InvalidArgument,
                json!({"team": {"name": "teams/t0", "vlan_id": 7000}, "update_mask": "vlanId"}),
            ),
        ),
        row(
            "/vnic.v1.TeamService/AttachTeamMember",
            Does(json!({"name": "teams/t0", "port": "ports/p1"})),
            (
                FailedPrecondition,
                json!({"name": "teams/empty", "port": "ports/p0"}),
            ),
        ),
        row(
            "/vnic.v1.TeamService/DetachTeamMember",
            Only(json!({"name": "teams/t0", "port": "ports/p0"})),
            (
                InvalidArgument,
                json!({"name": "teams/empty", "port": "ports/p1"}),
            ),
        ),
        row(
            "/vnic.v1.TeamService/SetTeamAffinity",
            Does(json!({"name": "teams/t0", "affinity": affinity(8)})),
            (
                InvalidArgument,
                json!({"name": "teams/empty", "affinity": affinity(8)}),
            ),
        ),
        row(
            "/vnic.v1.TeamService/DeleteTeamAffinity",
            Does(json!({"name": "teams/t0", "affinity": affinity(7)})),
            (NotFound, json!({"name": "teams/t0", "affinity": affinity(9)})),
        ),
        row(
            "/vnic.v1.TeamService/DeleteTeam",
            Does(name("teams/t0")),
            (Aborted, json!({"name": "teams/t0", "etag": "1"})),
        ),
        row(
            "/vnic.v1.PortService/DeletePort",
            Does(name("ports/p1")),
            (FailedPrecondition, name("ports/p0")),
        ),
        plain("/vnic.v1.NvConfigService/ResetDevice"),
    ]
}
