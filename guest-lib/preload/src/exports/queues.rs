//! Queues, address handles, events.
