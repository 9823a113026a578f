//! `vnicctl counter`.

use vnic_control::v1;

use super::Failure;
use super::args::CounterVerb;
use super::client::Client;
use super::output::Output;
use super::text::Table;

/// Runs a command.
pub async fn run(verb: CounterVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let CounterVerb::List { owner, name, nonzero } = verb;
    let owner = match owner {
        None => String::new(),
        Some(name) => client.owner(&name).await?,
    };
    let mut service = client.counters().await?;
    let mut all = v1::ListCountersResponse::default();
    loop {
        let request = v1::ListCountersRequest {
            page_size: 5000,
            page_token: std::mem::take(&mut all.next_page_token),
            owner: owner.clone(),
            counter_name: name.clone().unwrap_or_default(),
            nonzero,
        };
        let page = service.list_counters(request).await?.into_inner();
        all.counters.extend(page.counters);
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_empty() {
            break;
        }
    }
    out.message("ListCountersResponse", &all, || table(&all.counters))
}

fn table(counters: &[v1::Counter]) -> String {
    let mut table = Table::new(&["OWNER", "COUNTER", "LABEL", ">VALUE", "MEANING"]);
    for c in counters {
        let label = |key: &str| c.labels.get(key).cloned();
        let label = label("reason").or_else(|| label("queue").map(|q| format!("queue {q}")));
        table.row([
            c.owner.clone(),
            c.name.clone(),
            label.unwrap_or_default(),
            c.value.to_string(),
            c.help.clone(),
        ]);
    }
    table.finish("no counters")
}
