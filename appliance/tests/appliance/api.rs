//! The gRPC API as others use it: `proto/control/api.txt` has all of it, and `docs/api.md` explains it.

mod breaking;
mod grammar;
mod items;
mod reference;

use prost_reflect::DescriptorPool;

/// The golden list of the API.
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/control/api.txt");
/// The reference.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api.md");
/// What writes both.
const WRITES: &str = "UPDATE_DOCS=1 cargo test --locked -p vnic-appliance --test appliance -- api::";

/// What the daemon tells clients of itself.
pub fn pool() -> DescriptorPool {
    DescriptorPool::decode(vnic_control::FILE_DESCRIPTOR_SET).expect("the descriptors")
}

#[test]
fn nothing_of_the_api_is_taken_away_or_changed() {
    let now = items::list(&pool());
    let known = std::fs::read_to_string(LIST).unwrap_or_default();
    let changes = breaking::changes(&known, &now);
    assert!(
        changes.breaking.is_empty(),
        "clients that are in use break:\n{}\nproto/control/README.md says what to do instead.",
        changes.breaking.join("\n")
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(LIST, &now).expect("proto/control/api.txt");
        return;
    }
    assert!(
        known == now,
        "new in the API, and allowed:\n{}\nproto/control/api.txt lacks it: {WRITES} writes it",
        changes.added.join("\n")
    );
}

#[test]
fn the_reference_is_what_the_descriptors_say() {
    let made = reference::markdown(&pool());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(REFERENCE, &made).expect("docs/api.md");
    }
    let text = std::fs::read_to_string(REFERENCE).unwrap_or_default();
    assert!(
        text == made,
        "docs/api.md is not what the .proto files say: {WRITES} writes it"
    );
}
