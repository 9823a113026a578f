//! Scenarios that are played, and those that were.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;
use vnic_backend::NicError;
use vnic_backend::rehearsal::rehearses;

use super::Control;
use super::refused::Refused;
use crate::config::scenario_from_text;
use crate::events::{ControlEvent, Phase};
use crate::scenarios::{Player, Scenario};

/// Scenarios that are over and still told of.
const KEPT_MAX: usize = 16;

/// Scenarios of the daemon; one is played at a time.
#[derive(Default)]
pub struct Stage(Mutex<VecDeque<Arc<Play>>>);

/// A scenario that is played, or was.
pub struct Play {
    scenario: Scenario,
    began: SystemTime,
    state: Mutex<PlayState>,
    /// Tells the task that plays to stop.
    stop: Notify,
}

/// How far a scenario is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlayState {
    /// What was done, a line each.
    pub log: Vec<String>,
    /// Whether it is over, and everything put back.
    pub over: bool,
    /// Whether it was stopped.
    pub stopped: bool,
    /// Why it failed.
    pub problem: Option<String>,
}

/// A scenario for the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayNow {
    pub name: String,
    pub description: String,
    pub began: SystemTime,
    pub length: Duration,
    pub state: PlayState,
}

impl Play {
    fn state(&self) -> MutexGuard<'_, PlayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> PlayNow {
        PlayNow {
            name: self.scenario.name.clone(),
            description: self.scenario.description.clone(),
            began: self.began,
            length: self.scenario.length,
            state: self.state().clone(),
        }
    }
}

impl Stage {
    fn plays(&self) -> MutexGuard<'_, VecDeque<Arc<Play>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Result<Arc<Play>, Refused> {
        let plays = self.plays();
        let found = plays.iter().find(|play| play.scenario.name == name).cloned();
        found.ok_or_else(|| Refused::NotFound {
            kind: "scenario",
            name: name.to_owned(),
        })
    }
}

pub struct Scenarios<'a>(pub &'a Arc<Control>);

impl Scenarios<'_> {
    /// Begins to play a scenario file. `set`: adapters of its parts. Must be called where tasks can be spawned.
    pub fn play(
        &self,
        content: &str,
        set: &std::collections::BTreeMap<String, String>,
        by: &str,
    ) -> Result<PlayNow, Refused> {
        let scenario = scenario_from_text(Path::new("scenario"), content, set).map_err(Refused::File)?;
        let mut plays = self.0.stage.plays();
        if let Some(playing) = plays.iter().find(|play| !play.state().over) {
            let name = &playing.scenario.name;
            return Err(Refused::Limit(format!(
                "the scenario {name} is played: one at a time; it ends by `vnicctl fault stop {name}`"
            )));
        }
        if rehearses() {
            return Err(Refused::Nic(NicError::Rehearsed));
        }
        plays.retain(|play| play.scenario.name != scenario.name);
        plays.truncate(KEPT_MAX - 1);
        let play = Arc::new(Play {
            scenario,
            began: SystemTime::now(),
            state: Mutex::default(),
            stop: Notify::new(),
        });
        plays.push_front(play.clone());
        drop(plays);
        self.tell(&play, by, Phase::Begins);
        tokio::runtime::Handle::current().spawn(run(self.0.clone(), play.clone(), by.to_owned()));
        Ok(play.now())
    }

    /// Scenarios: the one that began last first.
    pub fn list(&self) -> Vec<PlayNow> {
        self.0.stage.plays().iter().map(|play| play.now()).collect()
    }

    /// A scenario.
    pub fn get(&self, name: &str) -> Result<PlayNow, Refused> {
        Ok(self.0.stage.get(name)?.now())
    }

    /// Stops a scenario, if it is still played; everything is put back soon after.
    pub fn stop(&self, name: &str) -> Result<PlayNow, Refused> {
        let play = self.0.stage.get(name)?;
        if rehearses() {
            return Err(Refused::Nic(NicError::Rehearsed));
        }
        play.stop.notify_one();
        Ok(play.now())
    }

    fn tell(&self, play: &Play, by: &str, phase: Phase) {
        self.0.hub.record(ControlEvent::Scenario {
            scenario: play.scenario.name.clone(),
            phase,
            by: by.to_owned(),
        });
    }
}

/// Plays until the scenario is over, is stopped, or the daemon ends.
async fn run(control: Arc<Control>, play: Arc<Play>, by: String) {
    let begin = Instant::now();
    let mut player = Some(Player::new(control.nic.clone(), &play.scenario));
    let mut told = 0;
    while let Some(mut acting) = player.take() {
        let Some(next) = acting.next() else { break };
        let stopped = tokio::select! {
            biased;
            () = control.life.ended() => true,
            () = play.stop.notified() => true,
            () = tokio::time::sleep_until((begin + next).into()) => false,
        };
        let work = move || {
            let done = match stopped {
                true => {
                    acting.end();
                    Ok(())
                }
                false => acting.play(next),
            };
            (acting, done)
        };
        let Ok((acting, done)) = tokio::task::spawn_blocking(work).await else {
            play.state().problem = Some("a bug".to_owned());
            break;
        };
        let log = acting.log().to_vec();
        for line in log.iter().skip(told).filter(|line| *line != "end") {
            let phase = Phase::Step(line.trim_start().to_owned());
            Scenarios(&control).tell(&play, &by, phase);
        }
        told = log.len();
        let mut state = play.state();
        state.log = log;
        state.stopped = stopped;
        state.problem = done.err();
        drop(state);
        player = Some(acting);
    }
    let problem = {
        let mut state = play.state();
        state.over = true;
        state.problem.clone()
    };
    Scenarios(&control).tell(&play, &by, Phase::Over(problem));
}
