//! Lists of several pages (AIP-158).

use tonic::{Response, Status};
use vnic_control::v1;

use super::Failure;

/// A page of a list; a whole list has the same type.
pub trait Page: Default {
    /// Appends the next page; returns the token of the page after that, which may be empty.
    fn add(&mut self, next: Self) -> String;
}

macro_rules! pages {
    ($($page:ident: $items:ident $(, $last:ident)*;)+) => {$(
        impl Page for v1::$page {
            fn add(&mut self, next: Self) -> String {
                self.$items.extend(next.$items);
                $(self.$last = next.$last;)*
                next.next_page_token
            }
        }
    )+};
}

pages! {
    ListAdaptersResponse: adapters;
    ListCapturesResponse: captures;
    ListCongestionResponse: congestion;
    ListCountersResponse: counters;
    ListEntriesResponse: entries, revision;
    ListEventsResponse: events;
    ListFaultsResponse: faults;
    ListFdbEntriesResponse: fdb_entries;
    ListFlowsResponse: flows;
    ListGidsResponse: gids;
    ListPortsResponse: ports;
    ListQosResponse: qos;
    ListQueuePairRatesResponse: rates;
    ListQueuePairsResponse: queue_pairs;
    ListRdmaResourcesResponse: resources;
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
