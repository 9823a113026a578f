//! The transport headers of a packet together: BTH, and the headers that its opcode asks for (IBTA vol 1
//! section 9.2.1, table of opcodes; annex A14 for XRC; annex A17 for the CNP; [`dceth`] for DC).

use crate::opcode::{Opcode, Operation, Transport};
use crate::psn::Psn;
use crate::{Error, aeth, atomicacketh, atomiceth, bth, cnp, dcceth, dceth, deth, ieth, immdt, reth, xrceth};

/// Most bytes that [`Headers`] take: BTH, XRCETH, AtomicETH.
pub const HEADERS_MAX: usize = bth::HEADER_LEN + xrceth::HEADER_LEN + atomiceth::HEADER_LEN;

/// Transport headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: bth::Header,
    /// XRC header, of requests of an extended reliable connection.
    pub xrceth: Option<xrceth::Header>,
    /// DC header, of requests of a dynamically connected transport.
    pub dceth: Option<dceth::Header>,
    /// Headers behind it.
    pub extended: Extended,
}

/// The extended transport headers behind the BTH (and the XRCETH or DCETH), in the order of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// No header.
    None,
    /// RETH.
    Reth(reth::Header),
    /// RETH and immediate data.
    RethImm(reth::Header, u32),
    /// AETH.
    Aeth(aeth::Header),
    /// AETH, and the original value of an atomic operation.
    AtomicAck(aeth::Header, u64),
    /// AtomicETH.
    Atomic(atomiceth::Header),
    /// Immediate data.
    Imm(u32),
    /// IETH: the key to invalidate.
    Ieth(u32),
    /// DETH.
    Deth(deth::Header),
    /// DETH and immediate data.
    DethImm(deth::Header, u32),
    /// The reserved bytes of a congestion notification packet.
    Cnp(cnp::Header),
    /// The connection that DC opens or closes.
    Connection(dcceth::Header),
}

/// The headers that an opcode asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Invalid,
    None,
    Reth,
    RethImm,
    Aeth,
    AtomicAck,
    Atomic,
    Imm,
    Ieth,
    Deth,
    DethImm,
    Cnp,
    Connection,
}

/// The header right behind the BTH of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    None,
    Xrceth,
    Dceth,
}

/// The layout of every opcode, and what stands before it.
static LAYOUTS: [(Layout, Lead); 256] = {
    let mut table = [(Layout::Invalid, Lead::None); 256];
    let mut i = 0;
    while i < 256 {
        table[i] = layout(Opcode(i as u8));
        i += 1;
    }
    table
};

const fn layout(opcode: Opcode) -> (Layout, Lead) {
    let transport = opcode.transport();
    if matches!(transport, Transport::Cnp) {
        return (Layout::Cnp, Lead::None);
    }
    let Some(operation) = opcode.operation() else {
        return (Layout::Invalid, Lead::None);
    };
    if matches!(transport, Transport::Ud) {
        return (
            if operation.has_imm() {
                Layout::DethImm
            } else {
                Layout::Deth
            },
            Lead::None,
        );
    }
    let layout = match (operation.has_reth(), operation.has_imm()) {
        (true, true) => Layout::RethImm,
        (true, false) => Layout::Reth,
        (false, true) => Layout::Imm,
        (false, false) if operation.has_ieth() => Layout::Ieth,
        (false, false) if operation.has_atomiceth() => Layout::Atomic,
        (false, false) if operation.has_atomicacketh() => Layout::AtomicAck,
        (false, false) if operation.has_aeth() => Layout::Aeth,
        (false, false) if operation.has_dcceth() => Layout::Connection,
        (false, false) => Layout::None,
    };
    let lead = match transport {
        Transport::Xrc if operation.is_request() => Lead::Xrceth,
        Transport::Dc if operation.is_request() => Lead::Dceth,
        _ => Lead::None,
    };
    (layout, lead)
}

/// The layout of a packet: what its opcode asks for, but that each packet of a WRITE has an RETH whose packets take several ways
/// ([`bth::Header::spread`]). The last one with immediate data has none: it is carried out in its turn.
#[inline]
fn layout_of(bth: &bth::Header) -> (Layout, Lead) {
    let (of_opcode, lead) = LAYOUTS[usize::from(bth.opcode.0)];
    let reliable = matches!(
        bth.opcode.transport(),
        Transport::Rc | Transport::Xrc | Transport::Dc
    );
    let addressed = bth.spread && of_opcode == Layout::None && reliable;
    match addressed && bth.opcode.operation().is_some_and(Operation::is_write) {
        true => (Layout::Reth, lead),
        false => (of_opcode, lead),
    }
}

impl Extended {
    #[inline]
    const fn layout(&self) -> Layout {
        match self {
            Extended::None => Layout::None,
            Extended::Reth(_) => Layout::Reth,
            Extended::RethImm(..) => Layout::RethImm,
            Extended::Aeth(_) => Layout::Aeth,
            Extended::AtomicAck(..) => Layout::AtomicAck,
            Extended::Atomic(_) => Layout::Atomic,
            Extended::Imm(_) => Layout::Imm,
            Extended::Ieth(_) => Layout::Ieth,
            Extended::Deth(_) => Layout::Deth,
            Extended::DethImm(..) => Layout::DethImm,
            Extended::Cnp(_) => Layout::Cnp,
            Extended::Connection(_) => Layout::Connection,
        }
    }

    /// Length of these headers in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Extended::None => 0,
            Extended::Reth(_) => reth::HEADER_LEN,
            Extended::RethImm(..) => reth::HEADER_LEN + immdt::HEADER_LEN,
            Extended::Aeth(_) => aeth::HEADER_LEN,
            Extended::AtomicAck(..) => aeth::HEADER_LEN + atomicacketh::HEADER_LEN,
            Extended::Atomic(_) => atomiceth::HEADER_LEN,
            Extended::Imm(_) => immdt::HEADER_LEN,
            Extended::Ieth(_) => ieth::HEADER_LEN,
            Extended::Deth(_) => deth::HEADER_LEN,
            Extended::DethImm(..) => deth::HEADER_LEN + immdt::HEADER_LEN,
            Extended::Cnp(_) => cnp::HEADER_LEN,
            Extended::Connection(_) => dcceth::HEADER_LEN,
        }
    }

    /// Whether there is no extended header.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Extended::None)
    }

    #[inline]
    fn parse(layout: Layout, b: &[u8]) -> Result<Extended, Error> {
        Ok(match layout {
            Layout::Invalid => return Err(Error::Kind),
            Layout::None => Extended::None,
            Layout::Reth => Extended::Reth(reth::Header::parse(b)?),
            Layout::RethImm => Extended::RethImm(reth::Header::parse(b)?, imm(behind(b, reth::HEADER_LEN))?),
            Layout::Aeth => Extended::Aeth(aeth::Header::parse(b)?),
            Layout::AtomicAck => Extended::AtomicAck(
                aeth::Header::parse(b)?,
                atomicacketh::Header::parse(behind(b, aeth::HEADER_LEN))?.original,
            ),
            Layout::Atomic => Extended::Atomic(atomiceth::Header::parse(b)?),
            Layout::Imm => Extended::Imm(imm(b)?),
            Layout::Ieth => Extended::Ieth(ieth::Header::parse(b)?.rkey),
            Layout::Deth => Extended::Deth(deth::Header::parse(b)?),
            Layout::DethImm => Extended::DethImm(deth::Header::parse(b)?, imm(behind(b, deth::HEADER_LEN))?),
            Layout::Cnp => Extended::Cnp(cnp::Header::parse(b)?),
            Layout::Connection => Extended::Connection(dcceth::Header::parse(b)?),
        })
    }

    /// Writes the headers. `out` is as long as they are.
    #[inline]
    fn emit(&self, out: &mut [u8]) -> Option<()> {
        match self {
            Extended::None => {}
            Extended::Reth(h) => put(out, 0, h.emit())?,
            Extended::RethImm(h, data) => {
                put(out, 0, h.emit())?;
                put(out, reth::HEADER_LEN, immdt::Header { data: *data }.emit())?;
            }
            Extended::Aeth(h) => put(out, 0, h.emit())?,
            Extended::AtomicAck(h, original) => {
                let ack = atomicacketh::Header { original: *original };
                put(out, 0, h.emit())?;
                put(out, aeth::HEADER_LEN, ack.emit())?;
            }
            Extended::Atomic(h) => put(out, 0, h.emit())?,
            Extended::Imm(data) => put(out, 0, immdt::Header { data: *data }.emit())?,
            Extended::Ieth(rkey) => put(out, 0, ieth::Header { rkey: *rkey }.emit())?,
            Extended::Deth(h) => put(out, 0, h.emit())?,
            Extended::DethImm(h, data) => {
                put(out, 0, h.emit())?;
                put(out, deth::HEADER_LEN, immdt::Header { data: *data }.emit())?;
            }
            Extended::Cnp(cnp) => put(out, 0, cnp.emit())?,
            Extended::Connection(h) => put(out, 0, h.emit())?,
        }
        Some(())
    }
}

#[inline]
fn behind(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or(&[])
}

#[inline]
fn imm(bytes: &[u8]) -> Result<u32, Error> {
    Ok(immdt::Header::parse(bytes)?.data)
}

/// Writes a header at `at`; `None` if there is no room.
#[inline]
pub(crate) fn put<const N: usize>(out: &mut [u8], at: usize, header: [u8; N]) -> Option<()> {
    *out.get_mut(at..)?.first_chunk_mut::<N>()? = header;
    Some(())
}

impl Headers {
    /// A congestion notification packet to a queue pair (annex A17.9): BECN set, MigReq not, PSN 0.
    #[inline]
    pub const fn cnp(destination_qp: u32) -> Headers {
        let mut bth = bth::Header::new(Opcode::CNP, destination_qp, Psn::new(0));
        bth.becn = true;
        bth.migrated = false;
        Headers {
            bth,
            xrceth: None,
            dceth: None,
            extended: Extended::Cnp(cnp::Header { period: 0 }),
        }
    }

    /// Reads the headers from the front of a transport packet, and returns their length, too. `Kind` for an
    /// opcode that is reserved, of a manufacturer or of reliable datagrams.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Headers, usize), Error> {
        let bth = bth::Header::parse(bytes)?;
        let (layout, lead) = layout_of(&bth);
        let mut at = bth::HEADER_LEN;
        let (mut xrceth, mut dceth) = (None, None);
        match lead {
            Lead::None => {}
            Lead::Xrceth => {
                xrceth = Some(xrceth::Header::parse(behind(bytes, at))?);
                at += xrceth::HEADER_LEN;
            }
            Lead::Dceth => {
                dceth = Some(dceth::Header::parse(behind(bytes, at))?);
                at += dceth::HEADER_LEN;
            }
        }
        let extended = Extended::parse(layout, behind(bytes, at))?;
        let headers = Headers {
            bth,
            xrceth,
            dceth,
            extended,
        };
        Ok((headers, at + extended.len()))
    }

    /// Bytes of the headers.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is always a BTH")]
    pub const fn len(&self) -> usize {
        let lead = match (&self.xrceth, &self.dceth) {
            (None, None) => 0,
            (Some(_), None) => xrceth::HEADER_LEN,
            (None, Some(_)) => dceth::HEADER_LEN,
            (Some(_), Some(_)) => xrceth::HEADER_LEN + dceth::HEADER_LEN,
        };
        bth::HEADER_LEN + lead + self.extended.len()
    }

    /// The operation, if there is one (a CNP has none).
    #[inline]
    pub const fn operation(&self) -> Option<Operation> {
        self.bth.opcode.operation()
    }

    /// Whether the headers are those that the opcode asks for.
    #[inline]
    pub fn is_consistent(&self) -> bool {
        let (layout, lead) = layout_of(&self.bth);
        layout == self.extended.layout()
            && self.xrceth.is_some() == (lead == Lead::Xrceth)
            && self.dceth.is_some() == (lead == Lead::Dceth)
    }

    /// Writes the headers to the front of `out` and returns their length. `Truncated` if `out` is too short,
    /// `Kind` if the headers are not those that the opcode asks for.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        if !self.is_consistent() {
            return Err(Error::Kind);
        }
        put(out, 0, self.bth.emit()).ok_or(Error::Truncated)?;
        let mut at = bth::HEADER_LEN;
        if let Some(header) = self.xrceth {
            put(out, at, header.emit()).ok_or(Error::Truncated)?;
            at += xrceth::HEADER_LEN;
        }
        if let Some(header) = self.dceth {
            put(out, at, header.emit()).ok_or(Error::Truncated)?;
            at += dceth::HEADER_LEN;
        }
        let rest = out.get_mut(at..).ok_or(Error::Truncated)?;
        self.extended.emit(rest).ok_or(Error::Truncated)?;
        Ok(at + self.extended.len())
    }
}
