//! Numbers as texts, rates, what needs no device.
