//! What it does, by numbers.
