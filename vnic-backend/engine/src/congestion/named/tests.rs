//! Names, values and errors; and that each parameter that can be named does something is with its algorithm.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::prelude::v1::*;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

fn named(name: &str) -> Named {
    Named::by_name(name).unwrap()
}

#[test]
fn every_name_makes_the_algorithm_of_that_name() {
    for name in Named::names() {
        let named = named(&name);
        assert_eq!(name.split(':').next(), Some(named.name()), "{name}");
        assert_eq!(by_name(&name).unwrap().name(), named.name());
    }
    for wrong in [
        "",
        "bbr",
        "none:x",
        "timely:",
        "timely:x",
        "swift:paper",
        "hpcc:sim:sim",
        "Timely",
    ] {
        assert!(
            matches!(Named::by_name(wrong), Err(Error::Name { .. })),
            "{wrong}"
        );
        assert!(by_name(wrong).is_none());
    }
}

#[test]
fn errors_say_what_there_is() {
    let mut timely = named("timely");
    let errors = [
        Named::by_name("bbr").unwrap_err().to_string(),
        named("hpcc").set("etta", "1").unwrap_err().to_string(),
        named("none").set("eta", "1").unwrap_err().to_string(),
        timely.set("t_low", "50").unwrap_err().to_string(),
        timely.set("step", "-1").unwrap_err().to_string(),
        timely.set("pacing", "bursts").unwrap_err().to_string(),
        timely.set("scaled", "maybe").unwrap_err().to_string(),
        named("swift").set("fs_max", "0").unwrap_err().to_string(),
    ];
    expect![[r#"
        no congestion control "bbr": known are none, dcqcn, dcqcn:paper, dcqcn:ns3-rdma, dcqcn:mlx-fw, dcqcn:winof2-doc, dcqcn+, timely, timely:ns3, timely:erpc, timely:erpc-patched, swift, hpcc, hpcc:sim, hpcc:testbed
        hpcc has no parameter "etta": it has eta, max_stage, w_ai, base_rtt, reaction, initial_u, min_rate
        none has no parameter "eta": it has none
        t_low = "50" is not accepted: 0 to 1s (with ns, us, ms or s)
        step = "-1" is not accepted: 0 to 1000G bit/s
        pacing = "bursts" is not accepted: one of burst, packet
        scaled = "maybe" is not accepted: on or off
        fs_max = "0" is not accepted: 0.000001 to 1000000 packets"#]].assert_eq(&errors.join("\n"));
    assert_eq!(timely, named("timely"));
}

/// What people read: each parameter with its value, what it can be, and what it does.
#[test]
fn tables() {
    let mut text = String::new();
    for name in Named::names() {
        text += &format!("{name}\n");
        for p in named(&name).parameters() {
            text += &format!("  {} = {} ({}): {}\n", p.name, p.value, p.accepted, p.help);
        }
    }
    expect![[r#"
        none
        dcqcn
          clamp_target = on (on or off): each notification makes the current rate the target (DcqcnClampTgtRate)
          clamp_target_after_time = on (on or off): also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)
          time_reset = 55us (0 to 131071us (with ns, us, ms or s)): T, the timer of increases; 0: none (DcqcnRpgTimeReset)
          byte_reset = 10M (0 to 1G bytes): B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)
          threshold = 5 (1 to 31): F, increases before additive, and then hyper increase (DcqcnRpgThreshold)
          ai_rate = 40M (0 to 1000G bit/s): R_AI, the step of additive increase (DcqcnRpgAiRate)
          hai_rate = 200M (0 to 1000G bit/s): R_HAI, the step of hyper increase (DcqcnRpgHaiRate)
          max_rate = 0 (0 to 1000G bit/s): rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)
          alpha_to_rate_shift = 11 (0 to 11): a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)
          min_decrease = 50 (0 to 100 percent): what a cut leaves of the rate at least (DcqcnRpgMinDecFac)
          min_rate = 1M (0 to 1000G bit/s): least rate (DcqcnRpgMinRate)
          rate_on_first_cnp = 0 (0 to 1000G bit/s): rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)
          g = 4 (0 to 1023 / 1024): weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)
          alpha_period = 55us (0 to 1s (with ns, us, ms or s)): time between updates of alpha; 0: none (DcqcnDceTcpRtt)
          cut_period = 0 (0 to 1s (with ns, us, ms or s)): time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)
          initial_alpha = 1024 (0 to 1024 / 1024): alpha at the first notification (DcqcnInitialAlphaValue)
          alpha_clock = notification (one of notification, period): alpha rises with each notification, or each period that had one
          order = cut-first (one of cut-first, alpha-first): which is first at a notification
          hyper = growing (one of growing, constant): the step of hyper increase grows with each, or not
          fixed_point = off (on or off): alpha is a whole number of 1/1024, as in firmware
          qcn_relics = off (on or off): QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T
        dcqcn:paper
          clamp_target = on (on or off): each notification makes the current rate the target (DcqcnClampTgtRate)
          clamp_target_after_time = on (on or off): also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)
          time_reset = 55us (0 to 131071us (with ns, us, ms or s)): T, the timer of increases; 0: none (DcqcnRpgTimeReset)
          byte_reset = 10M (0 to 1G bytes): B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)
          threshold = 5 (1 to 31): F, increases before additive, and then hyper increase (DcqcnRpgThreshold)
          ai_rate = 40M (0 to 1000G bit/s): R_AI, the step of additive increase (DcqcnRpgAiRate)
          hai_rate = 200M (0 to 1000G bit/s): R_HAI, the step of hyper increase (DcqcnRpgHaiRate)
          max_rate = 0 (0 to 1000G bit/s): rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)
          alpha_to_rate_shift = 11 (0 to 11): a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)
          min_decrease = 50 (0 to 100 percent): what a cut leaves of the rate at least (DcqcnRpgMinDecFac)
          min_rate = 1M (0 to 1000G bit/s): least rate (DcqcnRpgMinRate)
          rate_on_first_cnp = 0 (0 to 1000G bit/s): rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)
          g = 4 (0 to 1023 / 1024): weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)
          alpha_period = 55us (0 to 1s (with ns, us, ms or s)): time between updates of alpha; 0: none (DcqcnDceTcpRtt)
          cut_period = 0 (0 to 1s (with ns, us, ms or s)): time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)
          initial_alpha = 1024 (0 to 1024 / 1024): alpha at the first notification (DcqcnInitialAlphaValue)
          alpha_clock = notification (one of notification, period): alpha rises with each notification, or each period that had one
          order = cut-first (one of cut-first, alpha-first): which is first at a notification
          hyper = growing (one of growing, constant): the step of hyper increase grows with each, or not
          fixed_point = off (on or off): alpha is a whole number of 1/1024, as in firmware
          qcn_relics = off (on or off): QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T
        dcqcn:ns3-rdma
          clamp_target = on (on or off): each notification makes the current rate the target (DcqcnClampTgtRate)
          clamp_target_after_time = off (on or off): also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)
          time_reset = 60us (0 to 131071us (with ns, us, ms or s)): T, the timer of increases; 0: none (DcqcnRpgTimeReset)
          byte_reset = 300M (0 to 1G bytes): B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)
          threshold = 5 (1 to 31): F, increases before additive, and then hyper increase (DcqcnRpgThreshold)
          ai_rate = 40M (0 to 1000G bit/s): R_AI, the step of additive increase (DcqcnRpgAiRate)
          hai_rate = 200M (0 to 1000G bit/s): R_HAI, the step of hyper increase (DcqcnRpgHaiRate)
          max_rate = 0 (0 to 1000G bit/s): rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)
          alpha_to_rate_shift = 11 (0 to 11): a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)
          min_decrease = 50 (0 to 100 percent): what a cut leaves of the rate at least (DcqcnRpgMinDecFac)
          min_rate = 100M (0 to 1000G bit/s): least rate (DcqcnRpgMinRate)
          rate_on_first_cnp = 0 (0 to 1000G bit/s): rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)
          g = 4 (0 to 1023 / 1024): weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)
          alpha_period = 55us (0 to 1s (with ns, us, ms or s)): time between updates of alpha; 0: none (DcqcnDceTcpRtt)
          cut_period = 0 (0 to 1s (with ns, us, ms or s)): time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)
          initial_alpha = 512 (0 to 1024 / 1024): alpha at the first notification (DcqcnInitialAlphaValue)
          alpha_clock = notification (one of notification, period): alpha rises with each notification, or each period that had one
          order = alpha-first (one of cut-first, alpha-first): which is first at a notification
          hyper = growing (one of growing, constant): the step of hyper increase grows with each, or not
          fixed_point = off (on or off): alpha is a whole number of 1/1024, as in firmware
          qcn_relics = on (on or off): QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T
        dcqcn:mlx-fw
          clamp_target = off (on or off): each notification makes the current rate the target (DcqcnClampTgtRate)
          clamp_target_after_time = on (on or off): also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)
          time_reset = 300us (0 to 131071us (with ns, us, ms or s)): T, the timer of increases; 0: none (DcqcnRpgTimeReset)
          byte_reset = 2097088 (0 to 1G bytes): B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)
          threshold = 1 (1 to 31): F, increases before additive, and then hyper increase (DcqcnRpgThreshold)
          ai_rate = 5M (0 to 1000G bit/s): R_AI, the step of additive increase (DcqcnRpgAiRate)
          hai_rate = 50M (0 to 1000G bit/s): R_HAI, the step of hyper increase (DcqcnRpgHaiRate)
          max_rate = 0 (0 to 1000G bit/s): rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)
          alpha_to_rate_shift = 11 (0 to 11): a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)
          min_decrease = 50 (0 to 100 percent): what a cut leaves of the rate at least (DcqcnRpgMinDecFac)
          min_rate = 1M (0 to 1000G bit/s): least rate (DcqcnRpgMinRate)
          rate_on_first_cnp = 0 (0 to 1000G bit/s): rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)
          g = 5 (0 to 1023 / 1024): weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)
          alpha_period = 1us (0 to 1s (with ns, us, ms or s)): time between updates of alpha; 0: none (DcqcnDceTcpRtt)
          cut_period = 4us (0 to 1s (with ns, us, ms or s)): time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)
          initial_alpha = 1023 (0 to 1024 / 1024): alpha at the first notification (DcqcnInitialAlphaValue)
          alpha_clock = period (one of notification, period): alpha rises with each notification, or each period that had one
          order = cut-first (one of cut-first, alpha-first): which is first at a notification
          hyper = constant (one of growing, constant): the step of hyper increase grows with each, or not
          fixed_point = on (on or off): alpha is a whole number of 1/1024, as in firmware
          qcn_relics = off (on or off): QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T
        dcqcn:winof2-doc
          clamp_target = off (on or off): each notification makes the current rate the target (DcqcnClampTgtRate)
          clamp_target_after_time = on (on or off): also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)
          time_reset = 100us (0 to 131071us (with ns, us, ms or s)): T, the timer of increases; 0: none (DcqcnRpgTimeReset)
          byte_reset = 25600 (0 to 1G bytes): B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)
          threshold = 5 (1 to 31): F, increases before additive, and then hyper increase (DcqcnRpgThreshold)
          ai_rate = 10M (0 to 1000G bit/s): R_AI, the step of additive increase (DcqcnRpgAiRate)
          hai_rate = 100M (0 to 1000G bit/s): R_HAI, the step of hyper increase (DcqcnRpgHaiRate)
          max_rate = 0 (0 to 1000G bit/s): rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)
          alpha_to_rate_shift = 11 (0 to 11): a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)
          min_decrease = 50 (0 to 100 percent): what a cut leaves of the rate at least (DcqcnRpgMinDecFac)
          min_rate = 1M (0 to 1000G bit/s): least rate (DcqcnRpgMinRate)
          rate_on_first_cnp = 3G (0 to 1000G bit/s): rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)
          g = 32 (0 to 1023 / 1024): weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)
          alpha_period = 4us (0 to 1s (with ns, us, ms or s)): time between updates of alpha; 0: none (DcqcnDceTcpRtt)
          cut_period = 32us (0 to 1s (with ns, us, ms or s)): time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)
          initial_alpha = 0 (0 to 1024 / 1024): alpha at the first notification (DcqcnInitialAlphaValue)
          alpha_clock = period (one of notification, period): alpha rises with each notification, or each period that had one
          order = cut-first (one of cut-first, alpha-first): which is first at a notification
          hyper = constant (one of growing, constant): the step of hyper increase grows with each, or not
          fixed_point = on (on or off): alpha is a whole number of 1/1024, as in firmware
          qcn_relics = off (on or off): QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T
        dcqcn+
          g = 4 (0 to 1023 / 1024): weight of a new sample in alpha
          initial_alpha = 1024 (0 to 1024 / 1024): alpha at the first notification
          cut = 0.5 (0 to 1): a cut takes alpha times this
          period_floor = 50us (0 to 1s (with ns, us, ms or s)): least period between two notifications, whatever is told
          base_timer = 55us (0 to 1s (with ns, us, ms or s)): both timers while the period is at its floor
          timer_slack = 2 (0.1 to 1000): lambda: packets that the timer of increases lasts at least
          alpha_slack = 1 (0.1 to 1000): packets that alpha's timer lasts at least
          packet_time = on (on or off): timers are no shorter than a packet takes at the flow's rate
          threshold = 5 (1 to 31): F, stages of fast recovery
          hyper_after = 4 (1 to 1000): hyper increase begins at this times F
          min_rate_divisor = 10000 (1 to 1000000000): least rate: the link's over this
          steep_alpha = 102 (0 to 1024 / 1024): alpha above which additive increase is steep
          steep_rate_divisor = 5 (1 to 1000000000): step of steep increase: the rate over this
          steep_line_divisor = 50 (1 to 1000000000): and at most the link's rate over this
          flat_rate_divisor = 10 (1 to 1000000000): step of additive increase: the rate over this
          flat_line_divisor = 100 (1 to 1000000000): and at most the link's rate over this
          hyper_line_divisor = 10000 (1 to 1000000000): first bound of the step of hyper increase: the link's rate over this
          hyper_bound = exponential (one of linear, exponential): how that bound grows
        timely
          ewma = 0.875 (0 to 1): weight of a new difference of round trips in their moving average
          beta = 0.8 (0 to 1): how much a decrease takes
          t_low = 50us (0 to 1s (with ns, us, ms or s)): round trip below which rates grow whatever the gradient
          t_high = 500us (0 to 1s (with ns, us, ms or s)): round trip above which rates fall whatever the gradient
          min_rtt = 20us (1ns to 1s (with ns, us, ms or s)): round trip that gradients are relative to
          step = 10M (0 to 1000G bit/s): additive increase
          hyper = 5 (0 to 1000000): steps of one hyper increase
          hyper_after = 5 (0 to 1000000): increases in a row before hyper increase
          hyper_counts = increases (one of increases, falls): what counts towards hyper increase: increases of any kind, or falls of the round trip
          segment = 1 (1 to 1M bytes): round trips are measured so often
          pacing = packet (one of burst, packet): packets of a segment leave in a burst, or each at the flow's rate
          patched = off (on or off): between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)
          once_per_rtt = on (on or off): rates change once in a round trip, otherwise at each measurement
          scaled = off (on or off): changes are smaller in proportion where less than min_rtt has passed
          least_left = 0 (0 to 1): part of the rate that one decrease leaves at least
          min_rate = 100M (0 to 1000G bit/s): least rate
          start = 1 (0 to 1): part of the line rate that a flow begins with
        timely:ns3
          ewma = 0.875 (0 to 1): weight of a new difference of round trips in their moving average
          beta = 0.8 (0 to 1): how much a decrease takes
          t_low = 50us (0 to 1s (with ns, us, ms or s)): round trip below which rates grow whatever the gradient
          t_high = 500us (0 to 1s (with ns, us, ms or s)): round trip above which rates fall whatever the gradient
          min_rtt = 20us (1ns to 1s (with ns, us, ms or s)): round trip that gradients are relative to
          step = 10M (0 to 1000G bit/s): additive increase
          hyper = 5 (0 to 1000000): steps of one hyper increase
          hyper_after = 5 (0 to 1000000): increases in a row before hyper increase
          hyper_counts = increases (one of increases, falls): what counts towards hyper increase: increases of any kind, or falls of the round trip
          segment = 1 (1 to 1M bytes): round trips are measured so often
          pacing = packet (one of burst, packet): packets of a segment leave in a burst, or each at the flow's rate
          patched = off (on or off): between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)
          once_per_rtt = on (on or off): rates change once in a round trip, otherwise at each measurement
          scaled = off (on or off): changes are smaller in proportion where less than min_rtt has passed
          least_left = 0 (0 to 1): part of the rate that one decrease leaves at least
          min_rate = 100M (0 to 1000G bit/s): least rate
          start = 1 (0 to 1): part of the line rate that a flow begins with
        timely:erpc
          ewma = 0.02 (0 to 1): weight of a new difference of round trips in their moving average
          beta = 0.8 (0 to 1): how much a decrease takes
          t_low = 50us (0 to 1s (with ns, us, ms or s)): round trip below which rates grow whatever the gradient
          t_high = 1ms (0 to 1s (with ns, us, ms or s)): round trip above which rates fall whatever the gradient
          min_rtt = 1us (1ns to 1s (with ns, us, ms or s)): round trip that gradients are relative to
          step = 40M (0 to 1000G bit/s): additive increase
          hyper = 5 (0 to 1000000): steps of one hyper increase
          hyper_after = 5 (0 to 1000000): increases in a row before hyper increase
          hyper_counts = falls (one of increases, falls): what counts towards hyper increase: increases of any kind, or falls of the round trip
          segment = 1 (1 to 1M bytes): round trips are measured so often
          pacing = packet (one of burst, packet): packets of a segment leave in a burst, or each at the flow's rate
          patched = off (on or off): between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)
          once_per_rtt = off (on or off): rates change once in a round trip, otherwise at each measurement
          scaled = on (on or off): changes are smaller in proportion where less than min_rtt has passed
          least_left = 0.5 (0 to 1): part of the rate that one decrease leaves at least
          min_rate = 40M (0 to 1000G bit/s): least rate
          start = 1 (0 to 1): part of the line rate that a flow begins with
        timely:erpc-patched
          ewma = 0.875 (0 to 1): weight of a new difference of round trips in their moving average
          beta = 0.008 (0 to 1): how much a decrease takes
          t_low = 50us (0 to 1s (with ns, us, ms or s)): round trip below which rates grow whatever the gradient
          t_high = 1ms (0 to 1s (with ns, us, ms or s)): round trip above which rates fall whatever the gradient
          min_rtt = 1us (1ns to 1s (with ns, us, ms or s)): round trip that gradients are relative to
          step = 40M (0 to 1000G bit/s): additive increase
          hyper = 5 (0 to 1000000): steps of one hyper increase
          hyper_after = 5 (0 to 1000000): increases in a row before hyper increase
          hyper_counts = falls (one of increases, falls): what counts towards hyper increase: increases of any kind, or falls of the round trip
          segment = 1 (1 to 1M bytes): round trips are measured so often
          pacing = packet (one of burst, packet): packets of a segment leave in a burst, or each at the flow's rate
          patched = on (on or off): between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)
          once_per_rtt = off (on or off): rates change once in a round trip, otherwise at each measurement
          scaled = on (on or off): changes are smaller in proportion where less than min_rtt has passed
          least_left = 0.5 (0 to 1): part of the rate that one decrease leaves at least
          min_rate = 40M (0 to 1000G bit/s): least rate
          start = 1 (0 to 1): part of the line rate that a flow begins with
        swift
          base = 25us (1ns to 1s (with ns, us, ms or s)): target of the network's delay, without hops and flows
          hop = 2us (0 to 1s (with ns, us, ms or s)): what a switch on the way adds to the target
          hop_scaling = on (on or off): targets grow by the number of switches
          flow_scaling = on (on or off): targets grow as windows shrink
          fs_range = 125us (0 to 1s (with ns, us, ms or s)): most that flow-based scaling adds to the target
          fs_min = 0.1 (0.000001 to 1000000 packets): window at which flow-based scaling adds all of that
          fs_max = 100 (0.000001 to 1000000 packets): window from which on flow-based scaling adds nothing
          ai = 0.05 (0 to 1000 packets): what a window grows in a round trip
          beta = 0.8 (0 to 1): how much a decrease takes of the part of the delay above target
          max_mdf = 0.5 (0 to 1): most that one decrease takes of the window
          below_one = on (on or off): windows may be below one packet: the flow is paced
          min_cwnd = 0.001 (0.000001 to 1000000 packets): least window, where below_one is on
          max_cwnd = 4096 (0.000001 to 1000000 packets): greatest window
          initial_cwnd = 10 (0.000001 to 1000000 packets): window at the start
          split = on (on or off): the receiver's delay has a window of its own
          endpoint_target = 100us (0 to 1s (with ns, us, ms or s)): target of the receiver's delay
          endpoint_ewma = 0.125 (0 to 1): weight of a new sample in the moving average of the receiver's delay
          retransmit_reset = 4 (1 to 1000000): timeouts in a row after which the window is the least one
        hpcc
          eta = 0.95 (0.01 to 1): part of a link that is aimed at
          max_stage = 5 (0 to 1000000): additive increases in a row before a multiplicative one
          w_ai = 80 (0 to 1M bytes): bytes on the wire of an additive increase
          base_rtt = 13us (1ns to 1s (with ns, us, ms or s)): round trip without queues
          reaction = reference (one of reference, per-ack, per-rtt): windows follow each acknowledge from the reference window, each from themselves, or once in a round trip
          initial_u = 1 (0 to 10): what is under way, in links, before the first sample
          min_rate = 0 (0 to 1000G bit/s): least rate; 0: none
        hpcc:sim
          eta = 0.95 (0.01 to 1): part of a link that is aimed at
          max_stage = 5 (0 to 1000000): additive increases in a row before a multiplicative one
          w_ai = 80 (0 to 1M bytes): bytes on the wire of an additive increase
          base_rtt = 13us (1ns to 1s (with ns, us, ms or s)): round trip without queues
          reaction = reference (one of reference, per-ack, per-rtt): windows follow each acknowledge from the reference window, each from themselves, or once in a round trip
          initial_u = 1 (0 to 10): what is under way, in links, before the first sample
          min_rate = 0 (0 to 1000G bit/s): least rate; 0: none
        hpcc:testbed
          eta = 0.95 (0.01 to 1): part of a link that is aimed at
          max_stage = 5 (0 to 1000000): additive increases in a row before a multiplicative one
          w_ai = 80 (0 to 1M bytes): bytes on the wire of an additive increase
          base_rtt = 9us (1ns to 1s (with ns, us, ms or s)): round trip without queues
          reaction = reference (one of reference, per-ack, per-rtt): windows follow each acknowledge from the reference window, each from themselves, or once in a round trip
          initial_u = 1 (0 to 10): what is under way, in links, before the first sample
          min_rate = 0 (0 to 1000G bit/s): least rate; 0: none
    "#]].assert_eq(&text);
}

#[test]
fn what_is_shown_can_be_set() {
    for name in Named::names() {
        let original = named(&name);
        for parameter in original.parameters() {
            let mut copy = original.clone();
            copy.set(&parameter.name, &parameter.value).unwrap();
            assert_eq!(copy, original, "{name} {}", parameter.name);
        }
    }
}

/// Each parameter can be another value, and is what was set; no other one changes.
#[test]
fn each_parameter_is_its_own() {
    for name in Named::names() {
        let original = named(&name);
        for parameter in original.parameters() {
            let key = &*parameter.name;
            let others = [
                "on",
                "off",
                "burst",
                "falls",
                "increases",
                "per-ack",
                "3",
                "0.25",
                "7us",
                "12",
                "growing",
                "constant",
            ];
            let words = [
                "notification",
                "period",
                "cut-first",
                "alpha-first",
                "exponential",
                "linear",
            ];
            let mut changed = original.clone();
            let tried = others.iter().chain(&words);
            let done = tried.into_iter().any(|value| {
                changed = original.clone();
                changed.set(key, value).is_ok() && changed != original
            });
            assert!(done, "{name} {key}: no other value is taken");
            for (before, after) in original.parameters().iter().zip(changed.parameters()) {
                assert_eq!(before.value != after.value, before.name == key, "{name} {key}");
            }
        }
    }
}

#[test]
fn endings() {
    let mut timely = named("timely");
    for (key, text, shown) in [
        ("step", "40M", "40M"),
        ("step", "0.5G", "500M"),
        ("step", "1500", "1500"),
        ("step", " 2 k ", "2k"),
        ("t_low", "0", "0"),
        ("t_low", "0.3us", "300ns"),
        ("t_low", "1.5 ms", "1500us"),
        ("t_low", "1s", "1s"),
        ("segment", "64k", "64k"),
        ("scaled", "yes", "on"),
        ("beta", "0.5", "0.5"),
    ] {
        timely.set(key, text).unwrap();
        assert_eq!(timely.get(key).as_deref(), Some(shown), "{key} {text}");
    }
    for (key, text) in [
        ("step", "1.5"),
        ("step", "1e400"),
        ("step", "NaN"),
        ("step", "inf"),
        ("step", ""),
        ("step", "M"),
        ("t_low", "0.5ns"),
        ("t_low", "2s"),
        ("t_low", "-1us"),
        ("beta", "NaN"),
        ("beta", "1.1"),
        ("segment", "0"),
    ] {
        assert!(timely.set(key, text).is_err(), "{key} {text}");
    }
    assert_eq!(timely.get("nothing"), None);
}

#[test]
fn an_adapter_has_its_own_parameters() {
    let mut tuned = Tuned::default();
    assert!(tuned.parameters().iter().all(|p| !p.is_set()));
    for (name, text, number, shown) in [
        ("swift.base", "30us", "30000", "30us"),
        ("swift.base", "31000", "31000", "31us"),
        ("swift.split", "0", "0", "off"),
        ("hpcc.reaction", "per-rtt", "2", "per-rtt"),
        ("hpcc.reaction", "1", "1", "per-ack"),
        ("timely.step", "40M", "40000000", "40M"),
        ("dcqcn+.cut", "0.25", "0.25", "0.25"),
    ] {
        tuned.set(name, text).unwrap().unwrap();
        let all = tuned.parameters();
        let row = all.iter().find(|p| p.name() == name).unwrap();
        assert_eq!((&*row.now.number, &*row.now.value), (number, shown), "{name}");
        assert!(row.is_set());
    }
    // What is shown as a number can be set as one.
    let mut copy = Tuned::default();
    for p in tuned.parameters() {
        copy.set(&p.name(), &p.now.number).unwrap().unwrap();
    }
    assert_eq!(copy, tuned);
    let built = tuned.get("swift").unwrap();
    assert_eq!(built.get("base").as_deref(), Some("31us"));
    tuned.set("swift.base", "").unwrap().unwrap();
    assert_eq!(tuned.get("swift").unwrap().get("base").as_deref(), Some("25us"));
    let refused = tuned.set("timely.beta", "1.5").unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "beta = \"1.5\" is not accepted: 0 to 1");
    assert!(tuned.set("timely.bet", "1").unwrap().is_err());
    assert!(tuned.set("timely.bet", "").unwrap().is_err());
    assert!(tuned.set("hpcc.reaction", "3").unwrap().is_err());
    for none in ["dcqcn.g", "none.g", "swift", "", ".base"] {
        assert_eq!(tuned.set(none, "1"), None, "{none}");
    }
}

proptest! {
    #[test]
    fn any_text_is_set_or_refused(key in 0..64usize, value in ".{0,12}") {
        for name in Named::names() {
            let mut named = named(&name);
            let keys: Vec<String> = named.parameters().into_iter().map(|p| p.name.into()).collect();
            if let Some(key) = keys.get(key)
                && named.set(key, &value).is_ok()
            {
                let shown = named.get(key).unwrap();
                let before = named.clone();
                named.set(key, &shown).unwrap();
                prop_assert_eq!(named, before);
            }
        }
    }
}
