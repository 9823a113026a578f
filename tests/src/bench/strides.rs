//! Frames of 64 bytes to a guest whose receive memory is a few large buffers, as those of a card's striding receive queue are; peer:
//! the same memory as strides, many small buffers of which a long frame takes several (`MRG_RXBUF`).

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use vnic_backend::MacAddr;

use super::product::Product;
use super::report::{Outcome, Summary};
use super::testpmd::guest_mac;
use super::{Lab, Run, WARM_UP};
use crate::driver::packets::eth;
use crate::driver::{Guest, NetHdr, Options, feature};

/// Bytes of receive memory.
const MEMORY: u32 = 1 << 20;
/// Bytes of a large buffer, and of a stride.
const LARGE: u32 = 64 << 10;
const STRIDE: u32 = 1 << 10;
/// Frames that the sender puts into its ring at a time.
const BURST: usize = 32;

/// `eth-strides`.
pub fn run(lab: &Lab) -> Result<Run> {
    if lab.vnicd.is_some() {
        return Ok(Run::Skipped(
            "its NIC is in the bench's process: not with --vnicd".into(),
        ));
    }
    let dir = lab.part()?;
    let product = Product::start(&lab.setup(dir.path(), 2))?;
    let (mut rates, mut ratios, mut exchanges) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
    for round in 0..lab.rounds {
        exchanges.push(lab.exchange()?);
        let mut of_round = [0.0; 2];
        // Whoever goes first in one round goes second in the next.
        for i in [round % 2, 1 - round % 2] {
            of_round[i] = measure(lab, &product, [LARGE, STRIDE][i])?;
            rates[i].push(of_round[i]);
        }
        let [large, strides] = of_round;
        ratios.push(large / strides);
        eprintln!(
            "eth-strides round {}/{}: {large:.2} Mpps into large buffers, {strides:.2} into strides",
            round + 1,
            lab.rounds
        );
    }
    let of = |values: &[f64]| Summary::of(values).context("no rounds");
    Ok(Run::Measured(vec![Outcome {
        name: "eth-strides".into(),
        unit: "Mpps",
        value: of(&rates[0])?,
        peer: Some(("1,024 strides of 1 KiB", of(&rates[1])?)),
        ratio: Some(of(&ratios)?),
        bare_exchange: Some(of(&exchanges)?.median),
        rounds: lab.rounds,
        details: vec![],
        notes: vec!["64 B into 16 buffers of 64 KiB; one thread drives sender and receiver".into()],
    }]))
}

/// Millions of frames a second that reach a guest with buffers of this size.
fn measure(lab: &Lab, product: &Product, buffer: u32) -> Result<f64> {
    let mut sender = Guest::attach(product.socket(0), Options::default())?;
    let receiver = Options {
        queue_size: (MEMORY / buffer) as u16,
        post: (MEMORY / buffer) as u16,
        rx_buffer: buffer,
        ..Options::default()
    };
    let receiver = match buffer {
        LARGE => receiver.without(feature::MRG_RXBUF),
        _ => receiver,
    };
    let mut receiver = Guest::attach(product.socket(1), receiver)?;
    product.wait_up(2, super::ethernet::PATIENCE)?;
    let mac = |i| -> Result<MacAddr> { Ok(guest_mac(i).parse()?) };
    let frame = eth(mac(1)?, mac(0)?, [0x88, 0xb5], &[0; 50]);
    let mut bytes = Vec::new();
    let mut came = 0_u64;
    let mut turn = |came: &mut u64| {
        sender.reclaim(0);
        for _ in 0..BURST {
            if !sender.stage(0, &frame, NetHdr::default()) {
                break;
            }
        }
        sender.ring(1).publish();
        while receiver.try_recv_into(0, &mut bytes).is_some() {
            *came += 1;
        }
    };
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        turn(&mut came);
    }
    ensure!(came > 0, "no frame came into buffers of {buffer} bytes");
    came = 0;
    let start = Instant::now();
    while start.elapsed() < lab.window {
        turn(&mut came);
    }
    let rate = came as f64 / start.elapsed().as_secs_f64() / 1e6;
    sender.detach()?;
    receiver.detach()?;
    Ok(rate)
}
