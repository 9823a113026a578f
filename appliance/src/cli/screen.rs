//! What fills a terminal: its screen, tables in colours, plots.

pub mod paint;
pub mod plot;
pub mod terminal;
