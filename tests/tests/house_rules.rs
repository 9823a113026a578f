//! The rules of the house, applied to the house. What each rule says is in `vnic_tests::house`.

use cargo_metadata::MetadataCommand;
use vnic_tests::house::{self, Breach, Package, Tree};

fn tree() -> Tree {
    Tree::read(&house::root()).expect("the project's files can be read")
}

fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(house::root().join("Cargo.toml"))
        // What other platforms would need is not there, and not ours to judge.
        .other_options(
            [
                "--locked",
                "--offline",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ]
            .map(str::to_owned),
        )
        .exec()
        .expect("cargo knows the workspace");
    house::packages(&metadata)
}

#[track_caller]
fn holds(breaches: &[Breach]) {
    let list: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} breaches:\n{}", list.len(), list.join("\n"));
}

#[test]
fn rooms_use_only_what_their_row_allows() {
    holds(&house::rooms(&packages()));
}

#[test]
fn licences_of_dependencies_are_acceptable() {
    holds(&house::licences(&packages(), &house::allowed_licences(&tree())));
}

#[test]
fn core_crates_have_no_std_and_no_unsafe_code() {
    holds(&house::core_attributes(&tree()));
}

#[test]
fn floors_name_nothing_above_them() {
    holds(&house::floors(&tree()));
}

#[test]
fn nothing_is_left_for_later() {
    holds(&house::markers(&tree()));
}

#[test]
fn every_room_is_documented() {
    holds(&house::documented(&tree()));
}

#[test]
fn every_method_of_the_control_interface_is_explained() {
    holds(&house::proto_comments(&tree()));
}

/// Folders whose files are to know one another one way.
const FOLDERS: &[&str] = &[
    "vnic-backend/src",
    "vnic-backend/src/datapath",
    "vnic-backend/src/datapath/core",
    "vnic-backend/src/datapath/outputs",
    "vnic-backend/src/rdma",
    "vnic-backend/src/nic",
    "appliance/src",
];

/// `cargo test --locked -p vnic-tests --test house_rules drawn -- --nocapture` shows who uses whom.
#[test]
fn who_uses_whom_is_drawn() {
    use house::shape::{arrows, drawing};
    let tree = tree();
    for folder in FOLDERS {
        println!("{}", drawing(folder, &arrows(&tree, folder)));
    }
}

#[test]
fn types_are_small_and_files_know_each_other_one_way() {
    use house::shape::{self, BACKWARDS, LONG_CALLS, SPREAD};
    let tree = tree();
    let mut breaches = shape::fields(&tree);
    breaches.extend(shape::impls(&tree, SPREAD));
    breaches.extend(shape::calls(&tree, LONG_CALLS));
    breaches.extend(shape::backwards(&tree, FOLDERS, BACKWARDS));
    holds(&breaches);
}

#[test]
fn files_do_not_use_one_another_in_large_circles() {
    let folders = [
        "appliance/src",
        "guest-lib/src",
        "guest-lib/tools/src",
        "guest-lib/preload/src",
        "vnic-backend/src",
    ];
    holds(&house::circles::circles(&tree(), &folders));
}

/// What `tests/run` prints at its end.
#[test]
fn figures_of_the_house() {
    for line in house::figures(&tree()) {
        println!("figure: {line}");
    }
}

#[test]
fn cases_of_the_lab_are_where_the_lab_runs_them() {
    holds(&house::lab_cases(&tree()));
}

#[test]
fn links_of_pages_lead_to_files_and_first_pages_are_short() {
    holds(&house::links(&tree()));
    holds(&house::page_sizes(&tree()));
    holds(&house::book(&tree()));
    holds(&house::places(&tree()));
}

#[test]
fn what_is_cited_can_be_got() {
    holds(&house::citations(&tree()));
}

#[test]
fn promises_of_security_have_tests() {
    holds(&house::promises(&tree()));
}

#[test]
fn shell_scripts_stop_at_the_first_error() {
    holds(&house::shell_scripts(&tree()));
}

#[test]
fn what_is_built_is_what_was_tested() {
    holds(&house::locked_commands(&tree()));
    holds(&house::toolchain(&tree()));
}
