//! Connections: what a driver asks for, and what it is told.

use vnic_device::command::Opcode as O;
use vnic_device::command::connection::{
    ConnectionEvent, ConnectionEventKind as Kind, ConnectionReply, Message,
};
use vnic_device::command::{Object, connection};
use vnic_device::event::EventKind;
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::FromBytes;

use super::Driver;

impl Driver {
    /// The next events, and that the driver was woken for them.
    ///
    /// # Panics
    /// When others come, or more.
    pub fn connection_events(&mut self, count: usize) -> Vec<ConnectionEvent> {
        let mut all = Vec::new();
        while all.len() < count {
            self.event(EventKind::ConnectionEvents);
            loop {
                // One at a time, so that some are left.
                let head = self.head(O::TakeConnectionEvents, 0, 0);
                let reply = self.command_with(head, &[], size_of::<ConnectionEvent>());
                assert_eq!(reply.status, S::Ok, "{reply}");
                let Ok(event) = ConnectionEvent::read_from_bytes(&reply.bytes) else {
                    assert!(reply.bytes.is_empty());
                    break;
                };
                all.push(event);
            }
        }
        assert_eq!(all.len(), count, "{all:?}");
        all
    }

    /// What the next event says, which is of this kind.
    ///
    /// # Panics
    /// When another comes.
    pub fn connection_event(&mut self, kind: Kind) -> Message {
        let events = self.connection_events(1);
        assert_eq!(events[0].kind, kind.number(), "{events:?}");
        events[0].message
    }

    /// Asks for a connection.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn ask_for(&mut self, request: &Message) -> u32 {
        let made: Object = self.ask(O::Connect, request, &[]).expect("CONNECT");
        made.handle
    }

    /// What is known of a connection.
    ///
    /// # Panics
    /// When there is none.
    pub fn query_connection(&mut self, connection: u32) -> ConnectionReply {
        let body = Object {
            handle: connection,
            reserved: 0,
        };
        self.ask(O::QueryConnection, &body, &[])
            .expect("QUERY_CONNECTION")
    }

    /// Listens for a service.
    pub fn listen(&mut self, service: u64) -> S {
        let body = connection::Listen {
            service,
            backlog: 8,
            reserved: 0,
        };
        self.status(O::Listen, &body, &[])
    }
}
