//! Flow control on the wire: pause frames that an uplink sends and obeys.
