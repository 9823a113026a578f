//! Limit of open files and sockets.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to its hard limit. (The usual soft limit, 1024, is for programs that call select(2).)
pub fn raise_limit() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // High enough for tests that run at the same time.
        let current = Some(maximum.unwrap_or(u64::MAX).min(512));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("a lower limit");
        raise_limit().expect("the highest");
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
