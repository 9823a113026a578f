//! Lists of several pages (AIP-158).

use tonic::{Response, Status};
use vnic_control::v1;

use super::Failure;
use super::rehearsal::Channel;

/// A page of a list; a whole list has the same type.
pub trait Page: Default {
    /// Appends the next page; returns the token of the page after that, which may be empty.
    fn add(&mut self, next: Self) -> String;
}

/// Request of a list.
pub trait List: Clone {
    /// Client of the service that has the list.
    type Client;
    /// A page of the list.
    type Page: Page;

    /// Asks for the page of a token.
    async fn page(&self, service: &mut Self::Client, token: String) -> Result<Response<Self::Page>, Status>;
}

/// Lists: the client with its method, the request, elements of a page, and the page with its repeated field and those that the last page
/// decides.
macro_rules! lists {
    ($($module:ident::$client:ident.$method:ident($request:ident, $size:literal) -> $page:ident: $items:ident $(, $last:ident)*;)+) => {$(
        impl Page for v1::$page {
            fn add(&mut self, next: Self) -> String {
                self.$items.extend(next.$items);
                $(self.$last = next.$last;)*
                next.next_page_token
            }
        }

        impl List for v1::$request {
            type Client = v1::$module::$client<Channel>;
            type Page = v1::$page;

            async fn page(&self, service: &mut Self::Client, token: String) -> Result<Response<v1::$page>, Status> {
                let mut request = self.clone();
                (request.page_size, request.page_token) = ($size, token);
                service.$method(request).await
            }
        }
    )+};
}

lists! {
    access_list_service_client::AccessListServiceClient.list_access_lists(ListAccessListsRequest, 100) -> ListAccessListsResponse: access_lists;
    adapter_service_client::AdapterServiceClient.list_adapters(ListAdaptersRequest, 1000) -> ListAdaptersResponse: adapters;
    capture_service_client::CaptureServiceClient.list_captures(ListCapturesRequest, 1000) -> ListCapturesResponse: captures;
    congestion_service_client::CongestionServiceClient.list_congestion(ListCongestionRequest, 1000) -> ListCongestionResponse: congestion;
    congestion_service_client::CongestionServiceClient.list_flows(ListFlowsRequest, 1000) -> ListFlowsResponse: flows;
    counter_service_client::CounterServiceClient.list_counters(ListCountersRequest, 5000) -> ListCountersResponse: counters;
    counter_service_client::CounterServiceClient.list_histograms(ListHistogramsRequest, 5000) -> ListHistogramsResponse: histograms;
    event_service_client::EventServiceClient.list_events(ListEventsRequest, 1000) -> ListEventsResponse: events;
    fault_service_client::FaultServiceClient.list_faults(ListFaultsRequest, 1000) -> ListFaultsResponse: faults;
    fault_service_client::FaultServiceClient.list_scenarios(ListScenariosRequest, 1000) -> ListScenariosResponse: scenarios;
    fault_service_client::FaultServiceClient.list_outcomes(ListOutcomesRequest, 10_000) -> ListOutcomesResponse: outcomes, recording, verdicts;
    fault_service_client::FaultServiceClient.list_verbs_faults(ListVerbsFaultsRequest, 1000) -> ListVerbsFaultsResponse: verbs_faults;
    mirror_service_client::MirrorServiceClient.list_mirrors(ListMirrorsRequest, 1000) -> ListMirrorsResponse: mirrors;
    port_service_client::PortServiceClient.list_ports(ListPortsRequest, 1000) -> ListPortsResponse: ports;
    qos_service_client::QosServiceClient.list_qos(ListQosRequest, 1000) -> ListQosResponse: qos;
    qos_service_client::QosServiceClient.list_queue_pair_rates(ListQueuePairRatesRequest, 1000) -> ListQueuePairRatesResponse: rates;
    rdma_service_client::RdmaServiceClient.list_gids(ListGidsRequest, 10_000) -> ListGidsResponse: gids;
    rdma_service_client::RdmaServiceClient.list_queue_pairs(ListQueuePairsRequest, 10_000) -> ListQueuePairsResponse: queue_pairs;
    rdma_service_client::RdmaServiceClient.list_rdma_connections(ListRdmaConnectionsRequest, 10_000) -> ListRdmaConnectionsResponse: connections;
    rdma_service_client::RdmaServiceClient.list_rdma_resources(ListRdmaResourcesRequest, 10_000) -> ListRdmaResourcesResponse: resources;
    registry_service_client::RegistryServiceClient.list_entries(ListEntriesRequest, 10_000) -> ListEntriesResponse: entries, revision;
    subnet_service_client::SubnetServiceClient.list_subnet_groups(ListSubnetGroupsRequest, 1000) -> ListSubnetGroupsResponse: groups;
    team_service_client::TeamServiceClient.list_teams(ListTeamsRequest, 0) -> ListTeamsResponse: teams, free_ports;
    switch_service_client::SwitchServiceClient.list_fdb_entries(ListFdbEntriesRequest, 10_000) -> ListFdbEntriesResponse: fdb_entries;
}

/// Asks a service for all pages of a list.
pub async fn list<L: List>(service: &mut L::Client, request: L) -> Result<L::Page, Failure> {
    all(async |token| request.page(service, token).await).await
}

/// Asks for all pages of a list: `ask` gets the token of the page.
pub async fn all<P: Page>(
    mut ask: impl AsyncFnMut(String) -> Result<Response<P>, Status>,
) -> Result<P, Failure> {
    let (mut all, mut token) = (P::default(), String::new());
    loop {
        token = all.add(ask(token).await?.into_inner());
        if token.is_empty() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_are_put_together_until_there_is_no_token() {
        let mut asked = Vec::new();
        let all: v1::ListEntriesResponse = all(async |token: String| {
            asked.push(token);
            let n = asked.len();
            Ok(Response::new(v1::ListEntriesResponse {
                entries: vec![v1::RegistryEntry::default(); n],
                next_page_token: if n < 3 { n.to_string() } else { String::new() },
                revision: n as u64,
            }))
        })
        .await
        .expect("a list");
        assert_eq!(asked, ["", "1", "2"]);
        assert_eq!((all.entries.len(), all.revision), (6, 3));
        assert_eq!(all.next_page_token, "");
    }
}
