//! Traffic classes, virtual lanes and priorities with flow control that ports may have at most (mlxconfig, `NUM_OF_TC`, `NUM_OF_VL` and
//! `NUM_OF_PFC`).

use alloc::format;

use super::check::{Checked, refuse};
use super::{Classes, LANES, PRIORITIES, Red, Tsa};

/// Most traffic classes and virtual lanes, and most priorities with flow control at a time, of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Traffic classes, 1..=8: those from this number on are not there.
    pub classes: u8,
    /// Virtual lanes, 1..=15, of ports with arbitration tables; no more than traffic classes, if those are fewer than 8.
    pub lanes: u8,
    /// Priorities with priority flow control, 0..=8.
    pub pfc: u8,
}

impl Default for Limits {
    /// All of IEEE 802.1Q and of InfiniBand.
    fn default() -> Self {
        Limits {
            classes: PRIORITIES as u8,
            lanes: LANES as u8,
            pfc: PRIORITIES as u8,
        }
    }
}

impl Limits {
    /// The last class or lane that there is, and the parameter that says so.
    pub fn last(self, of: &Classes) -> (u8, &'static str) {
        const ALL: u8 = PRIORITIES as u8;
        let (classes, lanes) = (self.classes.clamp(1, ALL), self.lanes.clamp(1, LANES as u8));
        match of.arbitration {
            Some(_) if classes == ALL || lanes < classes => (lanes - 1, "NUM_OF_VL"),
            _ => (classes - 1, "NUM_OF_TC"),
        }
    }

    /// The classes that are there: priorities and virtual lanes of others have the last one, so that a priority is not served before one
    /// that was before it.
    #[must_use]
    pub fn fold(self, of: &Classes) -> Classes {
        let (last, _) = self.last(of);
        let mut folded = of.clone();
        let tables = folded.by_source.iter_mut().map(|(_, table)| &mut table[..]);
        let upper = folded.of_upper.iter_mut().map(|table| &mut table[..]);
        for class in tables.chain(upper).chain([&mut folded.of_priority[..]]).flatten() {
            *class = last.min(*class);
        }
        let beyond = (usize::from(last) + 1).min(PRIORITIES)..;
        folded.tsa[beyond.clone()].fill(Tsa::default());
        folded.share[beyond.clone()].fill(0);
        folded.limit[beyond].fill(0);
        // Classes whose shares were 0 beside those that are gone share what is left alike.
        let ets = |tsa: &Tsa| *tsa == Tsa::Ets;
        if folded.tsa.iter().any(ets) && folded.share.iter().all(|share| *share == 0) {
            let count = folded.tsa.iter().filter(|tsa| ets(tsa)).count();
            for (share, tsa) in folded.share.iter_mut().zip(folded.tsa) {
                *share = if ets(&tsa) { (100 / count) as u8 } else { 0 };
            }
        }
        if let Some(tables) = &mut folded.arbitration {
            for (lane, _) in tables.high.iter_mut().chain(&mut tables.low) {
                *lane = last.min(*lane);
            }
        }
        folded
    }

    /// As many of these priorities (a bit each) as may have flow control, from the lowest one on.
    #[must_use]
    pub fn paused(self, priorities: u8) -> u8 {
        let all = (0..8).filter(|p| priorities >> p & 1 != 0);
        all.take(self.pfc.into()).fold(0, |some, p| some | 1 << p)
    }

    /// Checks classes that an operator gives, against those before: what was there, or what is a port's own without an operator, is
    /// [folded](Limits::fold).
    pub fn check_classes(self, new: &Classes, before: &Classes) -> Checked {
        let ((last, parameter), plain) = (self.last(new), Classes::default());
        let named = |field, of: &str, class: u8| {
            let problem = format!("{of}{class} is out of range: 0 to {last} (NV parameter {parameter})");
            refuse(field, problem)
        };
        // (Classes that no port ever has are not refused for this device.)
        let limited = new.arbitration.is_some() || last + 1 < PRIORITIES as u8;
        let is_new = limited && new.of_priority != before.of_priority && new.of_priority != plain.of_priority;
        if let Some((priority, class)) = (0..)
            .zip(new.of_priority)
            .find(|(_, class)| is_new && *class > last)
        {
            return named("priority_to_tc", &format!("priority {priority}: class "), class);
        }
        let upper = new
            .of_upper
            .filter(|_| limited && new.of_upper != before.of_upper);
        if let Some((level, class)) = (8..)
            .zip(upper.into_iter().flatten())
            .find(|(_, class)| *class > last)
        {
            return named("upper_sl_to_tc", &format!("service level {level}: class "), class);
        }
        if let Some(tables) = new
            .arbitration
            .as_ref()
            .filter(|_| new.arbitration != before.arbitration)
        {
            let lanes = tables.high.iter().chain(&tables.low).map(|(lane, _)| *lane);
            if let Some(lane) = lanes.into_iter().find(|lane| *lane > last) {
                return named("vl_arbitration", "virtual lane ", lane);
            }
        }
        for (class, i) in (0..).zip(0..PRIORITIES).skip(usize::from(last) + 1) {
            let field = match () {
                () if ![before.tsa[i], plain.tsa[i]].contains(&new.tsa[i]) => "tc_algorithm",
                () if ![before.share[i], 0].contains(&new.share[i]) => "tc_bandwidth_percent",
                () if ![before.limit[i], 0].contains(&new.limit[i]) => "tc_rate_limit_bps",
                () => continue,
            };
            return named(field, "traffic class ", class);
        }
        Ok(())
    }

    /// Checks marking that an operator gives, against that before.
    pub fn check_marking(self, new: &[Red; PRIORITIES], before: &[Red; PRIORITIES]) -> Checked {
        let (last, _) = self.last(&Classes::default());
        for class in usize::from(last) + 1..PRIORITIES {
            if ![before[class], Red::default()].contains(&new[class]) {
                let problem =
                    format!("traffic class {class} is out of range: 0 to {last} (NV parameter NUM_OF_TC)");
                return refuse("ecn", problem);
            }
        }
        Ok(())
    }

    /// Checks priorities with flow control (a bit each) that an operator gives, against those before.
    pub fn check_pfc(self, new: u8, before: u8) -> Checked {
        if new == before || new.count_ones() <= self.pfc.into() {
            return Ok(());
        }
        let problem = format!(
            "{} priorities are out of range: 0 to {} at a time (NV parameter NUM_OF_PFC)",
            new.count_ones(),
            self.pfc
        );
        refuse("pfc", problem)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use std::vec;

    use super::*;
    use crate::qos::{PortQos, VlArbitration};

    fn four() -> Limits {
        Limits {
            classes: 4,
            pfc: 2,
            ..Limits::default()
        }
    }

    #[test]
    fn classes_beyond_the_last_one_are_the_last_one() {
        let plain = four().fold(&Classes::default());
        assert_eq!(plain.of_priority, [1, 0, 2, 3, 3, 3, 3, 3]);
        assert_eq!(Limits::default().fold(&Classes::default()), Classes::default());
        let one = Limits { classes: 1, ..four() };
        assert_eq!(one.fold(&Classes::default()).of_priority, [0; 8]);
        let mut all = Classes {
            tsa: [Tsa::Ets; 8],
            share: [0, 0, 0, 0, 25, 25, 25, 25],
            limit: [5_000; 8],
            arbitration: Some(VlArbitration {
                high: vec![(7, 1), (2, 2)],
                low: (0..8).map(|lane| (lane, 1)).collect(),
                high_limit: 0,
            }),
            ..Classes::default()
        };
        all = four().fold(&all);
        let tables = all.arbitration.clone().expect("tables");
        assert_eq!(tables.high, [(3, 1), (2, 2)]);
        assert_eq!(
            (all.share, all.limit[3..5].to_vec()),
            ([25, 25, 25, 25, 0, 0, 0, 0], vec![5_000, 0])
        );
        let qos = PortQos {
            classes: all,
            ..PortQos::default()
        };
        assert_eq!(qos.check(), Ok(()), "what is folded is a configuration");
    }

    #[test]
    fn lanes_are_as_many_as_their_parameter_says() {
        let lanes = |lanes| Limits {
            lanes,
            ..Limits::default()
        };
        let all = Classes {
            of_upper: Some([7, 8, 9, 10, 11, 12, 13, 14]),
            limit: [5_000; 8],
            arbitration: Some(VlArbitration {
                high: vec![(14, 1)],
                low: (0..15).map(|lane| (lane, 1)).collect(),
                high_limit: 0,
            }),
            ..Classes::default()
        };
        assert_eq!(lanes(15).fold(&all), all);
        let few = lanes(10).fold(&all);
        assert_eq!(
            (few.of_upper, few.limit),
            (Some([7, 8, 9, 9, 9, 9, 9, 9]), all.limit)
        );
        let four = lanes(4).fold(&all);
        assert_eq!(
            (four.of_upper, four.of_priority),
            (Some([3; 8]), [1, 0, 2, 3, 3, 3, 3, 3])
        );
        for folded in [few, four] {
            let qos = PortQos {
                classes: folded,
                ..PortQos::default()
            };
            assert_eq!(qos.check(), Ok(()), "what is folded is a configuration");
        }
        let without = Classes {
            arbitration: None,
            of_upper: None,
            ..all.clone()
        };
        assert_eq!(lanes(4).fold(&without), without, "classes are no lanes");
        let refused = lanes(8)
            .check_classes(&all, &without)
            .expect_err("lane 8")
            .to_string();
        let wanted =
            "upper_sl_to_tc: service level 9: class 8 is out of range: 0 to 7 (NV parameter NUM_OF_VL)";
        assert_eq!(refused, wanted);
    }

    #[test]
    fn the_lowest_priorities_keep_flow_control() {
        let few = [0b1010_1000, 0b1000, 0, 0xff].map(|all| four().paused(all));
        assert_eq!(few, [0b10_1000, 0b1000, 0, 0b11]);
        let none = Limits {
            pfc: 0,
            ..Limits::default()
        };
        assert_eq!(none.paused(0xff), 0);
    }

    #[test]
    fn new_values_beyond_a_limit_are_refused() {
        type Change = fn(&mut Classes);
        let refused: [(&str, Change); 5] = [
            (
                "priority_to_tc: priority 5: class 4 is out of range: 0 to 3 (NV parameter NUM_OF_TC)",
                |c| c.of_priority = [0, 1, 2, 3, 3, 4, 3, 3],
            ),
            ("tc_algorithm: traffic class 6 is out of range: 0 to 3", |c| {
                c.tsa[6] = Tsa::Strict
            }),
            ("tc_bandwidth_percent: traffic class 4 is out", |c| c.share[4] = 1),
            ("tc_rate_limit_bps: traffic class 7 is out", |c| {
                c.limit[7] = 5_000
            }),
            ("vl_arbitration: virtual lane 7 is out of range: 0 to 3", |c| {
                c.arbitration = Some(VlArbitration {
                    low: vec![(7, 1)],
                    ..VlArbitration::default()
                });
            }),
        ];
        let plain = Classes::default();
        for (wanted, change) in refused {
            let mut new = plain.clone();
            change(&mut new);
            let error = four().check_classes(&new, &plain).expect_err(wanted).to_string();
            assert!(error.starts_with(wanted), "{error}");
            assert_eq!(four().check_classes(&new, &new), Ok(()), "it was there before");
            assert_eq!(four().check_classes(&plain, &new), Ok(()), "it goes");
            assert_eq!(Limits::default().check_classes(&new, &plain), Ok(()));
        }
        let (none, mut new) = ([Red::default(); 8], [Red::default(); 8]);
        new[3].enable = true;
        assert_eq!(four().check_marking(&new, &none), Ok(()));
        new[4].enable = true;
        let error = four()
            .check_marking(&new, &none)
            .expect_err("class 4")
            .to_string();
        assert_eq!(
            error,
            "ecn: traffic class 4 is out of range: 0 to 3 (NV parameter NUM_OF_TC)"
        );
        assert_eq!(four().check_pfc(0b11, 0), Ok(()));
        assert_eq!(four().check_pfc(0b111, 0b111), Ok(()));
        let error = four().check_pfc(0b111, 0).expect_err("three").to_string();
        assert_eq!(
            error,
            "pfc: 3 priorities are out of range: 0 to 2 at a time (NV parameter NUM_OF_PFC)"
        );
    }
}
