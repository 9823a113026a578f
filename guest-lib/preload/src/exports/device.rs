//! Devices, contexts, ports, GIDs.
