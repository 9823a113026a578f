//! Frames that others have made: every capture in `tests/vectors/` (how each was recorded is said there). Each
//! RoCE frame in them is read, its ICRC is right, and written again it has the same bytes.
#![allow(clippy::disallowed_types, reason = "the test reads files; the crate does not")]

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path as FilePath, PathBuf};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use vnic_wire::roce::{self, Frame, Path};

fn captures() -> Vec<PathBuf> {
    let dir = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let Ok(entries) = fs::read_dir(&dir) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng"))
        .collect();
    paths.sort();
    paths
}

fn frames(path: &FilePath) -> Vec<Vec<u8>> {
    let file = BufReader::new(File::open(path).unwrap());
    let mut frames = Vec::new();
    if path.extension().is_some_and(|e| e == "pcapng") {
        let mut reader = PcapNgReader::new(file).unwrap();
        while let Some(block) = reader.next_block() {
            if let Some(packet) = block.unwrap().into_enhanced_packet() {
                assert_eq!(
                    packet.original_len as usize,
                    packet.data.len(),
                    "{}: cut",
                    path.display()
                );
                frames.push(packet.data.into_owned());
            }
        }
    } else {
        let mut reader = PcapReader::new(file).unwrap();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            assert_eq!(
                packet.orig_len as usize,
                packet.data.len(),
                "{}: cut",
                path.display()
            );
            frames.push(packet.data.into_owned());
        }
    }
    frames
}

#[test]
fn frames_of_others_are_read_and_written_alike() {
    let captures = captures();
    assert!(!captures.is_empty(), "the captures are missing");
    for path in captures {
        let mut count = 0;
        for (i, bytes) in frames(&path).iter().enumerate().filter(|(_, b)| roce::is_roce(b)) {
            let what = format!("{}, frame {}", path.display(), i + 1);
            let frame = Frame::parse(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(frame.icrc_ok(), "{what}: ICRC of {:?}", frame.headers);
            assert!(frame.header_checksum_ok(), "{what}");
            let mut again = Vec::new();
            roce::build(&Path::from(&frame), &frame.headers, frame.payload, &mut again).unwrap();
            // Ethernet may have added bytes to a short frame.
            assert_eq!(
                again,
                bytes[..again.len().min(bytes.len())],
                "{what}: {:?}",
                frame.headers
            );
            count += 1;
        }
        assert!(count > 0, "{}: no RoCE frame", path.display());
    }
}
