//! Service, arrival, change and removal of a core's receivers.

mod bonds;
mod give;
mod links;
mod receivers;
mod waiting;
