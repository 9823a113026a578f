//! `vnicctl adapter mac`.

use clap::Subcommand;
use vnic_control::v1;

use super::Failure;
use super::client::{Client, resource};
use super::output::Output;
use super::text::Table;
use crate::names::ADAPTERS;

#[derive(Debug, Subcommand)]
pub enum MacVerb {
    /// List the addresses of an adapter: its own, and those of its list
    #[command(after_help = "Example:\n  vnicctl -o json adapter mac list vf0 | jq -r '.additionalMacs[]'")]
    List {
        /// Name of the adapter
        name: String,
    },
    /// Add addresses: the guest gets frames for them and may send from them, at once
    #[command(after_help = "Example:\n  vnicctl adapter mac add vf0 02:00:5e:00:01:01 02-00-5E-00-01-02")]
    Add {
        /// Name of the adapter
        name: String,
        /// Addresses, none of which is in use in the NIC
        #[arg(required = true, value_name = "MAC")]
        macs: Vec<String>,
    },
    /// Remove addresses from the list, at once
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl adapter mac remove vf0 02:00:5e:00:01:01"
    )]
    Remove {
        /// Name of the adapter
        name: String,
        /// Addresses of the list
        #[arg(required = true, value_name = "MAC")]
        macs: Vec<String>,
    },
}

/// Runs a command.
pub async fn run(verb: MacVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let adapter = match verb {
        MacVerb::List { name } => list(client, &name).await?,
        MacVerb::Add { name, macs } => add(client, &name, macs).await?,
        MacVerb::Remove { name, macs } => delete(client, &name, macs).await?,
    };
    out.message("Adapter", &adapter, || table(&adapter))
}

/// Gets the adapter.
pub async fn list(client: &Client, name: &str) -> Result<v1::Adapter, Failure> {
    let name = resource(ADAPTERS, name);
    let request = v1::GetAdapterRequest { name };
    Ok(client.adapters().await?.get_adapter(request).await?.into_inner())
}

/// Adds addresses to the adapter's list.
pub async fn add(client: &Client, name: &str, macs: Vec<String>) -> Result<v1::Adapter, Failure> {
    let name = resource(ADAPTERS, name);
    let request = v1::AddMacAddressesRequest { name, macs };
    let mut service = client.adapters().await?;
    Ok(service.add_mac_addresses(request).await?.into_inner())
}

/// Removes addresses from the adapter's list.
pub async fn delete(client: &Client, name: &str, macs: Vec<String>) -> Result<v1::Adapter, Failure> {
    let name = resource(ADAPTERS, name);
    let request = v1::RemoveMacAddressesRequest { name, macs };
    let mut service = client.adapters().await?;
    Ok(service.remove_mac_addresses(request).await?.into_inner())
}

fn table(adapter: &v1::Adapter) -> String {
    let mut table = Table::new(&["ADDRESS", "FROM"]);
    let own = adapter.macs.iter().map(|mac| (mac, "adapter"));
    let more = adapter
        .additional_macs
        .iter()
        .map(|mac| (mac, "mac-address-list"));
    for (mac, from) in own.chain(more) {
        table.row([mac.clone(), from.to_owned()]);
    }
    table.finish("no addresses")
}
