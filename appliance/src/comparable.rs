//! What recordings say, as text that two runs that do the same have in common.

use vnic_backend::Recorded;

use crate::{cli, grpc};

/// What `vnicctl fault report --comparable` says of a recording.
pub fn report(recorded: &Recorded) -> String {
    cli::comparable(grpc::whole(recorded))
}
