//! Requests that are sent again with the same id.

use tonic::{Code, Request, Response, Status};
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;

use crate::common::lab::Lab;

fn with_id<T>(message: T, id: &str) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("vnic-request-id", id.parse().expect("metadata"));
    request
}

fn repeated<T>(response: &Response<T>) -> bool {
    response.metadata().contains_key("vnic-repeated")
}

pub fn reason(status: &Status) -> String {
    use tonic_types::StatusExt as _;
    let details = status.get_error_details();
    details
        .error_info()
        .map_or_else(String::new, |info| info.reason.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_asked_for_again_happens_once() {
    let lab = Lab::start(0).await;
    let mut adapters = AdapterServiceClient::new(lab.channel.clone());
    let create = |mtu| v1::CreateAdapterRequest {
        adapter_id: "blue".to_owned(),
        adapter: Some(v1::Adapter {
            mtu,
            ..v1::Adapter::default()
        }),
    };
    let first = adapters
        .create_adapter(with_id(create(1500), "1"))
        .await
        .expect("made");
    assert!(!repeated(&first));
    assert_eq!(first.metadata().get("vnic-request-id").expect("the id"), "1");
    let again = adapters
        .create_adapter(with_id(create(1500), "1"))
        .await
        .expect("the answer");
    assert!(repeated(&again));
    assert_eq!(again.into_inner(), first.into_inner());
    let other = adapters
        .create_adapter(with_id(create(9000), "1"))
        .await
        .expect_err("taken");
    assert_eq!(
        (other.code(), reason(&other).as_str()),
        (Code::InvalidArgument, "REQUEST_ID_TAKEN")
    );
    for request in [with_id(create(1500), "2"), Request::new(create(1500))] {
        let there = adapters.create_adapter(request).await.expect_err("it is there");
        assert_eq!(there.code(), Code::AlreadyExists);
    }
    // After a removal, too.
    let delete = || {
        let name = "adapters/blue".to_owned();
        with_id(
            v1::DeleteAdapterRequest {
                name,
                etag: String::new(),
            },
            "3",
        )
    };
    adapters.delete_adapter(delete()).await.expect("removed");
    assert!(repeated(
        &adapters.delete_adapter(delete()).await.expect("removed before")
    ));
    // What was refused is asked anew: the adapter is gone by now.
    adapters
        .create_adapter(with_id(create(1500), "2"))
        .await
        .expect("made");
    // Reading is done again each time.
    let list = || with_id(v1::ListAdaptersRequest::default(), "3");
    let all = adapters.list_adapters(list()).await.expect("a list");
    assert_eq!(all.metadata().get("vnic-request-id").expect("the id"), "3");
    assert!(!repeated(&adapters.list_adapters(list()).await.expect("a list")));
    let wrong = adapters.list_adapters(with_id(v1::ListAdaptersRequest::default(), "a b"));
    assert_eq!(reason(&wrong.await.expect_err("no id")), "BAD_REQUEST_ID");
    lab.end().await;
}
