//! The receivers of a core are served, come, change and go.

mod bonds;
mod give;
mod links;
mod receivers;
mod waiting;
