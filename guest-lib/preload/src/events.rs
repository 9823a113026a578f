//! Asynchronous events and completion events, and that objects wait for their acknowledgement.

/// Events that the program took and did not acknowledge yet. Whoever destroys the object waits until there are none.
#[derive(Debug, Default)]
pub struct Unacknowledged {}

/// Where asynchronous events of one context wait.
#[derive(Debug)]
pub struct Mailbox {}
