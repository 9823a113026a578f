//! The registry over gRPC: what is stored, pending and effective; transactions, etags, watchers.

mod common;

use common::lab::{Lab, fields};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const TIMEOUT: &str = "DelayDropTimeout";

struct Registry(RegistryServiceClient<Channel>);

impl Registry {
    fn of(lab: &Lab) -> Registry {
        Registry(RegistryServiceClient::new(lab.channel.clone()))
    }

    async fn get(&mut self, scope: &str, key: &str) -> v1::RegistryEntry {
        let request = v1::GetEntryRequest {
            scope: scope.to_owned(),
            key: key.to_owned(),
        };
        self.0.get_entry(request).await.expect("an entry").into_inner()
    }

    async fn set(&mut self, scope: &str, key: &str, value: &str) -> Result<v1::SetEntryResponse, Status> {
        self.set_if(scope, key, value, None).await
    }

    async fn set_if(
        &mut self,
        scope: &str,
        key: &str,
        value: &str,
        etag: Option<&str>,
    ) -> Result<v1::SetEntryResponse, Status> {
        let request = v1::SetEntryRequest {
            scope: scope.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            if_match: etag.map(str::to_owned),
        };
        Ok(self.0.set_entry(request).await?.into_inner())
    }
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|i| i.reason)
        .unwrap_or_default()
}

#[tokio::test]
async fn dynamic_keys_act_at_once_and_others_at_a_restart() {
    let lab = Lab::start(1).await;
    let mut registry = Registry::of(&lab);
    let entry = registry.get("adapters/vf0", TIMEOUT).await;
    assert_eq!((entry.stored, entry.etag.as_str()), (None, "0"));
    assert_eq!(entry.effective.as_deref(), Some("0"), "unset is off");

    let set = registry
        .set("adapters/vf0", "delaydroptimeout", "20")
        .await
        .expect("set");
    let entry = set.entry.expect("the entry");
    assert_eq!(entry.key, TIMEOUT);
    assert_eq!(entry.stored.as_deref(), Some("20"));
    assert_eq!((entry.effective.as_deref(), entry.pending), (Some("20"), None));
    assert_eq!(entry.etag, set.revision.to_string());

    // An illegal value falls back to the default, as documented, and the answer says so.
    let set = registry.set("adapters/vf0", TIMEOUT, "101").await.expect("set");
    assert_eq!(set.entry.expect("the entry").stored.as_deref(), Some("50"));
    assert!(set.warnings[0].message.contains("101"), "{:?}", set.warnings);

    let set = registry.set("adapters/vf0", "roce_mode", "4").await.expect("set");
    let entry = set.entry.expect("the entry");
    assert_eq!(entry.pending.as_deref(), Some("4"));
    assert_eq!(entry.effective.as_deref(), Some("2"));
    let request = v1::RestartAdapterRequest {
        name: "adapters/vf0".to_owned(),
    };
    AdapterServiceClient::new(lab.channel.clone())
        .restart_adapter(request)
        .await
        .expect("restarted");
    let entry = registry.get("adapters/vf0", "roce_mode").await;
    assert_eq!((entry.effective.as_deref(), entry.pending), (Some("4"), None));
    lab.end().await;
}

#[tokio::test]
async fn refusals_say_why_and_change_nothing() {
    let lab = Lab::start(1).await;
    let mut registry = Registry::of(&lab);
    for (scope, key, code, why) in [
        ("adapters/vf0", "NoSuchKey", Code::NotFound, "UNKNOWN_KEY"),
        ("adapters/vf9", TIMEOUT, Code::NotFound, "NOT_FOUND"),
        ("teams/t0", TIMEOUT, Code::Unimplemented, "SCOPE_NOT_BUILT"),
        ("ports/p0", TIMEOUT, Code::Unimplemented, "SCOPE_NOT_BUILT"),
        ("vf0", TIMEOUT, Code::InvalidArgument, "INVALID_FIELD"),
        ("driver", TIMEOUT, Code::InvalidArgument, "INVALID_FIELD"),
    ] {
        let status = registry.set(scope, key, "1").await.expect_err("refused");
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (code, why),
            "{status:?}"
        );
    }
    let status = registry
        .set("adapters/vf0", "roce_mode", "77")
        .await
        .expect_err("refused");
    assert_eq!(fields(&status), ["value"], "{status:?}");
    assert_eq!(registry.get("adapters/vf0", "roce_mode").await.stored, None);

    let set = registry.set("adapters/vf0", TIMEOUT, "1").await.expect("set");
    let etag = set.entry.expect("the entry").etag;
    let status = registry
        .set_if("adapters/vf0", TIMEOUT, "2", Some("0"))
        .await
        .expect_err("it is there");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Aborted, "ETAG_MISMATCH")
    );
    let info = status.get_details_error_info().expect("info");
    assert_eq!(info.metadata.get("etag"), Some(&etag));
    registry
        .set_if("adapters/vf0", TIMEOUT, "2", Some(&etag))
        .await
        .expect("it is that");
    lab.end().await;
}
