//! `vnic.v1.ConfigService`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use tonic::{Code, Request, Response, Status};
use vnic_control::v1;
use vnic_control::v1::config_change::{Action, Outcome as Wire};

use super::answer::{Answer, Sender, Stream, answer, send_all, stream};
use crate::access::{blocking, status, who};
use crate::config::Difference;
use crate::control::{Applied, Control, Declared, Outcome, Plan, Refused, Reload, Step, What, Whose};

/// The service.
pub struct Config(pub Arc<Control>);

fn key(difference: &Difference) -> v1::ConfigKey {
    v1::ConfigKey {
        key: difference.key.to_owned(),
        before: difference.before.clone(),
        after: difference.after.clone(),
    }
}

fn keys(all: &[Difference]) -> Vec<v1::ConfigKey> {
    all.iter().map(key).collect()
}

fn change(step: &Step) -> v1::ConfigChange {
    let action = match step.what {
        What::Add => Action::Add,
        What::Change => Action::Change,
        What::Replace => Action::Replace,
        What::Remove => Action::Remove,
    };
    v1::ConfigChange {
        name: step.name.clone(),
        action: action.into(),
        keys: keys(&step.keys),
        note: step.note.to_owned(),
        ..v1::ConfigChange::default()
    }
}

fn kept(plan: &Plan) -> Vec<String> {
    plan.kept.iter().map(|object| object.resource()).collect()
}

fn done((step, outcome): (&Step, &Outcome)) -> v1::ConfigChange {
    let (outcome, problem) = match outcome {
        Outcome::Done => (Wire::Done, ""),
        Outcome::Failed(why) => (Wire::Failed, why.as_str()),
        Outcome::Undone => (Wire::Undone, ""),
        Outcome::NotUndone(why) => (Wire::NotUndone, why.as_str()),
        Outcome::NotReached => (Wire::NotReached, ""),
    };
    v1::ConfigChange {
        outcome: outcome.into(),
        problem: problem.to_owned(),
        ..change(step)
    }
}

/// Steps that were done; what waits for restarts of adapters. May block.
fn report(control: &Arc<Control>, applied: &Applied) -> (Vec<v1::ConfigChange>, Vec<v1::ConfigPending>) {
    let all = applied.plan.steps.iter().zip(&applied.outcomes);
    let changes = all.map(done);
    let pending = Declared(control).pending().into_iter();
    let pending = pending.map(|(name, all)| v1::ConfigPending {
        name,
        keys: keys(&all),
    });
    (changes.collect(), pending.collect())
}

/// Bytes of a message of a backup.
const PART: u64 = 256 << 10;

/// Sends a file.
async fn send(mut file: File, sender: Sender<v1::BackupStateResponse>) -> Result<(), Status> {
    loop {
        let read = blocking(move || {
            let mut part = Vec::new();
            file.by_ref().take(PART).read_to_end(&mut part)?;
            Ok::<_, io::Error>((file, part))
        });
        let read = read.await?;
        let (rest, part) = read.map_err(|e| status(Code::Unavailable, "STORE_FAILED", e.to_string(), []))?;
        file = rest;
        if part.is_empty() || !send_all(&sender, [v1::BackupStateResponse { part }]).await {
            return Ok(());
        }
    }
}

#[tonic::async_trait]
impl v1::config_service_server::ConfigService for Config {
    async fn export_config(
        &self,
        _request: Request<v1::ExportConfigRequest>,
    ) -> Answer<v1::ExportConfigResponse> {
        answer(&self.0, |control| {
            let text = Declared(control).written();
            Ok(v1::ExportConfigResponse { text })
        })
        .await
    }

    async fn diff_config(&self, request: Request<v1::DiffConfigRequest>) -> Answer<v1::DiffConfigResponse> {
        let v1::DiffConfigRequest { file, text, prune } = request.into_inner();
        answer(&self.0, move |control| {
            let declared = Declared(control);
            let wanted = declared.read(Path::new(&file), &text)?;
            let plan = declared.plan(&wanted, Whose::Client { prune })?;
            Ok(v1::DiffConfigResponse {
                changes: plan.steps.iter().map(change).collect(),
                kept: kept(&plan),
            })
        })
        .await
    }

    async fn apply_config(
        &self,
        request: Request<v1::ApplyConfigRequest>,
    ) -> Answer<v1::ApplyConfigResponse> {
        let by = who(&request);
        let v1::ApplyConfigRequest { file, text, prune } = request.into_inner();
        answer(&self.0, move |control| {
            let declared = Declared(control);
            let wanted = declared.read(Path::new(&file), &text)?;
            let applied = declared.apply(&by, &file, &wanted, prune)?;
            let (changes, pending) = report(control, &applied);
            Ok(v1::ApplyConfigResponse {
                changes,
                kept: kept(&applied.plan),
                pending,
                problem: applied.problem.unwrap_or_default(),
            })
        })
        .await
    }

    async fn reload_config(
        &self,
        request: Request<v1::ReloadConfigRequest>,
    ) -> Answer<v1::ReloadConfigResponse> {
        let by = who(&request);
        answer(&self.0, move |control| {
            let reloaded = Reload(control).run(&by)?;
            let applied = reloaded.applied;
            let (changes, pending) = report(control, &applied);
            Ok(v1::ReloadConfigResponse {
                file: reloaded.file,
                changes,
                kept: kept(&applied.plan),
                pending,
                waits: keys(&reloaded.waits),
                problem: applied.problem.unwrap_or_default(),
            })
        })
        .await
    }

    type BackupStateStream = Stream<v1::BackupStateResponse>;

    async fn backup_state(
        &self,
        _request: Request<v1::BackupStateRequest>,
    ) -> Answer<Self::BackupStateStream> {
        let control = self.0.clone();
        let file = blocking(move || control.store.backup().map_err(Refused::from)).await??;
        Ok(Response::new(stream(&self.0, 4, |sender| send(file, sender))))
    }
}
