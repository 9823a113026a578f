//! Page frames as extents.

use vnic_device::ring::Extent;

/// Extents of `len` bytes from byte `skip` of the first page on, of pages with these frame numbers; neighbours
/// are joined. Pages beyond are not looked at.
pub fn coalesce(frames: &[u64], page: u64, skip: u64, len: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let (mut skip, mut rest) = (skip, len);
    for &frame in frames {
        if rest == 0 {
            break;
        }
        if skip >= page {
            skip -= page;
            continue;
        }
        let piece = Extent {
            gpa: frame * page + skip,
            len: rest.min(page - skip),
        };
        rest -= piece.len;
        skip = 0;
        push(&mut extents, piece);
    }
    extents
}

/// `len` bytes from byte `skip` of the extents on.
pub fn part(extents: &[Extent], skip: u64, len: u64) -> Vec<Extent> {
    let mut out = Vec::new();
    let (mut skip, mut rest) = (skip, len);
    for e in extents {
        if rest == 0 {
            break;
        }
        if skip >= e.len {
            skip -= e.len;
            continue;
        }
        let piece = Extent {
            gpa: e.gpa + skip,
            len: rest.min(e.len - skip),
        };
        rest -= piece.len;
        skip = 0;
        push(&mut out, piece);
    }
    out
}

/// Adds a piece at the end, joined with the last one if it is its neighbour.
fn push(extents: &mut Vec<Extent>, piece: Extent) {
    match extents.last_mut() {
        Some(last) if last.gpa + last.len == piece.gpa => last.len += piece.len,
        _ => extents.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(extents: &[Extent]) -> Vec<(u64, u64)> {
        extents.iter().map(|e| (e.gpa, e.len)).collect()
    }

    #[test]
    fn neighbours_become_one() {
        let frames = [16, 17, 18, 40, 39, 41];
        assert_eq!(
            pairs(&coalesce(&frames, 4096, 0, 6 * 4096)),
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
            pairs(&coalesce(&[2, 3, 9], 4096, 100, 2 * 4096)),
            [(0x2064, 2 * 4096 - 100), (0x9000, 100)]
        );
        assert_eq!(pairs(&coalesce(&[2, 3], 4096, 4095, 1)), [(0x2fff, 1)]);
        assert_eq!(pairs(&coalesce(&[2, 3], 4096, 4096, 5)), [(0x3000, 5)]);
        assert_eq!(pairs(&coalesce(&[2, 3], 4096, 0, 0)), []);
    }

    #[test]
    fn a_part_is_of_the_same_bytes() {
        let frames = [5, 6, 9, 1, 2];
        let all = coalesce(&frames, 4096, 0, 5 * 4096);
        for skip in (0..5 * 4096).step_by(1111) {
            for len in [1, 64, 4096, 5000, 5 * 4096 - skip] {
                let len = len.min(5 * 4096 - skip);
                assert_eq!(
                    pairs(&part(&all, skip, len)),
                    pairs(&coalesce(&frames, 4096, skip, len)),
                    "{len} from {skip}"
                );
            }
        }
    }
}
