//! Congestion control of adapters.
//!
//! ```text
//!  wish ─ change ─▶ keys, CongestionSpec ─▶ the NIC would take it? ─▶ one transaction: registry keys, row of `congestion` ─▶ NIC
//! ```

mod change;

use vnic_backend::{
    CongestionAlgorithm, CongestionFlow, CongestionSpec, CongestionStatus, GuestFlow, NicError,
};

use super::Control;
use super::fields::{Now, etag, unchanged};
use super::refused::Refused;
use super::registry::Keys;
use crate::events::Owner;
use crate::registry::{Operation, RegistryError};
use crate::store::Batch;
use crate::stored;

use change::Change;
pub use change::Wish;

/// Name of these settings in events, and table of the store. Key of a row: the adapter's name; value: see
/// [`stored::congestion`].
const STORE: &str = "congestion";

pub struct Congestion<'a>(pub &'a Control);

/// Limited flows of an adapter: queue pairs of its RDMA function, and its guest's.
pub type Flows = (String, Vec<CongestionFlow>, Vec<GuestFlow>);

/// Congestion control of an adapter at one time.
pub type CongestionNow = Now<CongestionStatus>;

/// Path of a field of the specification in a request.
fn path(name: &str) -> String {
    match name {
        "algorithm" | "reaction" => name.to_owned(),
        other => format!("parameters[{other}]"),
    }
}

fn refused(error: NicError) -> Refused {
    Refused::nic(path)(error)
}

fn etag_of(adapter: &str, now: &CongestionStatus) -> String {
    etag(format!("{adapter} {:?} {:?} {}", now.spec, now.keys, now.line_rate).as_bytes())
}

impl Congestion<'_> {
    /// Congestion control of an adapter. May block.
    pub fn get(&self, adapter: &str) -> Result<CongestionNow, Refused> {
        let status = self.look(adapter)?;
        Ok(CongestionNow {
            warnings: self.warnings(adapter, &status),
            etag: etag_of(adapter, &status),
            status,
        })
    }

    /// Congestion control of all adapters. May block.
    pub fn list(&self) -> Vec<(String, CongestionNow)> {
        // An adapter that was removed meanwhile is left out.
        let one = |name: String| Some((name.clone(), self.get(&name).ok()?));
        self.0.adapter_names().into_iter().filter_map(one).collect()
    }

    /// Changes the fields that a wish names, unless the settings have changed since etag `since`; empty: in any case. May block.
    pub fn set(&self, by: &str, adapter: &str, since: &str, wish: &Wish) -> Result<CongestionNow, Refused> {
        let _order = self.0.change_order();
        let what = self.change(adapter, since, wish).inspect_err(|refused| {
            if refused.wrong_fields().is_some() || refused.is_above_line_rate() {
                self.record_refused(adapter, refused.text(), by);
            }
        })?;
        self.changed(by, adapter, what)
    }

    /// Resets congestion control of an adapter to the defaults; zero touch RoCE stays. May block.
    pub fn reset(&self, by: &str, adapter: &str) -> Result<CongestionNow, Refused> {
        let _order = self.0.change_order();
        let now = self.look(adapter)?;
        let operations = change::forget_keys(adapter);
        let spec = CongestionSpec {
            own: now.spec.own.zero_touch(),
            ..CongestionSpec::default()
        };
        let plain = (spec, operations.as_slice());
        self.carry_out(adapter, &now.spec, plain)?;
        self.changed(
            by,
            adapter,
            "everything but zero touch RoCE is as while nothing is configured".to_owned(),
        )
    }

    /// Limited queue pairs and guests' flows of one adapter or of all. May block.
    pub fn flows(&self, only: Option<&str>) -> Result<Vec<Flows>, Refused> {
        let flows = |name: String| {
            let of_guest = self.0.nic.guest_flows(&name)?;
            let own = match self.0.nic.congestion_flows(&name) {
                Err(_) if !of_guest.is_empty() => Vec::new(),
                own => own?,
            };
            Ok::<_, NicError>((name, own, of_guest))
        };
        let all = match only {
            Some(name) => vec![flows(name.to_owned()).map_err(Refused::Nic)?],
            // An adapter without an RDMA function, or one that was removed meanwhile, has no flows.
            None => self
                .0
                .adapter_names()
                .into_iter()
                .filter_map(|name| flows(name).ok())
                .collect(),
        };
        Ok(all)
    }

    fn look(&self, adapter: &str) -> Result<CongestionStatus, Refused> {
        let status = self.0.nic.congestion(adapter);
        status.map_err(Refused::nic(str::to_owned))
    }

    /// Records a change as an event.
    fn changed(&self, by: &str, adapter: &str, what: String) -> Result<CongestionNow, Refused> {
        self.0
            .settings_changed(Owner::Adapter(adapter.to_owned()), STORE, what, by);
        self.get(adapter)
    }

    fn record_refused(&self, adapter: &str, what: String, by: &str) {
        self.0
            .settings_refused(Owner::Adapter(adapter.to_owned()), STORE, what, by);
    }

    fn warnings(&self, adapter: &str, now: &CongestionStatus) -> Vec<String> {
        let mut said = Vec::new();
        let (reaction, notification) = now.spec.enabled(&now.keys);
        let any = reaction | notification != 0;
        if any && !now.rdma && !now.acting.soft_roce {
            said.push("the adapter has no RDMA function, and soft_roce is 0".to_owned());
        }
        if any && now.acting.soft_roce && now.algorithm == CongestionAlgorithm::Hpcc {
            said.push(
                "soft_roce: hpcc limits the guest's own RoCE to adapters with soft_roce, and no other"
                    .to_owned(),
            );
        }
        if now.algorithm != now.spec.algorithm {
            said.push(format!(
                "{}: {} acts, as NV parameters do not allow it (vnicctl nvconfig)",
                now.spec.algorithm.name(),
                now.algorithm.name()
            ));
        }
        if let Some(last) = &now.faults.last {
            let taken = match now.faults.stopped {
                true => "; dcqcn has taken over until a program is loaded again",
                false => "",
            };
            said.push(format!(
                "program: {} events failed, last {last}{taken}",
                now.faults.count
            ));
        }
        if reaction != 0 && now.spec.algorithm == CongestionAlgorithm::None {
            said.push("reaction: the algorithm is none".to_owned());
        }
        if reaction != 0 && now.acting.reaction.min_rate >= now.line_rate {
            said.push("DcqcnRpgMinRate is the line rate: nothing is limited".to_owned());
        }
        let pause = self.0.nic.qos(adapter).is_ok_and(|qos| {
            let pause = qos.acting.pause;
            pause.pfc != 0 || pause.global_tx || pause.global_rx
        });
        if any && !pause {
            said.push("no flow control: congestion control does not replace PFC or global pause".to_owned());
        }
        said
    }

    /// Carries out a wish; returns the change in words.
    fn change(&self, adapter: &str, since: &str, wish: &Wish) -> Result<String, Refused> {
        let now = self.look(adapter)?;
        unchanged(since, etag_of(adapter, &now))?;
        let Change {
            spec,
            operations,
            words,
            above,
        } = Change::read(adapter, wish, &now, self.0.nic.line_rate_mbps(adapter))?;
        self.0.nic.check_congestion(&spec).map_err(refused)?;
        let loads = wish.program.as_ref().is_some_and(|code| !code.is_empty());
        if spec.algorithm != now.spec.algorithm || loads {
            self.allowed(spec.algorithm, loads)?;
        }
        let done = self.carry_out(adapter, &now.spec, (spec, &operations));
        match above {
            Some(refused) if done.as_ref().err().is_none_or(Refused::is_rehearsed) => Err(refused),
            _ => done.map(|()| words.join(", ")),
        }
    }

    /// Whether NV parameters allow an algorithm, and a program if one is `loaded`.
    fn allowed(&self, algorithm: CongestionAlgorithm, loaded: bool) -> Result<(), Refused> {
        let limits = self.0.nv.algorithms();
        let wanted = if loaded {
            CongestionAlgorithm::Program
        } else {
            algorithm
        };
        match limits.allow(wanted) && limits.allow(algorithm) {
            true => Ok(()),
            false => Err(Refused::NotProgrammable(
                wanted.name().to_owned(),
                limits.only_dcqcn,
            )),
        }
    }

    /// Stores checked settings and applies them.
    fn carry_out(
        &self,
        adapter: &str,
        before: &CongestionSpec,
        (spec, operations): (CongestionSpec, &[Operation]),
    ) -> Result<(), Refused> {
        let mut row = Batch::new();
        if spec != *before {
            put(&mut row, adapter, &spec);
        }
        if operations.is_empty() {
            self.0.store.commit(row)?;
        } else {
            let done = self.0.registry.transact_now(adapter, operations, row);
            done.map_err(|error| {
                if let RegistryError::Refused(_) = error {
                    self.put_back(adapter, before);
                }
                Keys(self.0).refused("", error, |r| format!("parameters[{}]", r.key))
            })?;
        }
        self.0.nic.set_congestion(adapter, spec).map_err(|error| {
            self.put_back(adapter, before);
            refused(error)
        })
    }

    /// Replaces congestion control of an adapter, but for the parameters that are keys of its registry.
    pub(super) fn replace(&self, adapter: &str, spec: CongestionSpec) -> Result<(), Refused> {
        let now = self.look(adapter)?;
        self.0.nic.check_congestion(&spec).map_err(refused)?;
        self.carry_out(adapter, &now.spec, (spec, &[]))
    }

    /// Restores the row of the settings `before`.
    fn put_back(&self, adapter: &str, before: &CongestionSpec) {
        let mut batch = Batch::new();
        put(&mut batch, adapter, before);
        if let Err(error) = self.0.store.commit(batch) {
            tracing::error!("congestion of {adapter}: what did not act stays stored: {error}");
        }
    }

    /// Adds the removal of an adapter's row to a batch.
    pub(super) fn forget(batch: &mut Batch, adapter: &str) {
        batch.delete(STORE, adapter.as_bytes());
    }

    /// Stored settings of an adapter. A row that cannot be read causes an event, and the default is returned.
    pub(super) fn stored(&self, adapter: &str) -> CongestionSpec {
        let rows = self.0.store.all(STORE).map_err(|error| error.to_string());
        let row = rows.and_then(|rows| {
            let own = rows
                .into_iter()
                .find(|(name, _)| name.as_slice() == adapter.as_bytes());
            own.map_or_else(
                || Ok(CongestionSpec::default()),
                |(_, bytes)| stored::congestion::decode(&bytes),
            )
        });
        row.unwrap_or_else(|problem| {
            self.record_refused(adapter, format!("what is stored does not act: {problem}"), "");
            CongestionSpec::default()
        })
    }
}

/// Adds the row of a specification to a batch.
fn put(batch: &mut Batch, adapter: &str, spec: &CongestionSpec) {
    if *spec == CongestionSpec::default() {
        Congestion::forget(batch, adapter);
    } else {
        batch.put(STORE, adapter.as_bytes(), stored::congestion::encode(spec));
    }
}
