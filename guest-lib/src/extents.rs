//! Where the device sees memory: extents, whose neighbours are joined.

use std::borrow::Borrow;

use vnic_device::ring::Extent;

/// `len` bytes from byte `skip` of the extents on. What is beyond is not looked at.
pub(crate) fn part_of(
    extents: impl IntoIterator<Item = impl Borrow<Extent>>,
    mut skip: u64,
    len: u64,
) -> Vec<Extent> {
    let (mut parts, mut rest) = (Vec::new(), len);
    for extent in extents {
        let &Extent { gpa, len } = extent.borrow();
        if rest == 0 {
            break;
        }
        if skip >= len {
            skip -= len;
            continue;
        }
        let part = Extent {
            gpa: gpa + skip,
            len: rest.min(len - skip),
        };
        rest -= part.len;
        skip = 0;
        push(&mut parts, part);
    }
    parts
}

/// Adds an extent at the end, joined with the last one if it is its neighbour.
pub(crate) fn push(extents: &mut Vec<Extent>, part: Extent) {
    match extents.last_mut() {
        Some(last) if last.gpa.checked_add(last.len) == Some(part.gpa) => last.len += part.len,
        _ => extents.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of pages of 4096 bytes with these frame numbers.
    fn coalesce(frames: &[u64], skip: u64, len: u64) -> Vec<Extent> {
        let pages = frames.iter().map(|frame| Extent {
            gpa: frame * 4096,
            len: 4096,
        });
        part_of(pages, skip, len)
    }

    fn pairs(extents: &[Extent]) -> Vec<(u64, u64)> {
        extents.iter().map(|e| (e.gpa, e.len)).collect()
    }

    #[test]
    fn neighbours_become_one() {
        let frames = [16, 17, 18, 40, 39, 41];
        assert_eq!(
            pairs(&coalesce(&frames, 0, 6 * 4096)),
            [
                (0x1_0000, 3 * 4096),
                (0x2_8000, 4096),
                (0x2_7000, 4096),
                (0x2_9000, 4096)
            ]
        );
    }

    #[test]
    fn the_ends_are_cut() {
        assert_eq!(
            pairs(&coalesce(&[2, 3, 9], 100, 2 * 4096)),
            [(0x2064, 2 * 4096 - 100), (0x9000, 100)]
        );
        assert_eq!(pairs(&coalesce(&[2, 3], 4095, 1)), [(0x2fff, 1)]);
        assert_eq!(pairs(&coalesce(&[2, 3], 4096, 5)), [(0x3000, 5)]);
        assert_eq!(pairs(&coalesce(&[2, 3], 0, 0)), []);
    }

    #[test]
    fn a_part_is_of_the_same_bytes() {
        let frames = [5, 6, 9, 1, 2];
        let all = coalesce(&frames, 0, 5 * 4096);
        for skip in (0..5 * 4096).step_by(1111) {
            for len in [1, 64, 5000, 5 * 4096 - skip] {
                let len = len.min(5 * 4096 - skip);
                assert_eq!(
                    pairs(&part_of(&all, skip, len)),
                    pairs(&coalesce(&frames, skip, len)),
                    "{len} from {skip}"
                );
            }
        }
    }

    #[test]
    fn parts_of_extents() {
        let e = |gpa, len| Extent { gpa, len };
        let all = [e(0x1000, 0x1000), e(0x2000, 0x1000), e(0x8000, 0x1000)];
        assert_eq!(part_of(all, 0, 0x3000), [e(0x1000, 0x2000), e(0x8000, 0x1000)]);
        assert_eq!(part_of(all, 0x1800, 0x1000), [e(0x2800, 0x800), e(0x8000, 0x800)]);
        assert_eq!(part_of(all, 0x2fff, 1), [e(0x8fff, 1)]);
        assert_eq!(part_of(all, 0, 0), []);
    }
}
