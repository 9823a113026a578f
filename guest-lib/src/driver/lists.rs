//! Lists of extents in commands (`SPEC.md`, section 6).

use vnic_device::command::Opcode;
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::control::{COMMAND_MAX, parse};
use super::shared::Shared;
use crate::Error;
use crate::shared::Memory;
use crate::transport::Transport;

/// Lists that are ready for a command: their descriptions for its body, the bytes that follow the body, and the
/// memory that must live while the command is carried out.
pub(crate) struct Lists {
    pub heads: Vec<ExtentList>,
    pub bytes: Vec<u8>,
    _chunks: Vec<Memory>,
}

/// Puts lists behind a body, or into chunks if they are too long for that.
pub(crate) fn lists(transport: &dyn Transport, all: &[&[Extent]], limit: usize) -> Result<Lists, Error> {
    let each = limit / all.len().max(1);
    let mut lists = Lists {
        heads: Vec::new(),
        bytes: Vec::new(),
        _chunks: Vec::new(),
    };
    for extents in all {
        let count = u32::try_from(extents.len()).map_err(|_| too_scattered(extents.len()))?;
        let bytes = extents.as_bytes();
        if bytes.len() <= each {
            lists.heads.push(ExtentList { count, chunks: 0 });
            lists.bytes.extend_from_slice(bytes);
            continue;
        }
        let (memory, chunks) = Memory::allocate(transport, bytes.len())?;
        if chunks.as_bytes().len() > each {
            return Err(too_scattered(extents.len()));
        }
        memory.write(0, bytes);
        lists._chunks.push(memory);
        lists.heads.push(ExtentList {
            count,
            chunks: chunks.len() as u32,
        });
        lists.bytes.extend_from_slice(chunks.as_bytes());
    }
    Ok(lists)
}

fn too_scattered(extents: usize) -> Error {
    Error::Invalid(format!(
        "memory in {extents} pieces is too scattered for one object: use hugepages, or register it in parts"
    ))
}

impl Shared {
    /// A command whose body names lists of extents.
    pub fn call_with_extents<B, R>(
        &self,
        epoch: u32,
        opcode: Opcode,
        all: &[&[Extent]],
        body: impl FnOnce(&[ExtentList]) -> B,
    ) -> Result<R, Error>
    where
        B: IntoBytes + Immutable,
        R: FromBytes,
    {
        let max = usize::try_from(self.device().max_command_len).unwrap_or(COMMAND_MAX);
        let limit = max.min(COMMAND_MAX).saturating_sub(size_of::<B>());
        let lists = lists(&*self.transport, all, limit)?;
        let body = body(&lists.heads);
        let reply = self.command(Some(epoch), opcode, body.as_bytes(), &lists.bytes, size_of::<R>())?;
        parse(opcode, &reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::fake::Fake;

    fn extents(count: u64) -> Vec<Extent> {
        (0..count)
            .map(|i| Extent {
                gpa: i << 13,
                len: 4096,
            })
            .collect()
    }

    #[test]
    fn short_lists_follow_the_body() {
        let fake = Fake::new(4096);
        let (a, b) = (extents(3), extents(2));
        let lists = lists(&fake, &[&a, &b], 160).expect("they fit");
        let head = |count| ExtentList { count, chunks: 0 };
        assert_eq!(lists.heads, [head(3), head(2)]);
        assert_eq!(lists.bytes, [a.as_bytes(), b.as_bytes()].concat());
    }

    #[test]
    fn long_lists_are_in_chunks_that_the_device_sees() {
        let fake = Fake::new(4096);
        let long = extents(1000);
        let lists = lists(&fake, &[&extents(1), &long], 256).expect("chunks fit");
        // 16000 bytes in pages of 4096.
        assert_eq!(
            lists.heads[1],
            ExtentList {
                count: 1000,
                chunks: 4
            }
        );
        assert_eq!(lists.bytes.len(), 16 * (1 + 4));
        let mut seen = Vec::new();
        for chunk in lists.bytes[16..].chunks_exact(16) {
            let chunk = Extent::read_from_bytes(chunk).expect("16 bytes");
            assert!(chunk.gpa.is_multiple_of(16) && chunk.len.is_multiple_of(16));
            let mut bytes = vec![0; chunk.len as usize];
            fake.seen(chunk.gpa).read(0, &mut bytes);
            seen.extend(bytes);
        }
        assert_eq!(seen, long.as_bytes());
    }

    #[test]
    fn what_needs_too_many_chunks_is_refused() {
        let fake = Fake::new(4096);
        let e = lists(&fake, &[&extents(1000)], 48)
            .err()
            .expect("4 chunks need 64");
        assert!(e.to_string().contains("hugepages"), "{e}");
    }
}
