//! What a guest sends and gets, for whoever listens to ARP, neighbour discovery and DHCP.
use vnic_engine::gids::GidLearner;
use vnic_wire::MacAddr;
use vnic_wire::time::Instant;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ENTRIES: u16 = 64;

/// Each frame: its length, which way it goes, how much later.
pub fn run(bytes: &[u8]) {
    let mut learner = GidLearner::new(MAC, ENTRIES);
    let (mut now, mut rest) = (Instant(0), bytes);
    while let [len, way, later, more @ ..] = rest {
        let (frame, behind) = more.split_at(usize::from(*len).min(more.len()));
        rest = behind;
        now = Instant(now.0 + (u64::from(*later) << 24));
        let mut frame = frame.to_vec();
        if way & 2 != 0
            && let Some(source) = frame.get_mut(6..12)
        {
            source.copy_from_slice(&MAC.0);
        }
        match way & 1 {
            0 => {
                learner.sent(now, &frame);
            }
            _ => learner.received(now, &frame),
        }
        let answered = |answer: &[u8]| {
            assert_eq!(answer[6..12], MAC.0, "from the interface");
            assert!(answer.len() <= 90, "{} bytes", answer.len());
        };
        vnic_engine::gids::answer(&frame, MAC, |_, _| way & 4 != 0, &mut |f| answered(f));
        let mut asked = 0;
        learner.poll(now, &mut |_| asked += 1);
        assert!(asked <= usize::from(ENTRIES), "{asked} questions at a time");
        let _ = learner.changes().count();
        let entries: Vec<_> = learner.entries().collect();
        assert!(entries.len() <= usize::from(ENTRIES));
        for (index, entry, _) in &entries {
            assert_eq!(entry.mac, MAC);
            let same = |(_, other, _): &&(u16, _, _)| other == entry;
            assert_eq!(entries.iter().filter(same).count(), 1, "{index} is there twice");
        }
    }
}
