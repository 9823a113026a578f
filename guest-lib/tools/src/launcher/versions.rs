//! The library with the versions of the real one.
//!
//! Our library has no versions, and serves programs that were linked with any. But NCCL asks the loader for
//! `ibv_open_device` of version `IBVERBS_1.1` (`dlvsym`), and the loader warns of programs that were linked with
//! versions and get a library without. So the copy in the real one's place gets them: names of versions
//! (`DT_VERDEF`), and for each function its own.
//!
//! ```text
//!  head │ segments … │ rest │ ◀─ as it was; in the table of segments a new one instead of the note
//!       └─ versym: an index per symbol, changed in its place
//!  new segment: dynamic section, versions, names (the old ones and those of the versions)
//! ```

use std::collections::BTreeSet;

/// The loader's name of the library.
const SONAME: &str = "libibverbs.so.1";
const PAGE: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
/// Flags of a segment: readable and writable.
const PF_RW: u32 = 6;
const PHDR_LEN: usize = 56;
const SHDR_LEN: usize = 64;
const SHT_DYNSYM: u32 = 11;
const SYM_LEN: usize = 24;

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

/// Versions of rdma-core 44 to 65, for programs and for its own libraries.
const VERSIONS: &[&str] = &[
    "IBVERBS_1.0",
    "IBVERBS_1.1",
    "IBVERBS_1.5",
    "IBVERBS_1.6",
    "IBVERBS_1.7",
    "IBVERBS_1.8",
    "IBVERBS_1.9",
    "IBVERBS_1.10",
    "IBVERBS_1.11",
    "IBVERBS_1.12",
    "IBVERBS_1.13",
    "IBVERBS_1.14",
    "IBVERBS_1.15",
    "IBVERBS_1.16",
    "IBVERBS_1.17",
    "IBVERBS_1.18",
    "IBVERBS_PRIVATE_34",
    "IBVERBS_PRIVATE_57",
    "IBVERBS_PRIVATE_59",
    "IBVERBS_PRIVATE_64",
    "IBVERBS_PRIVATE_65",
    "RDMACM_1.0",
    "RDMACM_1.1",
    "RDMACM_1.2",
    "RDMACM_1.3",
    "RDMACM_1.4",
];

/// Functions of each version except IBVERBS_1.1 and RDMACM_1.0, which have the rest.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "IBVERBS_1.0",
        "ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern ibv_create_comp_channel \
         ibv_destroy_comp_channel ibv_get_sysfs_path ibv_rate_to_mult ibv_read_sysfs_file mult_to_ibv_rate",
    ),
    ("IBVERBS_1.5", "ibv_get_pkey_index"),
    ("IBVERBS_1.6", "ibv_qp_to_qp_ex"),
    ("IBVERBS_1.7", "ibv_reg_mr_iova"),
    ("IBVERBS_1.8", "ibv_reg_mr_iova2"),
    ("IBVERBS_1.9", "ibv_get_device_index"),
    (
        "IBVERBS_1.10",
        "ibv_import_device ibv_import_mr ibv_import_pd ibv_query_ece ibv_set_ece ibv_unimport_mr ibv_unimport_pd",
    ),
    ("IBVERBS_1.11", "_ibv_query_gid_ex _ibv_query_gid_table"),
    ("IBVERBS_1.12", "ibv_reg_dmabuf_mr"),
    (
        "IBVERBS_1.13",
        "ibv_import_dm ibv_is_fork_initialized ibv_unimport_dm",
    ),
    ("IBVERBS_1.14", "ibv_query_qp_data_in_order"),
    ("IBVERBS_1.15", "ibv_alloc_dmah ibv_dealloc_dmah ibv_reg_mr_ex"),
    ("IBVERBS_1.16", "ibv_dm_export_dmabuf_fd ibv_query_port_speed"),
    ("IBVERBS_1.17", "ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr"),
    (
        "IBVERBS_1.18",
        "_ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr ibv_export_buf_dmabuf_fd ibv_inc_comp_cntr \
         ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr ibv_set_comp_cntr \
         ibv_set_err_comp_cntr",
    ),
    ("RDMACM_1.1", "rdma_join_multicast_ex"),
    ("RDMACM_1.2", "rdma_establish rdma_init_qp_attr"),
    (
        "RDMACM_1.3",
        "rdma_get_remote_ece rdma_reject_ece rdma_set_local_ece",
    ),
    (
        "RDMACM_1.4",
        "rdma_query_addrinfo rdma_resolve_addrinfo rdma_write_cm_event",
    ),
    (
        "RDMACM_1.0",
        "raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riomap riounmap riowrite rlisten rpoll rread \
         rreadv rrecv rrecvfrom rrecvmsg rselect rsend rsendmsg rsendto rsetsockopt rshutdown rsocket rwrite rwritev",
    ),
];

/// The version of a function, if it is one for programs. Other functions have none, and serve any.
fn version_of(name: &str) -> Option<&'static str> {
    let inside = ["ibv_cmd_", "ibv_dmabuf_heap_"]
        .iter()
        .any(|p| name.starts_with(p))
        || [
            "ibv_query_gid_type",
            "ibv_read_ibdev_sysfs_file",
            "ibv_wr_opcode_str",
        ]
        .contains(&name);
    if inside {
        return None;
    }
    let listed = FUNCTIONS
        .iter()
        .find(|(_, names)| names.split(' ').any(|n| n == name));
    match listed {
        Some((version, _)) => Some(version),
        None if name.starts_with("ibv_") || name == "mbps_to_ibv_rate" => Some("IBVERBS_1.1"),
        None if name.starts_with("rdma_") => Some("RDMACM_1.0"),
        None => None,
    }
}

/// An ELF file, as far as this code must understand it: 64 bits, little endian.
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn word(&self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?)).ok()
    }

    /// Offsets of the entries of the program header table.
    fn segments(&self) -> Option<Vec<usize>> {
        let (table, len, count) = (self.word(32)?, self.u16(54)?, self.u16(56)?);
        (usize::from(len) == PHDR_LEN && self.0.get(..5)? == b"\x7fELF\x02")
            .then(|| (0..usize::from(count)).map(|i| table + i * PHDR_LEN).collect())
    }

    /// Offset in the file of an address.
    fn at(&self, address: usize) -> Option<usize> {
        self.segments()?.into_iter().find_map(|s| {
            let (offset, start, len) = (self.word(s + 8)?, self.word(s + 16)?, self.word(s + 32)?);
            let within = address.checked_sub(start)?;
            (self.u32(s)? == PT_LOAD && within < len).then(|| offset + within)
        })
    }

    /// The dynamic section, without its end.
    fn dynamic(&self) -> Option<Vec<(u64, usize)>> {
        let segments = self.segments()?;
        let segment = segments.into_iter().find(|s| self.u32(*s) == Some(PT_DYNAMIC))?;
        let (start, len) = (self.word(segment + 8)?, self.word(segment + 32)?);
        let mut entries = Vec::new();
        for at in (start..start.checked_add(len)?).step_by(16) {
            let (tag, value) = (self.word(at)? as u64, self.word(at + 8)?);
            if tag == DT_NULL {
                break;
            }
            entries.push((tag, value));
        }
        Some(entries)
    }

    fn text(&self, at: usize) -> Option<&str> {
        let bytes = self.0.get(at..)?.split(|b| *b == 0).next()?;
        std::str::from_utf8(bytes).ok()
    }

    /// Number of symbols that the loader sees.
    fn symbol_count(&self) -> Option<usize> {
        let (table, count) = (self.word(40)?, self.u16(60)?);
        let found = (0..usize::from(count))
            .map(|i| table + i * SHDR_LEN)
            .find(|s| self.u32(s + 4) == Some(SHT_DYNSYM))?;
        Some(self.word(found + 32)? / SYM_LEN)
    }
}

fn value(dynamic: &[(u64, usize)], tag: u64) -> Option<usize> {
    dynamic.iter().find(|(t, _)| *t == tag).map(|(_, v)| *v)
}

/// Names of the versions of a library.
pub fn names(file: &[u8]) -> Option<Vec<String>> {
    let file = File(file);
    let dynamic = file.dynamic()?;
    let texts = file.at(value(&dynamic, DT_STRTAB)?)?;
    let mut at = file.at(value(&dynamic, DT_VERDEF)?)?;
    let mut found = Vec::new();
    for _ in 0..value(&dynamic, DT_VERDEFNUM)? {
        let name = file.u32(at + file.u32(at + 12)? as usize)?;
        found.push(file.text(texts + name as usize)?.to_owned());
        at += file.u32(at + 16)? as usize;
    }
    Some(found)
}

/// The highest index of versions of other libraries.
fn last_index(file: &File<'_>, dynamic: &[(u64, usize)]) -> Option<u16> {
    let mut last = 1;
    let Some(start) = value(dynamic, DT_VERNEED) else {
        return Some(last);
    };
    let mut library = file.at(start)?;
    for _ in 0..value(dynamic, DT_VERNEEDNUM)? {
        let mut version = library + file.u32(library + 8)? as usize;
        for _ in 0..file.u16(library + 2)? {
            last = last.max(file.u16(version + 6)? & 0x7fff);
            version += file.u32(version + 12)? as usize;
        }
        library += file.u32(library + 12)? as usize;
    }
    Some(last)
}

/// The hash of a name, by the System V ABI.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |h: u32, b| {
        let h = (h << 4).wrapping_add(b.into());
        let high = h & 0xf000_0000;
        (h ^ (high >> 24)) & !high
    })
}

/// The library with versions: those of the table, and `more`. `None` if its layout is not that of our build; without
/// versions it serves most programs, too.
pub fn with_versions(original: &[u8], more: &[String]) -> Option<Vec<u8>> {
    let file = File(original);
    let dynamic = file.dynamic()?;
    if value(&dynamic, DT_VERDEF).is_some() {
        return Some(original.to_owned());
    }
    let texts_at = file.at(value(&dynamic, DT_STRTAB)?)?;
    let mut texts = original
        .get(texts_at..texts_at + value(&dynamic, DT_STRSZ)?)?
        .to_owned();
    let known: BTreeSet<&str> = VERSIONS.iter().copied().collect();
    let mut versions: Vec<&str> = VERSIONS.to_owned();
    versions.extend(
        more.iter().map(String::as_str).filter(|name| {
            ["IBVERBS_", "RDMACM_"].iter().any(|p| name.starts_with(p)) && !known.contains(name)
        }),
    );
    let first = last_index(&file, &dynamic)? + 1;

    // Versions, the first of which is the library itself.
    let mut definitions = Vec::new();
    let all = std::iter::once(SONAME).chain(versions.iter().copied());
    for (i, name) in all.enumerate() {
        let (flags, index) = if i == 0 { (1, 1) } else { (0, first + i as u16 - 1) };
        let next = if i == versions.len() { 0 } else { 28 };
        for number in [1, flags, index, 1] {
            definitions.extend(u16::to_le_bytes(number));
        }
        for number in [hash(name), 20, next, texts.len() as u32, 0] {
            definitions.extend(number.to_le_bytes());
        }
        texts.extend(name.bytes());
        texts.push(0);
    }

    // Each of our symbols gets its version.
    let mut new = original.to_owned();
    let (symbols, indices) = (
        file.at(value(&dynamic, DT_SYMTAB)?)?,
        file.at(value(&dynamic, DT_VERSYM)?)?,
    );
    for i in 0..file.symbol_count()? {
        let symbol = symbols + i * SYM_LEN;
        let defined = file.u16(symbol + 6)? != 0;
        let name = file.text(texts_at + file.u32(symbol)? as usize)?;
        let place = version_of(name).and_then(|version| versions.iter().position(|v| *v == version));
        if let Some(place) = place.filter(|_| defined) {
            let index = first + place as u16;
            new.get_mut(indices + 2 * i..)?
                .first_chunk_mut()
                .map(|b: &mut [u8; 2]| *b = index.to_le_bytes())?;
        }
    }

    // A segment behind all others holds the tables that have no room where they were.
    let segments = file.segments()?;
    let loads = segments.iter().filter(|s| file.u32(**s) == Some(PT_LOAD));
    let mut end = 0;
    for segment in loads {
        end = end.max(file.word(segment + 16)?.checked_add(file.word(segment + 40)?)?);
    }
    let (offset, address) = (original.len().next_multiple_of(PAGE), end.next_multiple_of(PAGE));
    let dynamic_len = (dynamic.len() + 3) * 16;
    let (definitions_at, names_at) = (address + dynamic_len, address + dynamic_len + definitions.len());
    let mut segment = Vec::new();
    let changed = dynamic.iter().map(|(tag, value)| match *tag {
        DT_STRTAB => (DT_STRTAB, names_at),
        DT_STRSZ => (DT_STRSZ, texts.len()),
        tag => (tag, *value),
    });
    let added = [
        (DT_VERDEF, definitions_at),
        (DT_VERDEFNUM, versions.len() + 1),
        (DT_NULL, 0),
    ];
    for (tag, value) in changed.chain(added) {
        segment.extend(tag.to_le_bytes());
        segment.extend((value as u64).to_le_bytes());
    }
    segment.extend(definitions);
    segment.extend(texts);
    new.resize(offset, 0);
    new.extend(&segment);

    // The program header table: the new segment behind the others that are loaded, in place of the note.
    let mut table: Vec<[u8; PHDR_LEN]> = Vec::new();
    for place in &segments {
        table.push(*original.get(*place..)?.first_chunk()?);
    }
    let kind = |entry: &[u8; PHDR_LEN]| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
    table.remove(table.iter().position(|e| kind(e) == PT_NOTE)?);
    let entry = |kind: u32, len: usize, align: usize| {
        let mut entry = [0; PHDR_LEN];
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&PF_RW.to_le_bytes());
        for (i, word) in [offset, address, address, len, len, align]
            .into_iter()
            .enumerate()
        {
            entry[8 + 8 * i..][..8].copy_from_slice(&(word as u64).to_le_bytes());
        }
        entry
    };
    let dynamic_entry = table.iter().position(|e| kind(e) == PT_DYNAMIC)?;
    table[dynamic_entry] = entry(PT_DYNAMIC, dynamic_len, 8);
    let last_load = table.iter().rposition(|e| kind(e) == PT_LOAD)?;
    table.insert(last_load + 1, entry(PT_LOAD, segment.len(), PAGE));
    for (place, entry) in segments.iter().zip(&table) {
        new.get_mut(*place..*place + PHDR_LEN)?.copy_from_slice(entry);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const LIBRARY: &str = r#"
        #include <stdio.h>
        int ibv_open_device(int i) { return printf("%d", i) + i; }
        int ibv_reg_mr_iova2(void) { return 8; }
        int ibv_cmd_create_qp(void) { return 34; }
        int (*table[])(void) = { ibv_reg_mr_iova2, ibv_cmd_create_qp };
    "#;

    const PROGRAM: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv)
        {
            void *l = dlopen(argv[1], RTLD_NOW);
            if (!l) { puts(dlerror()); return 1; }
            int (*open)(int) = dlvsym(l, "ibv_open_device", "IBVERBS_1.1");
            printf(" %d\n", open ? open(7) : -1);
            printf("%d\n", !!dlvsym(l, "ibv_open_device", "IBVERBS_1.8"));
            printf("%d\n", !!dlvsym(l, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
            int (**table)(void) = dlsym(l, "table");
            printf("%d %d\n", table[0](), table[1]());
            return 0;
        }
    "#;

    fn cc(dir: &Path, name: &str, source: &str, options: &[&str]) -> std::path::PathBuf {
        let (from, to) = (dir.join(format!("{name}.c")), dir.join(name));
        std::fs::write(&from, source).expect("a file");
        let made = Command::new("cc")
            .arg("-o")
            .args([&to, &from])
            .args(options)
            .output()
            .expect("a C compiler (apt install gcc libc6-dev)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        to
    }

    #[test]
    fn the_loader_finds_functions_by_their_versions() {
        let dir = tempfile::tempdir().expect("a directory");
        let library = cc(
            dir.path(),
            "plain.so",
            LIBRARY,
            &["-shared", "-fPIC", "-Wl,--build-id"],
        );
        let program = cc(dir.path(), "program", PROGRAM, &["-ldl"]);
        let run = |library: &Path| {
            let ran = Command::new(&program).arg(library).output().expect("it runs");
            String::from_utf8_lossy(&ran.stdout).into_owned()
        };
        let plain = std::fs::read(&library).expect("a file");
        let new = with_versions(&plain, &["IBVERBS_1.99".into(), "OTHER_1".into()]).expect("versions");
        let versioned = dir.path().join(SONAME);
        std::fs::write(&versioned, &new).expect("a file");
        assert_eq!(run(&library), " -1\n0\n0\n8 34\n", "without versions");
        assert_eq!(run(&versioned), "7 8\n0\n1\n8 34\n");
        let found = names(&new).expect("names");
        assert_eq!((found[0].as_str(), found.len()), (SONAME, VERSIONS.len() + 2));
        assert_eq!(found.last().map(String::as_str), Some("IBVERBS_1.99"));
        assert_eq!(with_versions(&new, &[]), Some(new), "once is enough");
    }

    #[test]
    fn files_of_other_kinds_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let bare = cc(
            dir.path(),
            "bare.so",
            LIBRARY,
            &["-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,-z,nognustack"],
        );
        let bytes = std::fs::read(bare).expect("a file");
        for len in (0..bytes.len()).step_by(97) {
            let _whatever_but_no_panic = with_versions(&bytes[..len], &[]);
        }
        assert_eq!(with_versions(b"#!/bin/sh", &[]), None);
        assert_eq!(names(&bytes), None);
    }

    #[test]
    fn functions_have_the_versions_of_the_real_library() {
        assert_eq!(version_of("ibv_open_device"), Some("IBVERBS_1.1"));
        assert_eq!(version_of("mbps_to_ibv_rate"), Some("IBVERBS_1.1"));
        assert_eq!(version_of("mult_to_ibv_rate"), Some("IBVERBS_1.0"));
        assert_eq!(version_of("_ibv_query_gid_ex"), Some("IBVERBS_1.11"));
        assert_eq!(version_of("ibv_cmd_alloc_pd"), None);
        assert_eq!(version_of("verbs_set_ops"), None);
        for (version, _) in FUNCTIONS {
            assert!(VERSIONS.contains(version), "{version}");
        }
    }
}
