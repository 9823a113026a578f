//! The table of QP states, printed in full: a change of it is a change of this text.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine rdma_states::` writes the text anew.

use std::fmt::{self, Write};

use expect_test::expect_file;
use vnic_engine::rdma::state::{self, TRANSITIONS, Trigger};
use vnic_engine::rdma::{AttributeMask, QpState, QpType, VerbsError};

fn names(mask: AttributeMask) -> String {
    let names: Vec<&str> = mask.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(" ")
    }
}

fn print() -> Result<String, fmt::Error> {
    let mut out = String::new();
    for qp_type in QpType::ALL {
        writeln!(out, "# {qp_type:?}\n\n## What modify does")?;
        for from in QpState::ALL {
            for to in QpState::ALL {
                if let Some(row) = state::find(qp_type, from, to) {
                    writeln!(out, "{from:?} -> {to:?}")?;
                    writeln!(out, "    needs:  {}", names(row.required))?;
                    writeln!(out, "    allows: {}", names(row.optional))?;
                }
            }
        }
        writeln!(out, "\n## What it may do")?;
        for at in QpState::ALL {
            let may = state::allows(qp_type, at);
            let all = [
                (may.post_send, "post_send"),
                (may.post_recv, "post_recv"),
                (may.transmit, "transmit"),
                (may.drain, "drain"),
                (may.receive_responses, "receive_responses"),
                (may.receive, "receive"),
                (may.respond, "respond"),
                (may.flush_send, "flush_send"),
                (may.flush_recv, "flush_recv"),
            ];
            let list: Vec<&str> = all
                .iter()
                .filter(|(yes, _)| *yes)
                .map(|(_, name)| *name)
                .collect();
            writeln!(out, "{:<6} {}", format!("{at:?}"), list.join(" "))?;
        }
        writeln!(out, "\n## Where it goes by itself")?;
        for trigger in Trigger::ALL {
            for at in QpState::ALL {
                if let Some(next) = state::triggered(qp_type, at, trigger) {
                    writeln!(out, "{:<13} {at:?} -> {next:?}", format!("{trigger:?}"))?;
                }
            }
        }
        writeln!(out)?;
    }
    Ok(out)
}

#[test]
fn the_whole_table() {
    expect_file!["../snapshots/qp_states.txt"].assert_eq(&print().unwrap());
}

#[test]
fn a_row_is_there_once() {
    for (at, row) in TRANSITIONS.iter().enumerate() {
        let same = |other: &state::Transition| {
            (other.from, other.to, other.qp_type) == (row.from, row.to, row.qp_type)
        };
        assert_eq!(TRANSITIONS.iter().position(same), Some(at), "{row:?}");
        assert!(!row.required.intersects(row.optional), "{row:?}");
        assert!(!row.required.union(row.optional).contains(AttributeMask::STATE));
    }
}

/// All masks that differ by one attribute from what a row needs and allows.
#[test]
fn each_attribute_counts() {
    for qp_type in QpType::ALL {
        for from in QpState::ALL {
            for to in QpState::ALL {
                let ask = |given| state::transition(qp_type, from, to, given);
                let Some(row) = state::find(qp_type, from, to) else {
                    let refused = Err(VerbsError::Transition { from, to });
                    assert_eq!(ask(AttributeMask::STATE), refused);
                    continue;
                };
                assert_eq!(ask(row.required | AttributeMask::STATE), Ok(()));
                assert_eq!(ask(row.required | row.optional), Ok(()));
                for one in AttributeMask::all().iter() {
                    let (missing, unexpected) = if row.required.contains(one) {
                        (one, AttributeMask::empty())
                    } else if row.optional.contains(one) || one == AttributeMask::STATE {
                        continue;
                    } else {
                        (AttributeMask::empty(), one)
                    };
                    let given = row.required.symmetric_difference(one);
                    assert_eq!(ask(given), Err(VerbsError::Attributes { missing, unexpected }));
                }
            }
        }
    }
}

/// No trigger leads to a state from which a user could not get away, and none leads out of an error.
#[test]
fn triggers_lead_to_errors() {
    for qp_type in QpType::ALL {
        for at in QpState::ALL {
            for trigger in Trigger::ALL {
                let Some(next) = state::triggered(qp_type, at, trigger) else {
                    continue;
                };
                assert!(matches!(next, QpState::Err | QpState::Sqe));
                assert_ne!(at, QpState::Err);
                let sqe_is_for_unreliable = next != QpState::Sqe || !qp_type.reliable();
                assert!(sqe_is_for_unreliable);
            }
        }
    }
}
