//! Roles that the methods of the control interface need. A method without a row needs [`Role::Admin`], and a test fails.

use super::Role::{self, Admin, Operator, Viewer};

/// A method.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Path, such as `/vnic.v1.AdapterService/GetAdapter`.
    pub path: &'static str,
    /// Role that the method needs.
    pub role: Role,
    /// Whether it responds with a stream.
    pub stream: bool,
}

const fn call(path: &'static str, role: Role) -> Method {
    let stream = false;
    Method { path, role, stream }
}

const fn stream(path: &'static str, role: Role) -> Method {
    let stream = true;
    Method { path, role, stream }
}

/// All methods.
pub static METHODS: &[Method] = &[
    call("/grpc.health.v1.Health/Check", Viewer),
    stream("/grpc.health.v1.Health/Watch", Viewer),
    stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Viewer,
    ),
    stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Viewer,
    ),
    call("/vnic.v1.AccessListService/ListAccessLists", Viewer),
    call("/vnic.v1.AccessListService/GetAccessList", Viewer),
    // What a tenant may reach is a matter of security.
    call("/vnic.v1.AccessListService/SetAccessList", Admin),
    call("/vnic.v1.AdapterService/ListAdapters", Viewer),
    call("/vnic.v1.AdapterService/GetAdapter", Viewer),
    call("/vnic.v1.AdapterService/CreateAdapter", Admin),
    call("/vnic.v1.AdapterService/UpdateAdapter", Admin),
    call("/vnic.v1.AdapterService/DeleteAdapter", Admin),
    call("/vnic.v1.AdapterService/RestartAdapter", Operator),
    stream("/vnic.v1.AdapterService/WatchAdapters", Viewer),
    call("/vnic.v1.AdapterService/AddMacAddresses", Operator),
    call("/vnic.v1.AdapterService/BeginMigration", Admin),
    call("/vnic.v1.AdapterService/PrepareMigration", Admin),
    call("/vnic.v1.AdapterService/HandOver", Admin),
    call("/vnic.v1.AdapterService/CancelMigration", Admin),
    call("/vnic.v1.AdapterService/RemoveMacAddresses", Operator),
    // Captures have the traffic of guests.
    stream("/vnic.v1.CaptureService/StreamCapture", Admin),
    call("/vnic.v1.CaptureService/CreateCapture", Admin),
    call("/vnic.v1.CaptureService/ListCaptures", Viewer),
    call("/vnic.v1.CaptureService/StopCapture", Admin),
    stream("/vnic.v1.CaptureService/WatchCaptures", Viewer),
    call("/vnic.v1.ClockService/GetClock", Viewer),
    // Guests see the step in the times of their completions.
    call("/vnic.v1.ClockService/SetClock", Operator),
    call("/vnic.v1.ClockService/AdjustClock", Operator),
    call("/vnic.v1.ConfigService/ExportConfig", Viewer),
    call("/vnic.v1.ConfigService/DiffConfig", Viewer),
    call("/vnic.v1.ConfigService/ApplyConfig", Admin),
    call("/vnic.v1.ConfigService/ReloadConfig", Admin),
    stream("/vnic.v1.ConfigService/BackupState", Admin),
    call("/vnic.v1.CongestionService/GetCongestion", Viewer),
    call("/vnic.v1.CongestionService/ListCongestion", Viewer),
    call("/vnic.v1.CongestionService/SetCongestion", Operator),
    call("/vnic.v1.CongestionService/ResetCongestion", Operator),
    call("/vnic.v1.CongestionService/ListCongestionPresets", Viewer),
    call("/vnic.v1.CongestionService/ListFlows", Viewer),
    stream("/vnic.v1.CongestionService/WatchCongestion", Viewer),
    call("/vnic.v1.CounterService/ListCounters", Viewer),
    call("/vnic.v1.CounterService/ListCounterSets", Viewer),
    call("/vnic.v1.CounterService/ListHistograms", Viewer),
    call("/vnic.v1.CounterService/ReadCounterSets", Viewer),
    call("/vnic.v1.CounterService/SnapshotCounters", Viewer),
    stream("/vnic.v1.CounterService/WatchCounters", Viewer),
    call("/vnic.v1.EventService/ListEvents", Viewer),
    stream("/vnic.v1.EventService/FollowEvents", Viewer),
    call("/vnic.v1.EventService/ListEventKinds", Viewer),
    call("/vnic.v1.FaultService/ListFaults", Viewer),
    call("/vnic.v1.FaultService/GetFault", Viewer),
    call("/vnic.v1.FaultService/CreateFault", Operator),
    call("/vnic.v1.FaultService/BatchCreateFaults", Operator),
    call("/vnic.v1.FaultService/DeleteFault", Operator),
    stream("/vnic.v1.FaultService/WatchFaults", Viewer),
    // Kills processes of the daemon's user, and takes devices away.
    call("/vnic.v1.FaultService/PlayScenario", Admin),
    call("/vnic.v1.FaultService/ListScenarios", Viewer),
    call("/vnic.v1.FaultService/GetScenario", Viewer),
    call("/vnic.v1.FaultService/StopScenario", Admin),
    call("/vnic.v1.FaultService/StartRecording", Operator),
    call("/vnic.v1.FaultService/StopRecording", Operator),
    call("/vnic.v1.FaultService/ListOutcomes", Viewer),
    call("/vnic.v1.FaultService/CreateVerbsFault", Operator),
    call("/vnic.v1.FaultService/ListVerbsFaults", Viewer),
    call("/vnic.v1.FaultService/DeleteVerbsFault", Operator),
    call("/vnic.v1.MirrorService/ListMirrors", Viewer),
    call("/vnic.v1.MirrorService/GetMirror", Viewer),
    // Copies show what others say, and a destination is no part of the network any more.
    call("/vnic.v1.MirrorService/CreateMirror", Admin),
    call("/vnic.v1.MirrorService/DeleteMirror", Admin),
    call("/vnic.v1.NvConfigService/ListNvParameters", Viewer),
    call("/vnic.v1.NvConfigService/SetNvParameters", Admin),
    call("/vnic.v1.NvConfigService/ResetNvParameters", Admin),
    call("/vnic.v1.NvConfigService/ResetDevice", Admin),
    call("/vnic.v1.OidService/ListOids", Viewer),
    call("/vnic.v1.OidService/QueryOid", Viewer),
    call("/vnic.v1.OidService/SetOid", Operator),
    call("/vnic.v1.PortService/ListPorts", Viewer),
    call("/vnic.v1.PortService/GetPort", Viewer),
    call("/vnic.v1.PortService/CreatePort", Admin),
    call("/vnic.v1.PortService/UpdatePort", Admin),
    call("/vnic.v1.PortService/DeletePort", Admin),
    stream("/vnic.v1.PortService/WatchPorts", Viewer),
    call("/vnic.v1.QosService/GetQos", Viewer),
    call("/vnic.v1.QosService/ListQos", Viewer),
    call("/vnic.v1.QosService/UpdateQos", Operator),
    call("/vnic.v1.QosService/ResetQos", Operator),
    call("/vnic.v1.QosService/SetQueuePairRate", Operator),
    call("/vnic.v1.QosService/ListQueuePairRates", Viewer),
    stream("/vnic.v1.QosService/WatchQos", Viewer),
    call("/vnic.v1.RdmaService/ListGids", Viewer),
    call("/vnic.v1.RdmaService/SetGid", Operator),
    call("/vnic.v1.RdmaService/DeleteGid", Operator),
    call("/vnic.v1.RdmaService/ListRdmaResources", Viewer),
    call("/vnic.v1.RdmaService/ListQueuePairs", Viewer),
    call("/vnic.v1.RdmaService/GetQueuePair", Viewer),
    stream("/vnic.v1.RdmaService/WatchQueuePair", Viewer),
    stream("/vnic.v1.RdmaService/WatchQueuePairs", Viewer),
    call("/vnic.v1.RdmaService/ListRdmaConnections", Viewer),
    stream("/vnic.v1.RdmaService/WatchGids", Viewer),
    call("/vnic.v1.RegistryService/ListKeys", Viewer),
    call("/vnic.v1.RegistryService/ListEntries", Viewer),
    call("/vnic.v1.RegistryService/GetEntry", Viewer),
    call("/vnic.v1.RegistryService/SetEntry", Operator),
    call("/vnic.v1.RegistryService/DeleteEntry", Operator),
    call("/vnic.v1.RegistryService/ApplyTransaction", Operator),
    call("/vnic.v1.RegistryService/ExportRegistry", Viewer),
    // A file replaces settings of many adapters at once.
    call("/vnic.v1.RegistryService/ImportRegistry", Admin),
    stream("/vnic.v1.RegistryService/WatchEntries", Viewer),
    call("/vnic.v1.ServerService/GetServerInfo", Viewer),
    call("/vnic.v1.ServerService/GetLogLevel", Viewer),
    call("/vnic.v1.ServerService/SetLogLevel", Admin),
    call("/vnic.v1.SubnetService/GetSubnetPolicy", Viewer),
    call("/vnic.v1.SubnetService/SetSubnetPolicy", Operator),
    call("/vnic.v1.SubnetService/CheckSubnetPolicy", Viewer),
    call("/vnic.v1.SubnetService/ResolvePaths", Viewer),
    call("/vnic.v1.SubnetService/ListSubnetGroups", Viewer),
    call("/vnic.v1.SubnetService/GetSubnetGroup", Viewer),
    call("/vnic.v1.SubnetService/CreateSubnetGroup", Operator),
    call("/vnic.v1.SubnetService/DeleteSubnetGroup", Operator),
    call("/vnic.v1.SwitchService/GetSwitch", Viewer),
    call("/vnic.v1.SwitchService/ListFdbEntries", Viewer),
    call("/vnic.v1.SwitchService/TraceFrame", Viewer),
    call("/vnic.v1.TeamService/ListTeams", Viewer),
    call("/vnic.v1.TeamService/GetTeam", Viewer),
    call("/vnic.v1.TeamService/CreateTeam", Admin),
    call("/vnic.v1.TeamService/AttachTeamMember", Admin),
    call("/vnic.v1.TeamService/DetachTeamMember", Admin),
    call("/vnic.v1.TeamService/UpdateTeam", Operator),
    call("/vnic.v1.TeamService/DeleteTeam", Admin),
    call("/vnic.v1.TeamService/GetTeamView", Viewer),
    call("/vnic.v1.TeamService/SetTeamAffinity", Operator),
    call("/vnic.v1.TeamService/DeleteTeamAffinity", Operator),
    stream("/vnic.v1.TeamService/WatchTeams", Viewer),
];

/// Place of a path in [`METHODS`].
pub fn index(path: &str) -> Option<usize> {
    METHODS.iter().position(|m| m.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_method_has_a_role_and_every_row_is_a_method() {
        let mut found = BTreeMap::new();
        for set in [
            vnic_control::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ] {
            let pool = prost_reflect::DescriptorPool::decode(set).expect("descriptors");
            for service in pool.services() {
                for method in service.methods() {
                    let path = format!("/{}/{}", service.full_name(), method.name());
                    assert!(
                        !method.is_client_streaming() || path.contains("Reflection"),
                        "{path}"
                    );
                    found.insert(path, method.is_server_streaming());
                }
            }
        }
        let table: BTreeMap<String, bool> = METHODS.iter().map(|m| (m.path.to_owned(), m.stream)).collect();
        assert_eq!(table.len(), METHODS.len(), "a method has two rows");
        assert_eq!(table, found);
    }

    #[test]
    fn what_only_reads_is_for_viewers_and_nothing_else_is() {
        for method in METHODS.iter().filter(|m| m.path.starts_with("/vnic.")) {
            let (_, name) = method.path.rsplit_once('/').expect("a path");
            let reads = [
                "List", "Get", "Query", "Read", "Snapshot", "Watch", "Follow", "Export", "Trace", "Diff",
                "Check", "Resolve",
            ]
            .iter()
            .any(|p| name.starts_with(p));
            assert_eq!(method.role == Viewer, reads, "{}", method.path);
        }
    }
}
