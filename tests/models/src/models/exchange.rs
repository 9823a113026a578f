//! A data core and the thread of a mesh port.

use loom::thread;

use super::{check, is_readable};
use crate::uplink::exchange::open;

/// A receiver that rests between frames gets all of them.
///
/// Fails without the fence in `flush`, without that in `rest`, and without the look at its end.
pub fn no_frame_is_slept_through() {
    check(3, || {
        let (mut rx, _tx, mut end) = open().expect("eventfds");
        let sender = thread::spawn(move || {
            for byte in 0..2u8 {
                assert!(end.tx.put(&[byte]));
                end.tx.flush();
            }
            // (Its end would be news as well.)
            end
        });
        let (mut got, mut asleep) = (0, false);
        while got < 2 && !asleep {
            if let Some(frame) = rx.next_frame() {
                assert_eq!(frame, [got]);
                got += 1;
            } else if !rx.rest() {
                asleep = !is_readable(rx.fd());
                rx.woken();
            }
        }
        let _end = sender.join().expect("the sender");
        assert!(got == 2 || is_readable(rx.fd()), "it sleeps with {got}");
    });
}
