//! `vnic.v1.FaultService`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};
use vnic_backend::fault::{ALWAYS, Action, PsnRange};
use vnic_backend::{FAULTS_MAX, FaultSpec, FaultStatus};
use vnic_control::v1;
use vnic_control::v1::fault::Action as Wire;

use super::answer::{Answer, Stream, answer};
use super::errors::{OWNER, form, id, invalid};
use super::looks::{self, resource};
use super::paging::page;
use super::{recordings, scenarios, verbs_faults};
use crate::access::{blocking, who};
use crate::check::{self, Checked, Violations, fault as limits};
use crate::control::{self, Control};
use crate::stored::values;
use crate::{faults, names};

/// The service.
pub struct Faults(pub Arc<Control>);

/// Converter from rules to messages.
struct Messages<'a> {
    control: &'a Control,
    ports: BTreeSet<String>,
}

impl Messages<'_> {
    /// Reads the names of the ports. May block.
    fn new(control: &Control) -> Messages<'_> {
        let ports = control.port_names();
        Messages { control, ports }
    }

    fn now(&self, status: &FaultStatus) -> v1::Fault {
        self.of(
            status,
            control::Faults(self.control).is_configured(&status.spec.name),
        )
    }

    fn of(&self, status: &FaultStatus, configured: bool) -> v1::Fault {
        let mut fault = faults::status_message(status, |name| names::owner(&self.ports, name));
        let lifetime = if configured {
            v1::Lifetime::Configured
        } else {
            v1::Lifetime::UntilDaemonEnds
        };
        fault.set_lifetime(lifetime);
        fault
    }
}

/// Makes rules, all or none. `at` gives the prefix of the field paths of each request. May block.
fn create(
    control: &Control,
    requests: &[v1::CreateFaultRequest],
    at: impl Fn(usize) -> String,
) -> Result<Vec<v1::Fault>, Status> {
    let mut wrong = Violations::default();
    let none = v1::Fault::default();
    let adapters = control.adapter_names().into_iter();
    let adapters = adapters.map(|name| names::of(names::ADAPTERS, &name));
    let ports = control.port_names().into_iter();
    let ports = ports.map(|name| names::of(names::PORTS, &name));
    let owners: BTreeSet<String> = adapters.chain(ports).collect();
    let specs: Vec<Option<FaultSpec>> = (0..)
        .zip(requests)
        .map(|(i, r)| {
            let fault = r.fault.as_ref().unwrap_or(&none);
            spec(&r.fault_id, fault, &owners, &at(i), &mut wrong)
        })
        .collect();
    let specs = wrong.finish(specs.into_iter().collect::<Option<Vec<_>>>())?;
    let made = control::Faults(control).create(specs, at)?;
    let messages = Messages::new(control);
    Ok(made.iter().map(|status| messages.now(status)).collect())
}

/// All rules. May block.
fn all(control: &Control) -> Vec<v1::Fault> {
    let messages = Messages::new(control);
    control.nic.faults().iter().map(|f| messages.now(f)).collect()
}

resource!(Fault, WatchFaultsResponse { fault }: |control| {
    let quiet = |fault| v1::Fault { matched: 0, injected: 0, ..fault };
    all(control).into_iter().map(quiet).collect()
});

#[tonic::async_trait]
impl v1::fault_service_server::FaultService for Faults {
    async fn list_faults(&self, request: Request<v1::ListFaultsRequest>) -> Answer<v1::ListFaultsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListFaults", [100, 1000])?;
        let control = self.0.clone();
        let all = blocking(move || all(&control)).await?;
        let (faults, next_page_token) = page.cut(all, |f| format!("{:010}", f.id));
        Ok(Response::new(v1::ListFaultsResponse {
            faults,
            next_page_token,
        }))
    }

    async fn get_fault(&self, request: Request<v1::GetFaultRequest>) -> Answer<v1::Fault> {
        let id = id(names::FAULTS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let status = control::Faults(control).get(&id)?;
            Ok(Messages::new(control).now(&status))
        })
        .await
    }

    async fn create_fault(&self, request: Request<v1::CreateFaultRequest>) -> Answer<v1::Fault> {
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let made = create(control, &[request], |_| String::new())?;
            Ok(made.into_iter().next().unwrap_or_default())
        })
        .await
    }

    async fn batch_create_faults(
        &self,
        request: Request<v1::BatchCreateFaultsRequest>,
    ) -> Answer<v1::BatchCreateFaultsResponse> {
        let requests = request.into_inner().requests;
        if requests.len() > FAULTS_MAX {
            let problem = format!("{} rules; at most {FAULTS_MAX} are allowed", requests.len());
            return Err(invalid("requests", problem));
        }
        answer(&self.0, move |control| {
            let faults = create(control, &requests, |i| format!("requests[{i}]."))?;
            Ok(v1::BatchCreateFaultsResponse { faults })
        })
        .await
    }

    async fn delete_fault(&self, request: Request<v1::DeleteFaultRequest>) -> Answer<v1::Fault> {
        let id = id(names::FAULTS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            // The message says whether the rule was one of the configuration.
            let messages = Messages::new(control);
            let configured = control::Faults(control).is_configured(&id);
            let status = control::Faults(control).remove(&id)?;
            Ok(messages.of(&status, configured))
        })
        .await
    }

    async fn play_scenario(&self, request: Request<v1::PlayScenarioRequest>) -> Answer<v1::Scenario> {
        let by = who(&request);
        let request = request.into_inner();
        scenarios::checked(&request.content)?;
        let adapters = scenarios::adapters(request.adapters);
        answer(&self.0, move |control| {
            let play = control::Scenarios(control).play(&request.content, &adapters, &by)?;
            Ok(scenarios::message(play))
        })
        .await
    }

    async fn list_scenarios(
        &self,
        request: Request<v1::ListScenariosRequest>,
    ) -> Answer<v1::ListScenariosResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListScenarios", [100, 1000])?;
        let all = control::Scenarios(&self.0).list().into_iter();
        let all = (0..).zip(all.map(scenarios::message)).collect();
        let (scenarios, next_page_token) = page.cut(all, |(n, _): &(u32, _)| format!("{n:010}"));
        Ok(Response::new(v1::ListScenariosResponse {
            scenarios: scenarios.into_iter().map(|(_, scenario)| scenario).collect(),
            next_page_token,
        }))
    }

    async fn get_scenario(&self, request: Request<v1::GetScenarioRequest>) -> Answer<v1::Scenario> {
        let id = id(names::SCENARIOS, "name", &request.into_inner().name)?;
        let play = control::Scenarios(&self.0).get(&id)?;
        Ok(Response::new(scenarios::message(play)))
    }

    async fn stop_scenario(&self, request: Request<v1::StopScenarioRequest>) -> Answer<v1::Scenario> {
        let id = id(names::SCENARIOS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            Ok(scenarios::message(control::Scenarios(control).stop(&id)?))
        })
        .await
    }

    async fn start_recording(&self, request: Request<v1::StartRecordingRequest>) -> Answer<v1::Recording> {
        let request = request.into_inner();
        answer(&self.0, move |control| recordings::start(control, &request)).await
    }

    async fn stop_recording(&self, _request: Request<v1::StopRecordingRequest>) -> Answer<v1::Recording> {
        answer(&self.0, |control| recordings::stop(control)).await
    }

    async fn list_outcomes(
        &self,
        request: Request<v1::ListOutcomesRequest>,
    ) -> Answer<v1::ListOutcomesResponse> {
        let page = recordings::list(&self.0, request.into_inner()).await?;
        Ok(Response::new(page))
    }

    async fn create_verbs_fault(
        &self,
        request: Request<v1::CreateVerbsFaultRequest>,
    ) -> Answer<v1::VerbsFault> {
        let request = request.into_inner();
        answer(&self.0, move |control| verbs_faults::create(control, &request)).await
    }

    async fn list_verbs_faults(
        &self,
        request: Request<v1::ListVerbsFaultsRequest>,
    ) -> Answer<v1::ListVerbsFaultsResponse> {
        let page = verbs_faults::list(&self.0, request.into_inner()).await?;
        Ok(Response::new(page))
    }

    async fn delete_verbs_fault(
        &self,
        request: Request<v1::DeleteVerbsFaultRequest>,
    ) -> Answer<v1::VerbsFault> {
        let request = request.into_inner();
        answer(&self.0, move |control| verbs_faults::delete(control, &request)).await
    }

    type WatchFaultsStream = Stream<v1::WatchFaultsResponse>;

    async fn watch_faults(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchFaultsStream> {
        looks::watch::<v1::Fault>(&self.0, request.into_inner(), |name| {
            id(names::FAULTS, "name", name).map(drop)
        })
        .await
    }
}

/// Reader of the fields of one request; `at` is the prefix of the field paths.
struct Reader<'a> {
    owners: &'a BTreeSet<String>,
    at: &'a str,
    wrong: &'a mut Violations,
}

impl Reader<'_> {
    fn check<T>(&mut self, field: &str, checked: Checked<T>) -> Option<T> {
        self.wrong.check(format!("{}{field}", self.at), checked)
    }

    fn optional<V, T>(
        &mut self,
        field: &str,
        value: Option<V>,
        check: impl FnOnce(V) -> Checked<T>,
    ) -> Option<Option<T>> {
        self.wrong.optional(format!("{}{field}", self.at), value, check)
    }

    /// Reads the resource name of an adapter or port.
    fn owner(&mut self, field: &str, name: &str) -> Option<Option<String>> {
        if name.is_empty() {
            return Some(None);
        }
        let id = names::id(names::ADAPTERS, name).or_else(|| names::id(names::PORTS, name));
        let checked = match id {
            Some(id) if self.owners.contains(name) => Ok(Some(id.to_owned())),
            Some(_) => Err(format!("{name} does not exist")),
            None => Err(form(name, OWNER)),
        };
        self.check(field, checked)
    }

    fn span(&mut self, field: &str, span: Option<prost_types::Duration>) -> Option<Option<Duration>> {
        self.optional(field, span, |d| {
            values::span(d).ok_or("must not be negative".to_owned())
        })
    }

    fn action(&mut self, action: Option<&Wire>) -> Option<Action> {
        let number = |n: u32| i64::from(if n == 0 { 1 } else { n });
        match action {
            None => {
                let actions = "drop, delay, reorder, duplicate, corrupt or mark_ce";
                self.check(
                    "fault.action",
                    Err(format!("required: what happens to frames; {actions}")),
                )
            }
            Some(Wire::Drop(_)) => Some(Action::Drop),
            Some(Wire::MarkCe(_)) => Some(Action::MarkCe),
            Some(Wire::Delay(d)) => {
                let jitter = self.span("fault.delay.jitter", d.jitter)?.unwrap_or_default();
                let by = self.span("fault.delay.delay", d.delay)?.unwrap_or_default();
                self.check("fault.delay.delay", limits::held(by))?;
                self.check("fault.delay.jitter", limits::held(by.saturating_add(jitter)))?;
                Some(Action::Delay { by, jitter })
            }
            Some(Wire::Reorder(r)) => {
                let by = self.check("fault.reorder.frames", limits::reorder(number(r.frames)));
                let at_most = self.span("fault.reorder.at_most", r.at_most)?;
                let at_most = at_most.unwrap_or(limits::AT_MOST_DEFAULT);
                let at_most = self.check("fault.reorder.at_most", limits::held(at_most));
                Some(Action::Reorder {
                    by: by?,
                    at_most: at_most?,
                })
            }
            Some(Wire::Duplicate(d)) => {
                let copies = self.check("fault.duplicate.copies", limits::copies(number(d.copies)))?;
                Some(Action::Duplicate { copies })
            }
            Some(Wire::Corrupt(c)) => {
                let offset =
                    self.optional("fault.corrupt.offset", c.offset, |o| limits::offset(i64::from(o)));
                let bits = limits::bits(number(c.bits), c.offset.is_some());
                let bits = self.check("fault.corrupt.bits", bits);
                Some(Action::Corrupt {
                    bits: bits?,
                    offset: offset?,
                })
            }
        }
    }
}

/// Reads the rule of a request. `at` is the prefix of the field paths.
fn spec(
    id: &str,
    fault: &v1::Fault,
    owners: &BTreeSet<String>,
    at: &str,
    wrong: &mut Violations,
) -> Option<FaultSpec> {
    let mut r = Reader { owners, at, wrong };
    let none = v1::FaultMatch::default();
    let m = fault.r#match.as_ref().unwrap_or(&none);
    let name = r.check("fault_id", check::name(id));
    let from = r.owner("fault.match.from", &m.from);
    let to = r.owner("fault.match.to", &m.to);
    let destination_qp = r.optional("fault.match.destination_qp", m.destination_qp, |q| {
        limits::destination_qp(i64::from(q))
    });
    let opcodes: Vec<Option<u8>> = (0..)
        .zip(&m.opcodes)
        .map(|(i, o)| {
            let field = format!("fault.match.opcodes[{i}]");
            r.check(&field, limits::opcode(i64::from(*o)))
        })
        .collect();
    let psn = match &m.psn {
        None => Some(None),
        Some(range) => {
            let first = r.check("fault.match.psn.first", limits::psn(i64::from(range.first)));
            let last = r.check("fault.match.psn.last", limits::psn(i64::from(range.last)));
            first
                .zip(last)
                .map(|(first, last)| Some(PsnRange { first, last }))
        }
    };
    let ethertype = r.optional("fault.match.ethertype", m.ethertype, |e| {
        limits::ethertype(i64::from(e))
    });
    let probability = r.optional("fault.probability", fault.probability, limits::probability);
    let action = r.action(fault.action.as_ref());
    Some(FaultSpec {
        name: name?,
        from: from?,
        to: to?,
        roce: m.roce,
        destination_qp: destination_qp?,
        opcodes: limits::opcodes(opcodes.into_iter().collect::<Option<_>>()?),
        psn: psn?,
        ethertype: ethertype?,
        skip: fault.skip,
        probability: probability?.unwrap_or(ALWAYS),
        count: fault.count,
        seed: fault.seed,
        action: action?,
    })
}
