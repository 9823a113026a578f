//! All executions of each model.

use vnic_models::models;

macro_rules! models {
    ($($name:ident: $model:expr;)*) => {
        $(#[test]
        fn $name() {
            $model;
        })*
    };
}

models! {
    a_link_lends_a_buffer_and_gives_it_back: models::links::a_buffer_is_lent_and_given_back();
    no_frame_of_a_link_is_slept_through: models::links::no_frame_is_slept_through();
    no_bell_is_slept_through: models::links::no_bell_is_slept_through();
    no_frame_of_a_mesh_port_is_slept_through: models::exchange::no_frame_is_slept_through();
    no_doorbell_is_slept_through: models::doorbells::no_doorbell_is_slept_through();
    a_full_ring_of_doorbells_is_used_again: models::doorbells::a_full_ring_is_used_again();
    no_buffer_is_slept_through: models::virtqueues::no_buffer_is_slept_through(false);
    no_buffer_is_slept_through_with_events: models::virtqueues::no_buffer_is_slept_through(true);
    no_answer_is_slept_through: models::virtqueues::no_answer_is_slept_through(false);
    no_answer_is_slept_through_with_late_interrupts: models::virtqueues::no_answer_is_slept_through(true);
    a_lent_mapping_is_found_whole: models::sigbus::a_mapping_is_found_whole();
}
