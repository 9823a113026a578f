//! LACPDU and marker PDU: known bytes, and that `parse` undoes `emit` whatever stands around.

use proptest::prelude::*;
use vnic_wire::lacp::{DESTINATION, FRAME_LEN, Frame, Lacpdu, Marker, Participant, Port, State, System};
use vnic_wire::{Error, MacAddr};

const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x11]);

fn example() -> Lacpdu {
    Lacpdu {
        actor: Participant {
            system: System {
                priority: 0x8000,
                address: MacAddr([2, 0, 0, 0, 0, 1]),
            },
            key: 0x0011,
            port: Port {
                priority: 0x00ff,
                number: 2,
            },
            state: State::ACTIVITY | State::TIMEOUT | State::AGGREGATION | State::SYNCHRONIZATION,
        },
        partner: Participant {
            system: System {
                priority: 0xffff,
                address: MacAddr([2, 0, 0, 0, 0, 9]),
            },
            key: 0x1234,
            port: Port {
                priority: 0x8000,
                number: 0x0102,
            },
            state: State::AGGREGATION | State::DEFAULTED | State::EXPIRED,
        },
        max_delay: 0x0304,
    }
}

/// The fields as IEEE 802.1AX-2014 figure 6-7 draws them.
#[test]
fn an_lacpdu_byte_by_byte() {
    let bytes = Frame::Lacpdu(example()).emit(SOURCE);
    let wanted = [
        // Ethernet, subtype, version.
        0x01, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 0x11, 0x88, 0x09, 1, 1, // Actor.
        1, 20, 0x80, 0, 2, 0, 0, 0, 0, 1, 0, 0x11, 0, 0xff, 0, 2, 0x0f, 0, 0, 0, // Partner.
        2, 20, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x12, 0x34, 0x80, 0, 1, 2, 0xc4, 0, 0, 0, // Collector.
        3, 16, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[..72], wanted);
    assert!(bytes[72..].iter().all(|b| *b == 0), "terminator and reserved");
    assert_eq!((bytes.len(), FRAME_LEN), (124, 124));
    assert_eq!(bytes[..6], DESTINATION.0);
    assert_eq!(Frame::parse(&bytes), Ok(Frame::Lacpdu(example())));
}

/// The fields as IEEE 802.1AX-2014 figure 6-26 draws them.
#[test]
fn a_marker_byte_by_byte() {
    let marker = Marker {
        response: false,
        port: 0x0102,
        system: MacAddr([2, 0, 0, 0, 0, 9]),
        transaction: 0x0a0b_0c0d,
    };
    let bytes = Frame::Marker(marker).emit(SOURCE);
    assert_eq!(
        bytes[12..34],
        [
            0x88, 0x09, 2, 1, 1, 16, 1, 2, 2, 0, 0, 0, 0, 9, 10, 11, 12, 13, 0, 0, 0, 0
        ]
    );
    assert!(bytes[34..].iter().all(|b| *b == 0));
    let answer = marker.answer().unwrap();
    assert_eq!(answer.answer(), None, "responses are not answered");
    let answered = Frame::Marker(answer).emit(SOURCE);
    assert_eq!((answered[16], &answered[17..]), (2, &bytes[17..]));
    assert_eq!(Frame::parse(&answered), Ok(Frame::Marker(answer)));
}

#[test]
fn other_frames_are_not_read() {
    let good = Frame::Lacpdu(example()).emit(SOURCE);
    let changed = |at: usize, to: u8| {
        let mut bytes = good;
        bytes[at] = to;
        Frame::parse(&bytes)
    };
    let read = Ok(Frame::Lacpdu(example()));
    for (at, to, result) in [
        (13, 0x08, Err(Error::Kind)), // MAC control
        (14, 3, Err(Error::Kind)),    // OAM
        (15, 0, Err(Error::Kind)),    // no such version
        (15, 2, read),                // a later one
        (16, 2, Err(Error::Kind)),    // partner first
        (17, 19, Err(Error::Length)), // a short actor
        (36, 1, Err(Error::Kind)),    // actor twice
        (37, 21, Err(Error::Length)), // a long partner
        (56, 0, Err(Error::Kind)),    // ends too early
        (57, 0, Err(Error::Length)),  // an empty collector
        (33, 0xff, read),             // reserved
        (72, 4, read),                // more, of a later version
        (123, 0xff, read),            // reserved
    ] {
        assert_eq!(changed(at, to), result, "byte {at} is {to}");
    }
}

#[test]
fn states_have_names() {
    assert_eq!(State(0).to_string(), "none");
    assert_eq!(
        State(0xff).to_string(),
        "activity timeout aggregation synchronization collecting distributing defaulted expired"
    );
    assert_eq!(
        format!("{:?}", State::TIMEOUT | State::EXPIRED),
        "timeout expired"
    );
    let state = State::ACTIVITY.with(State::COLLECTING, true);
    assert!(state.has(State::COLLECTING) && !state.has(State::COLLECTING | State::DISTRIBUTING));
    assert_eq!(state.with(State::ACTIVITY, false), State::COLLECTING);
    assert_eq!(state.only(State::ACTIVITY | State::EXPIRED), State::ACTIVITY);
}

fn participant() -> impl Strategy<Value = Participant> {
    (any::<[u8; 6]>(), any::<[u16; 4]>(), any::<u8>()).prop_map(|(address, n, state)| Participant {
        system: System {
            priority: n[0],
            address: MacAddr(address),
        },
        key: n[1],
        port: Port {
            priority: n[2],
            number: n[3],
        },
        state: State(state),
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (participant(), participant(), any::<u16>()).prop_map(|(actor, partner, max_delay)| {
            Frame::Lacpdu(Lacpdu {
                actor,
                partner,
                max_delay,
            })
        }),
        (any::<bool>(), any::<u16>(), any::<[u8; 6]>(), any::<u32>()).prop_map(
            |(response, port, system, transaction)| {
                Frame::Marker(Marker {
                    response,
                    port,
                    system: MacAddr(system),
                    transaction,
                })
            }
        ),
    ]
}

proptest! {
    #[test]
    fn what_is_emitted_is_read(frame in frame(), source in any::<[u8; 6]>(), behind in 0usize..40) {
        let mut bytes = frame.emit(MacAddr(source)).to_vec();
        bytes.resize(bytes.len() + behind, 0xa5);
        prop_assert_eq!(Frame::parse(&bytes), Ok(frame));
        let least = if matches!(frame, Frame::Lacpdu(_)) { 72 } else { 32 };
        for len in 0..bytes.len() {
            let told = Frame::parse(&bytes[..len]);
            prop_assert_eq!(told, if len < least { Err(Error::Truncated) } else { Ok(frame) });
        }
    }

    /// No bytes panic; and what can be read is the same after it was written anew.
    #[test]
    fn any_bytes(
        frame in frame(),
        changes in prop::collection::vec((0usize..130, any::<u8>()), 0..8),
        noise in prop::collection::vec(any::<u8>(), 0..140),
    ) {
        let _ = Frame::parse(&noise);
        let mut bytes = frame.emit(SOURCE);
        for (at, to) in changes {
            if let Some(b) = bytes.get_mut(at) {
                *b = to;
            }
        }
        if let Ok(read) = Frame::parse(&bytes) {
            prop_assert_eq!(Frame::parse(&read.emit(SOURCE)), Ok(read));
        }
    }
}
