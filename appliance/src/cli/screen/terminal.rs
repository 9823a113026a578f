//! The terminal of a live view: its size, its keys, and its state before, which comes back at the end.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::BorrowedFd;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Shows the alternate screen without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the screen from before with its cursor.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Ctrl-C: signals are switched off, so that none leaves the terminal as it is.
const CTRL_C: u8 = 3;
/// Size of a terminal that tells none.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// A terminal that shows a page after another at the same place. When it is dropped, all is as before.
pub struct Terminal {
    /// Settings of standard input before, if it is a terminal.
    before: Option<Termios>,
    /// Told when a key ends it; never when standard input is no terminal.
    key: Option<oneshot::Receiver<()>>,
    end: [Signal; 3],
}

impl Terminal {
    /// Takes the terminal of standard output, and the keys of standard input if that is one, too.
    pub fn new() -> io::Result<Terminal> {
        let end = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [int, term, hup] = end.map(signal);
        let mut terminal = Terminal {
            before: None,
            key: None,
            end: [int?, term?, hup?],
        };
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let before = tcgetattr(&stdin)?;
            let mut raw = before.clone();
            raw.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            // A read waits for a key, and returns what there is.
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &raw)?;
            terminal.before = Some(before);
            let (tell, told) = oneshot::channel();
            // The thread ends with the process: nothing else ends its read.
            std::thread::Builder::new().name("keys".to_owned()).spawn(|| {
                wait_for_quit();
                let _ = tell.send(());
            })?;
            terminal.key = Some(told);
        }
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(terminal)
    }

    /// Shows lines from the top of the screen on.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(screen(lines).as_bytes())?;
        out.flush()
    }

    /// Waits until the user wants to end: `q`, Ctrl-C, or a signal.
    pub async fn end(&mut self) {
        let [int, term, hup] = &mut self.end;
        let key = async {
            match &mut self.key {
                Some(key) => {
                    let _ = key.await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
            () = key => {}
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
    }
}

/// Reads keys until one ends it, or there can be no more.
fn wait_for_quit() {
    let mut bytes = [0; 64];
    loop {
        match rustix::io::read(io::stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(n) if n > 0 && !bytes[..n].iter().any(|b| [b'q', b'Q', CTRL_C].contains(b)) => {}
            _ => return,
        }
    }
}

/// What shows lines at the top of a screen and clears the rest: nothing flickers.
fn screen(lines: &[String]) -> String {
    let mut text = String::from("\x1b[H");
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            text.push_str("\r\n");
        }
        text.push_str(line);
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J");
    text
}

/// Columns and rows of a terminal; None if it is none.
pub fn size(of: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let size = tcgetwinsize(of).ok()?;
    match (usize::from(size.ws_col), usize::from(size.ws_row)) {
        (0, _) | (_, 0) => Some(SIZE_DEFAULT),
        size => Some(size),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_screen_has_no_new_line_at_its_end_and_clears_what_was_there() {
        let lines = ["one".to_owned(), "two".to_owned()];
        assert_eq!(screen(&lines), "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J");
    }

    #[test]
    fn a_file_has_no_size() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert_eq!(size(file.as_fd()), None);
    }
}
