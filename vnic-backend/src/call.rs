//! Call descriptors, by which guests are interrupted.

mod signals;

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SendFlags, send, sockopt};

pub use signals::Signals;

/// Whether this file is an eventfd.
pub fn is_eventfd(file: &File) -> io::Result<bool> {
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    Ok(std::fs::read_link(link)?.as_os_str() == "anon_inode:[eventfd]")
}

/// Call descriptor of a guest. The VMM has it, too: whatever it does to the file must not make the daemon wait.
#[derive(Debug)]
pub struct Call {
    file: File,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Eventfd(Arc<Signals>),
    /// User-Mode-Linux (6.1 at least) gives Unix sockets.
    Socket,
}

impl Call {
    /// A call descriptor for the data core of `signals`.
    pub fn new(file: File, signals: Arc<Signals>) -> io::Result<Call> {
        let way = if is_eventfd(&file)? {
            Way::Eventfd(signals)
        } else if sockopt::socket_domain(&file).is_ok_and(|domain| domain == AddressFamily::UNIX) {
            Way::Socket
        } else {
            let what = "a call descriptor is neither an eventfd nor a Unix socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        Ok(Call { file, way })
    }

    fn ring(&self) {
        // A full eventfd or socket already reports an interrupt; a closed one is the frontend's loss.
        match &self.way {
            Way::Eventfd(signals) => {
                let _ = signals.signal(self.file.as_fd());
            }
            Way::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = send(&self.file, &1u64.to_ne_bytes(), flags);
            }
        }
    }
}

/// Interrupts the guest.
pub fn notify(call: Option<&Call>) {
    if let Some(call) = call {
        call.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn call(file: &impl AsFd) -> io::Result<Call> {
        let copy = file.as_fd().try_clone_to_owned()?;
        Call::new(File::from(copy), Arc::new(Signals::new()?))
    }

    /// Whether a ring returns; on another thread, since it might never end.
    fn returns(call: Call) -> bool {
        let (tell, told) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            call.ring();
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn each_ring_counts() {
        let fd = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
        let call = call(&fd).expect("a call");
        // Many more than there may be completed requests that were not taken back.
        for _ in 0..2000 {
            call.ring();
        }
        let mut count = [0; 8];
        File::from(fd).read_exact(&mut count).expect("a number");
        assert_eq!(u64::from_ne_bytes(count), 2000);
    }

    #[test]
    fn nobody_waits_for_a_full_eventfd() {
        for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
            let fd = eventfd(0, flags).expect("an eventfd");
            rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).expect("room");
            for _ in 0..3 {
                assert!(returns(call(&fd).expect("a call")));
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_full_socket() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        call(&ours).expect("a call").ring();
        let mut heard = [0; 8];
        theirs.read_exact(&mut heard).expect("a ring");
        assert_eq!(u64::from_ne_bytes(heard), 1);
        while send(&ours, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
        while send(&ours, &[0], SendFlags::DONTWAIT).is_ok() {}
        assert!(returns(call(&ours).expect("a call")));
        drop(theirs);
        assert!(returns(call(&ours).expect("a call")));
    }

    #[test]
    fn other_files_are_refused() {
        let (_, pipe) = io::pipe().expect("a pipe");
        assert!(call(&pipe).is_err());
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(call(&udp).is_err());
        let file = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).expect("a file");
        assert!(call(&file).is_err());
    }
}
