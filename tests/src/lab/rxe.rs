//! The Linux kernel's RDMA side: a guest with Soft-RoCE and the program `tests/guest/rxe_peer.c` in it.
//!
//! The program's commands and answers are described at the top of its file; [`RxePeer::ask`] takes any of them,
//! and the typed calls take those that most cases need. All calls wait for their answer. What they wait for may
//! need somebody on the wire (an address handle needs the neighbour's address): run our side in a thread of its
//! own, see [`super::station`].

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::Guest;
use super::wire_port::mapped;

/// How long a command may take besides the `timeout` that it names itself.
const PATIENCE: Duration = Duration::from_secs(240);

/// Status codes of completions, as libibverbs numbers them (`enum ibv_wc_status`).
pub mod status {
    #![allow(missing_docs)]
    pub const SUCCESS: u32 = 0;
    pub const LOC_LEN_ERR: u32 = 1;
    pub const LOC_PROT_ERR: u32 = 4;
    pub const WR_FLUSH_ERR: u32 = 5;
    pub const REM_INV_REQ_ERR: u32 = 9;
    pub const REM_ACCESS_ERR: u32 = 10;
    pub const REM_OP_ERR: u32 = 11;
    pub const RETRY_EXC_ERR: u32 = 12;
    pub const RNR_RETRY_EXC_ERR: u32 = 13;
}

/// Fills `bytes` with the pattern of a seed: splitmix64, as `rxe_peer.c` describes it.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    for (k, chunk) in bytes.chunks_mut(8).enumerate() {
        let step = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(k as u64 + 1);
        let mut z = seed.wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
    }
}

/// The first byte that is not of the seed's pattern.
pub fn first_difference(seed: u64, bytes: &[u8]) -> Option<usize> {
    let mut want = vec![0; bytes.len()];
    fill(seed, &mut want);
    want.iter().zip(bytes).position(|(a, b)| a != b)
}

/// `key=value` words of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(String);

impl Answer {
    fn parse(line: &str) -> Result<Answer> {
        if line == "ok" {
            return Ok(Answer(String::new()));
        }
        match line.strip_prefix("ok ") {
            Some(words) => Ok(Answer(words.to_owned())),
            None => bail!("{line}"),
        }
    }

    /// All values of a key, in their order.
    pub fn all<'a, 'k>(&'a self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        let words = self.0.split_whitespace();
        words.filter_map(move |word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// The first value of a key.
    pub fn text(&self, key: &str) -> Result<&str> {
        let value = self.all(key).next();
        value.with_context(|| format!("no {key} in the answer {:?}", self.0))
    }

    /// The first value of a key as a number.
    pub fn number(&self, key: &str) -> Result<u64> {
        number(self.text(key)?)
    }
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u64> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => u64::from_str(text),
    };
    value.with_context(|| format!("not a number: {text:?}"))
}

/// The type of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Rc => "rc",
            Kind::Uc => "uc",
            Kind::Ud => "ud",
        })
    }
}

/// A memory region of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mr {
    /// Its number in commands.
    pub id: u64,
    /// Its first byte.
    pub addr: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its remote key.
    pub rkey: u32,
}

/// A queue pair of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qp {
    /// Its number in commands.
    pub id: u64,
    /// Its number on the wire.
    pub qpn: u32,
}

/// An entry of the peer's GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// `v1` or `v2`.
    pub version: String,
    /// The GID; an IPv4 address is mapped (`::ffff:a.b.c.d`).
    pub addr: Ipv6Addr,
}

/// How a connected queue pair is brought from RESET to RTS.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Our address.
    pub remote: IpAddr,
    /// Our queue pair's number.
    pub dest_qpn: u32,
    /// Path MTU, bytes: 256 to 4096.
    pub mtu: u32,
    /// PSN of the first request we send.
    pub rq_psn: u32,
    /// PSN of the first request the peer sends.
    pub sq_psn: u32,
    /// Place of the peer's own address in its GID table ([`RxePeer::gid_index`]).
    pub sgid: u32,
    /// More words for the commands `modify state=init`, `rtr` and `rts`, such as `timeout=18`.
    pub more: String,
}

/// A work request for a send queue, or `count` of them.
#[derive(Debug, Clone)]
pub struct Post {
    words: String,
}

impl Post {
    /// `op` (see `rxe_peer.c`) with the `len` bytes at `off` of a memory region.
    pub fn new(op: &str, mr: &Mr, off: u64, len: u64) -> Post {
        Post {
            words: format!("op={op} mr={} off={off} len={len}", mr.id),
        }
    }

    /// Any further words.
    pub fn with(mut self, words: &str) -> Post {
        self.words.push(' ');
        self.words.push_str(words);
        self
    }

    /// On our memory: address and key.
    pub fn to(self, raddr: u64, rkey: u32) -> Post {
        self.with(&format!("raddr={raddr:#x} rkey={rkey:#x}"))
    }

    /// With immediate data.
    pub fn imm(self, imm: u32) -> Post {
        self.with(&format!("imm={imm:#x}"))
    }

    /// So many requests, `step` bytes apart in the peer's memory and (when there is one) in ours.
    pub fn times(self, count: u64, step: u64) -> Post {
        self.with(&format!("count={count} step={step}"))
    }
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wc {
    /// The caller's name for the request.
    pub wr_id: u64,
    /// See [`status`].
    pub status: u32,
    /// `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// Bytes that arrived (receive, READ).
    pub byte_len: u32,
    /// Immediate data in host order, or the key that was invalidated.
    pub imm: u32,
    /// A GRH (or what stands for it) is in front of the data.
    pub has_grh: bool,
    /// `imm` is immediate data.
    pub has_imm: bool,
    /// `imm` is a key.
    pub has_key: bool,
    /// The sender's queue pair (UD).
    pub src_qp: u32,
}

impl FromStr for Wc {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Wc> {
        let words: Vec<&str> = text.split(',').collect();
        let &[wr_id, status, opcode, byte_len, imm, flags, src_qp] = words.as_slice() else {
            bail!("not a completion: {text:?}");
        };
        let narrow = |text: &str| Ok::<u32, anyhow::Error>(u32::try_from(number(text)?)?);
        Ok(Wc {
            wr_id: number(wr_id)?,
            status: narrow(status)?,
            opcode: narrow(opcode)?,
            byte_len: narrow(byte_len)?,
            imm: narrow(imm)?,
            has_grh: flags.contains('g'),
            has_imm: flags.contains('i'),
            has_key: flags.contains('v'),
            src_qp: narrow(src_qp)?,
        })
    }
}

/// The verbs program in a guest. One command at a time.
#[derive(Debug)]
pub struct RxePeer {
    guest: Guest,
    mtu: u32,
}

impl RxePeer {
    /// Starts the program in a guest that was made with [`super::GuestSpec::rxe`], and opens the device.
    pub fn start(mut guest: Guest) -> Result<RxePeer> {
        // It reads the commands in place of the agent, until it ends.
        guest.send("exec rxe_peer </dev/ttyS1")?;
        let mut peer = RxePeer { guest, mtu: 0 };
        peer.mtu = u32::try_from(peer.ask("open dev=rxe0")?.number("mtu")?)?;
        Ok(peer)
    }

    /// The active MTU of its port, bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Gives a command; [`RxePeer::answer`] or [`RxePeer::try_answer`] has its answer.
    pub fn tell(&mut self, command: &str) -> Result<()> {
        ensure!(
            command.len() < 1000 && !command.contains('\n'),
            "a command is one short line: {command:?}"
        );
        self.guest.send(command)
    }

    /// The answer, if it is there. An error is an `error` answer.
    pub fn try_answer(&mut self) -> Result<Option<Answer>> {
        let line = self.guest.try_line()?;
        line.map(|line| Answer::parse(&line)).transpose()
    }

    /// Waits for the answer.
    pub fn answer(&mut self) -> Result<Answer> {
        Answer::parse(&self.guest.line(Instant::now() + PATIENCE)?)
    }

    /// Gives a command and waits for its answer.
    pub fn ask(&mut self, command: &str) -> Result<Answer> {
        self.tell(command)?;
        self.answer()
            .with_context(|| format!("{}: {command}", self.guest.name()))
    }

    /// Gives a command that must fail; the call that failed and its errno.
    pub fn refused(&mut self, command: &str) -> Result<(String, u32)> {
        self.tell(command)?;
        let line = self.guest.line(Instant::now() + PATIENCE)?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("error"), Some(call), Some(errno)) => Ok((call.to_owned(), errno.parse()?)),
            _ => bail!("{command}: not refused: {line}"),
        }
    }

    /// Its GID table.
    pub fn gids(&mut self) -> Result<Vec<Gid>> {
        let answer = self.ask("gids")?;
        let entry = |text: &str| -> Result<Gid> {
            let (index, rest) = text.split_once(',').context("no index")?;
            let (version, addr) = rest.split_once(',').context("no type")?;
            Ok(Gid {
                index: index.parse()?,
                version: version.to_owned(),
                addr: addr.parse()?,
            })
        };
        answer.all("gid").map(entry).collect()
    }

    /// Where its GID table has an address. Waits: the kernel fills the table on its own time.
    pub fn gid_index(&mut self, addr: IpAddr) -> Result<u32> {
        super::wait_for(&format!("a GID {addr}"), super::PATIENCE, || {
            let gids = self.gids()?;
            let found = gids.iter().find(|gid| gid.addr == mapped(addr));
            found
                .map(|gid| gid.index)
                .with_context(|| format!("only {gids:?}"))
        })
    }

    /// Registers `len` bytes of zeros. `access` as in `rxe_peer.c`; `lwra` is all but windows.
    pub fn mr(&mut self, len: u64, access: &str) -> Result<Mr> {
        let answer = self.ask(&format!("mr len={len} access={access}"))?;
        Ok(Mr {
            id: answer.number("mr")?,
            addr: answer.number("addr")?,
            len,
            rkey: u32::try_from(answer.number("rkey")?)?,
        })
    }

    /// Writes the pattern of `seed` to `len` bytes at `off`.
    pub fn fill(&mut self, mr: &Mr, seed: u64, off: u64, len: u64) -> Result<()> {
        self.fill_many(mr, seed, off, len, 1, len)
    }

    /// Writes the patterns of `seed`, `seed + 1`, … to `count` places, `step` bytes apart.
    pub fn fill_many(&mut self, mr: &Mr, seed: u64, off: u64, len: u64, count: u64, step: u64) -> Result<()> {
        self.ask(&format!(
            "fill mr={} seed={seed} off={off} len={len} count={count} step={step}",
            mr.id
        ))?;
        Ok(())
    }

    /// The `len` bytes at `off` are the pattern of `seed`.
    pub fn check(&mut self, mr: &Mr, seed: u64, off: u64, len: u64) -> Result<()> {
        self.check_many(mr, seed, off, len, 1, len)
    }

    /// As [`RxePeer::fill_many`] wrote them.
    pub fn check_many(
        &mut self,
        mr: &Mr,
        seed: u64,
        off: u64,
        len: u64,
        count: u64,
        step: u64,
    ) -> Result<()> {
        let command = format!(
            "check mr={} seed={seed} off={off} len={len} count={count} step={step}",
            mr.id
        );
        let answer = self.ask(&command)?;
        ensure!(
            answer.number("same")? == 1,
            "the data are wrong: {command}: {}",
            answer.0
        );
        Ok(())
    }

    /// Sets bytes to zero.
    pub fn zero(&mut self, mr: &Mr, off: u64, len: u64) -> Result<()> {
        self.ask(&format!("zero mr={} off={off} len={len}", mr.id))?;
        Ok(())
    }

    /// 64 bits of its memory, as its processor (little-endian) has them.
    pub fn peek(&mut self, mr: &Mr, off: u64) -> Result<u64> {
        self.ask(&format!("peek mr={} off={off}", mr.id))?.number("value")
    }

    /// Sets 64 bits of its memory.
    pub fn poke(&mut self, mr: &Mr, off: u64, value: u64) -> Result<()> {
        self.ask(&format!("poke mr={} off={off} value={value}", mr.id))?;
        Ok(())
    }

    /// Makes a queue pair with a send and a receive CQ of its own. `more`: `sq=`, `rq=`, `sge=`, `inline=`, `cqe=`.
    pub fn qp(&mut self, kind: Kind, more: &str) -> Result<Qp> {
        let answer = self.ask(&format!("qp type={kind} {more}"))?;
        Ok(Qp {
            id: answer.number("qp")?,
            qpn: u32::try_from(answer.number("qpn")?)?,
        })
    }

    /// Brings an RC or UC queue pair to RTS.
    pub fn connect(&mut self, qp: Qp, to: &Connect) -> Result<()> {
        let Connect {
            remote,
            dest_qpn,
            mtu,
            rq_psn,
            sq_psn,
            sgid,
            more,
        } = to;
        let id = qp.id;
        self.ask(&format!("modify qp={id} state=init {more}"))?;
        self.ask(&format!(
            "modify qp={id} state=rtr dgid={remote} sgid={sgid} dest_qpn={dest_qpn} mtu={mtu} rq_psn={rq_psn} {more}"
        ))?;
        self.ask(&format!("modify qp={id} state=rts sq_psn={sq_psn} {more}"))?;
        Ok(())
    }

    /// Brings a UD queue pair to RTS.
    pub fn ready(&mut self, qp: Qp, qkey: u32, sq_psn: u32) -> Result<()> {
        self.ask(&format!("modify qp={} state=init qkey={qkey:#x}", qp.id))?;
        self.ask(&format!("modify qp={} state=rtr", qp.id))?;
        self.ask(&format!("modify qp={} state=rts sq_psn={sq_psn}", qp.id))?;
        Ok(())
    }

    /// Makes an address handle for our address, which must answer (ARP, neighbour discovery).
    pub fn ah(&mut self, remote: IpAddr, sgid: u32) -> Result<u64> {
        self.ask(&format!("ah dgid={remote} sgid={sgid}"))?.number("ah")
    }

    /// Posts `count` receive requests of `len` bytes, `step` bytes apart from `off` on; wr_id 0, 1, ….
    pub fn post_recv(&mut self, qp: Qp, mr: &Mr, off: u64, len: u64, count: u64, step: u64) -> Result<()> {
        self.ask(&format!(
            "post_recv qp={} mr={} off={off} len={len} count={count} step={step}",
            qp.id, mr.id
        ))?;
        Ok(())
    }

    /// Posts requests to the send queue.
    pub fn post(&mut self, qp: Qp, post: &Post) -> Result<Answer> {
        self.ask(&format!("post_send qp={} {}", qp.id, post.words))
    }

    /// Posts requests to the send queue, at most `window` at a time, and waits until all are completed well.
    pub fn burst(&mut self, qp: Qp, post: &Post, window: u32) -> Result<Duration> {
        let command = format!("burst qp={} {} window={window} timeout=200000", qp.id, post.words);
        let answer = self.ask(&command)?;
        let words = post.words.split(' ');
        let mut wanted = words.filter_map(|word| word.strip_prefix("count="));
        let wanted = wanted.next_back().map_or(Ok(1), number)?;
        ensure!(
            answer.number("done")? == wanted && answer.number("bad")? == 0,
            "{command}: {}",
            answer.0
        );
        Ok(Duration::from_micros(answer.number("us")?))
    }

    /// Waits for exactly `n` completions of the CQ `send` or `recv`.
    pub fn completions(&mut self, qp: Qp, cq: &str, n: usize) -> Result<Vec<Wc>> {
        let answer = self.ask(&format!("poll qp={} cq={cq} n={n} timeout=120000", qp.id))?;
        let list: Vec<Wc> = answer.all("wc").map(str::parse).collect::<Result<_>>()?;
        ensure!(
            list.len() == n,
            "{} completions of {n} in the {cq} CQ: {list:?}",
            list.len()
        );
        Ok(list)
    }

    /// Up to `n` completions of receives: those that come within `patience`.
    pub fn arrivals(&mut self, qp: Qp, n: u64, patience: Duration) -> Result<Vec<Wc>> {
        let (id, ms) = (qp.id, patience.as_millis());
        let answer = self.ask(&format!("poll qp={id} cq=recv n={n} timeout={ms}"))?;
        answer.all("wc").map(str::parse).collect()
    }

    /// Waits for `n` completions that are all successful; the sum of their lengths.
    pub fn all_good(&mut self, qp: Qp, cq: &str, n: u64) -> Result<u64> {
        let answer = self.ask(&format!("poll qp={} cq={cq} n={n} timeout=200000 brief=1", qp.id))?;
        ensure!(
            answer.number("good")? == n,
            "of {n} completions of the {cq} CQ: {}",
            answer.0
        );
        answer.number("bytes")
    }

    /// One of rdma_rxe's counters, such as `rcvd_seq_err`.
    pub fn counter(&mut self, name: &str) -> Result<u64> {
        self.ask("counters")?.number(name)
    }

    /// Runs a shell command in the guest; it must succeed.
    pub fn sh(&mut self, command: &str) -> Result<()> {
        let exit = self.ask(&format!("sh {command}"))?.number("exit")?;
        ensure!(exit == 0, "{}: `{command}` ended with {exit}", self.guest.name());
        Ok(())
    }

    /// Destroys a queue pair.
    pub fn destroy_qp(&mut self, qp: Qp) -> Result<()> {
        self.ask(&format!("destroy qp={}", qp.id)).map(|_| ())
    }

    /// Ends the program; the guest takes commands again.
    pub fn quit(mut self) -> Result<Guest> {
        self.ask("quit")?;
        let (exit, output) = self.guest.finish("rxe_peer")?;
        ensure!(exit == 0, "rxe_peer ended with {exit}: {output}");
        Ok(self.guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_splitmix64() {
        // Published first outputs of splitmix64 from the seed 1234567.
        let mut bytes = [0; 19];
        fill(1_234_567, &mut bytes);
        assert_eq!(bytes[..8], 6_457_827_717_110_365_317_u64.to_le_bytes());
        assert_eq!(bytes[8..16], 3_203_168_211_198_807_973_u64.to_le_bytes());
        assert_eq!(bytes[16..], 9_817_491_932_198_370_423_u64.to_le_bytes()[..3]);
        assert_eq!(first_difference(1_234_567, &bytes), None);
        bytes[17] ^= 1;
        assert_eq!(first_difference(1_234_567, &bytes), Some(17));
    }

    #[test]
    fn answers() {
        let answer = Answer::parse("ok n=2 wc=7,0,128,64,0x1f,gi,17 wc=8,5,0,0,0x0,-,0").expect("an answer");
        assert_eq!(answer.number("n").expect("n"), 2);
        let list: Vec<Wc> = answer
            .all("wc")
            .map(|w| w.parse().expect("a completion"))
            .collect();
        assert_eq!((list[0].wr_id, list[0].imm, list[0].src_qp), (7, 0x1f, 17));
        assert!(list[0].has_grh && list[0].has_imm && !list[0].has_key);
        assert_eq!(list[1].status, status::WR_FLUSH_ERR);
        assert!(Answer::parse("error ibv_reg_mr 12").is_err());
        assert!(Answer::parse("okay").is_err());
        assert!(answer.number("none").is_err());
    }
}
