//! `vnicctl fault play`, `stop` and `scenarios`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vnic_control::v1;

use super::args::FaultPlay;
use super::client::{Client, resource};
use super::output::Output;
use super::{Failure, output, paging, text};
use crate::config::scenario_from_text;
use crate::names::{self, SCENARIOS};

/// Where packages put scenarios.
const SHIPPED: &str = "/usr/share/vnic/scenarios/verbs";
/// How often a scenario is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// File that an argument means: a path, or the name of a scenario that is shipped.
fn file(named: &Path) -> Result<PathBuf, Failure> {
    let shipped = Path::new(SHIPPED).join(named).with_extension("toml");
    if named == Path::new("-") || named.components().count() > 1 || named.exists() {
        return Ok(named.to_owned());
    }
    match shipped.exists() {
        true => Ok(shipped),
        false => Err(Failure::Usage(format!(
            "there is no file {0}, and no {0}.toml in {SHIPPED}, where packages put scenarios (vnicctl fault scenarios lists those there)",
            named.display()
        ))),
    }
}

/// Plays a scenario.
pub async fn play(play: FaultPlay, client: &Client, out: &Output) -> Result<(), Failure> {
    let path = file(&play.file)?;
    let (shown, content) = super::fault::content(&path)?;
    let set: BTreeMap<String, String> = play.set.into_iter().collect();
    scenario_from_text(&shown, &content, &set)
        .map_err(|wrong| Failure::Usage(format!("nothing was played:\n{wrong}")))?;
    let mut service = client.faults().await?;
    let adapters = set.into_iter().collect();
    let request = v1::PlayScenarioRequest { content, adapters };
    let begun = service.play_scenario(request).await?.into_inner();
    if !play.watch {
        return out.message("Scenario", &begun, || facts(&begun));
    }
    let mut shown = 0;
    loop {
        let name = begun.name.clone();
        let now = service
            .get_scenario(v1::GetScenarioRequest { name })
            .await?
            .into_inner();
        if !out.is_json() {
            let lines = now.log.iter().skip(shown).map(|line| format!("{line}\n"));
            output::print(&lines.collect::<String>())?;
        }
        shown = now.log.len();
        match now.state() {
            v1::scenario::State::Playing => tokio::time::sleep(LOOK).await,
            v1::scenario::State::Failed => return Err(Failure::Usage(now.problem)),
            _ => return out.message("Scenario", &now, String::new),
        }
    }
}

/// Stops a scenario.
pub async fn stop(name: &str, client: &Client, out: &Output) -> Result<(), Failure> {
    let name = resource(SCENARIOS, name);
    let request = v1::StopScenarioRequest { name };
    let stopped = client.faults().await?.stop_scenario(request).await?;
    out.answer("Scenario", stopped, facts)
}

/// Lists scenarios that were played, and those that are shipped.
pub async fn list(client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.faults().await?;
    let mut all = paging::list(&mut service, v1::ListScenariosRequest::default()).await?;
    let mut shipped: Vec<PathBuf> = std::fs::read_dir(SHIPPED)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    shipped.sort();
    for path in shipped {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let Ok(scenario) = scenario_from_text(&path, &text, &BTreeMap::new()) else {
            continue;
        };
        let name = names::of(SCENARIOS, &scenario.name);
        if !all.scenarios.iter().any(|there| there.name == name) {
            all.scenarios.push(v1::Scenario {
                name,
                description: scenario.description,
                ..v1::Scenario::default()
            });
        }
    }
    out.message("ListScenariosResponse", &all, || table(&all.scenarios))
}

fn state(scenario: &v1::Scenario) -> &'static str {
    match scenario.state() {
        v1::scenario::State::Unspecified => "shipped",
        v1::scenario::State::Playing => "playing",
        v1::scenario::State::Ended => "ended",
        v1::scenario::State::Stopped => "stopped",
        v1::scenario::State::Failed => "failed",
    }
}

fn table(all: &[v1::Scenario]) -> String {
    text::table! { s in all, "no scenarios";
        "NAME": names::last(&s.name),
        "STATE": state(s),
        "DESCRIPTION": s.description.lines().next().unwrap_or_default(),
    }
}

fn facts(scenario: &v1::Scenario) -> String {
    let mut facts = text::Facts::default();
    facts
        .add("name", names::last(&scenario.name))
        .add("state", state(scenario))
        .add("description", &scenario.description)
        .add("problem", &scenario.problem);
    facts.finish()
}
