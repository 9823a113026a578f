use super::*;

/// Bytes of the virtio header before a frame.
const HEADER: usize = 10;

/// A packet of RoCEv2 over IPv6 with this many bytes behind UDP, which contain its number.
fn packet(number: u8, len: usize, tag: bool) -> Vec<u8> {
    let mut f = vec![2; 12];
    if tag {
        f.extend_from_slice(&[0x81, 0, 0x60, 7]);
    }
    let udp_len = ((8 + len) as u16).to_be_bytes();
    f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, udp_len[0], udp_len[1], 17, 64]);
    f.extend_from_slice(&[0xfe; 32]);
    f.extend_from_slice(&[0xc0, 1, 0x12, 0xb7, udp_len[0], udp_len[1], 0, 0]);
    f.extend((0..len).map(|i| number ^ i as u8));
    f
}

fn buffer(frame: &[u8]) -> FrameBuf {
    let mut buf = FrameBuf::default();
    buf.frame(frame.len()).copy_from_slice(frame);
    buf
}

fn first(frame: &[u8]) -> Staged {
    let buf = buffer(frame);
    Staged {
        train: Train::of(buf.with_header(HEADER)),
        frames: 1,
        bytes: buf.len,
        buf,
        meta: Metadata::of(PortId(0)),
    }
}

/// Copies a frame behind the waiting ones.
fn join(staged: &mut Staged, frame: &[u8]) -> bool {
    staged.join(&buffer(frame), HEADER, &mut Vec::new(), &mut Vec::new())
}

/// Writes a frame behind the waiting ones.
fn build(staged: &mut Staged, frame: &[u8]) -> bool {
    staged.build(frame.len(), HEADER, |place| {
        place.copy_from_slice(frame);
        Some(())
    })
}

#[test]
fn what_is_written_behind_others_is_what_would_be_copied_there() {
    for tag in [false, true] {
        let frames: Vec<_> = (0..20).map(|i| packet(i, 1040, tag)).collect();
        let (mut copied, mut written) = (first(&frames[0]), first(&frames[0]));
        assert!(
            !build(&mut written, &frames[1]),
            "a first frame has no room for others"
        );
        for staged in [&mut copied, &mut written] {
            assert!(join(staged, &frames[1]));
        }
        for frame in &frames[2..] {
            assert!(join(&mut copied, frame) && build(&mut written, frame));
        }
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!((written.frames, written.bytes), (20, bytes));
        assert_eq!((copied.frames, copied.bytes), (20, bytes));
        let head = frames[0].len() - 1040;
        let message = written.message(HEADER).to_vec();
        assert_eq!(message, copied.message(HEADER));
        let behind: Vec<_> = frames.iter().flat_map(|f| f[head..].to_vec()).collect();
        assert_eq!(message[HEADER + head..], behind);
    }
}

#[test]
fn what_does_not_go_with_them_leaves_no_trace() {
    let mut staged = first(&packet(0, 100, false));
    assert!(join(&mut staged, &packet(1, 100, false)));
    let before = staged.message(HEADER).to_vec();
    // A longer frame than the first, one with a tag, one to another receiver, an empty one.
    let mut other = packet(2, 100, false);
    other[0] = 4;
    for frame in [packet(2, 101, false), packet(2, 96, true), other] {
        assert!(!build(&mut staged, &frame));
        assert!(!join(&mut staged, &frame));
    }
    assert!(!staged.build(100, HEADER, |place| {
        place.fill(0xee);
        None
    }));
    assert_eq!((staged.frames, staged.message(HEADER)), (2, &before[..]));
    // A shorter frame may join, and is the last.
    assert!(build(&mut staged, &packet(2, 96, false)));
    assert!(!build(&mut staged, &packet(3, 96, false)) && !join(&mut staged, &packet(3, 96, false)));
}

#[test]
fn headers_of_the_first_are_never_written_over() {
    // Acknowledges: 20 bytes, shorter than the headers.
    let frames: Vec<_> = (0..9).map(|i| packet(i, 20, true)).collect();
    let mut staged = first(&frames[0]);
    let mut built = 0;
    for frame in &frames[1..] {
        if build(&mut staged, frame) {
            built += 1;
        } else {
            assert!(join(&mut staged, frame));
        }
    }
    assert!(built > 0);
    let head = frames[0].len() - 20;
    let message = staged.message(HEADER).to_vec();
    assert_eq!(message[HEADER..][..12], frames[0][..12]);
    let behind: Vec<_> = frames.iter().flat_map(|f| f[head..].to_vec()).collect();
    assert_eq!(message[HEADER + head..], behind);
}

#[test]
fn a_train_ends_where_the_kernel_would_cut() {
    let mut staged = first(&packet(0, 4112, false));
    let mut taken = 1;
    while join(&mut staged, &packet(taken, 4112, false)) {
        taken += 1;
        assert_eq!(
            build(&mut staged, &packet(taken, 4112, false)),
            taken < 15,
            "{taken}"
        );
        if taken < 15 {
            taken += 1;
        }
    }
    assert_eq!(taken, 15);
    assert!(staged.message(HEADER).len() <= HEADER + 65_535);
}
