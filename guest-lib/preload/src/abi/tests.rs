//! Layouts and numbers, laid beside the header.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Layout, attributes, cma, context, device, flow, mlx5dv, objects, work};

/// Where the headers are.
const HEADER: &str = "/usr/include/infiniband/verbs.h";
const CMA_HEADER: &str = "/usr/include/rdma/rdma_cma.h";

/// Names that the header has not: parts of structures that are without a name there, and words of Rust.
const TYPES: &[(&str, &str)] = &[
    ("ibv_gid", "union ibv_gid"),
    ("ibv_gid_global", "__typeof__(((union ibv_gid *)0)->global)"),
    (
        "ibv_odp_transport_caps",
        "__typeof__(((struct ibv_odp_caps *)0)->per_transport_caps)",
    ),
    ("ibv_wr_datum", "__typeof__(((struct ibv_send_wr *)0)->imm_data)"),
    ("ibv_wr_target", "__typeof__(((struct ibv_send_wr *)0)->wr)"),
    ("ibv_wr_rdma", "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)"),
    (
        "ibv_wr_atomic",
        "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)",
    ),
    ("ibv_wr_ud", "__typeof__(((struct ibv_send_wr *)0)->wr.ud)"),
    ("ibv_wr_type", "__typeof__(((struct ibv_send_wr *)0)->qp_type)"),
    ("ibv_wr_xrc", "__typeof__(((struct ibv_send_wr *)0)->qp_type.xrc)"),
    ("ibv_wr_extra", "__typeof__(((struct ibv_send_wr *)0)->bind_mw)"),
    ("ibv_wr_bind_mw", "__typeof__(((struct ibv_send_wr *)0)->bind_mw)"),
    ("ibv_wr_tso", "__typeof__(((struct ibv_send_wr *)0)->tso)"),
    ("ibv_wc_datum", "__typeof__(((struct ibv_wc *)0)->imm_data)"),
    (
        "rdma_cm_event_param",
        "__typeof__(((struct rdma_cm_event *)0)->param)",
    ),
    (
        "ibv_async_element",
        "__typeof__(((struct ibv_async_event *)0)->element)",
    ),
];

/// Fields, likewise; empty: a part without a name has none, and its bytes are compared with the whole.
const FIELDS: &[(&str, &str, &str)] = &[
    ("ibv_send_wr", "datum", "imm_data"),
    ("ibv_send_wr", "extra", "bind_mw"),
    ("ibv_wc", "datum", "imm_data"),
    ("ibv_wr_datum", "imm_data", ""),
    ("ibv_wr_datum", "invalidate_rkey", ""),
    ("ibv_wc_datum", "imm_data", ""),
    ("ibv_wc_datum", "invalidated_rkey", ""),
    ("ibv_wr_extra", "bind_mw", ""),
    ("ibv_wr_extra", "tso", ""),
    ("ibv_mw", "type_", "type"),
    ("ibv_flow_attr", "type_", "type"),
    ("ibv_flow_spec_action_drop", "type_", "type"),
    ("ibv_flow_spec_eth", "type_", "type"),
    ("ibv_flow_spec_ipv4", "type_", "type"),
    ("ibv_flow_spec_ipv4_ext", "type_", "type"),
    ("ibv_flow_spec_ipv6", "type_", "type"),
    ("ibv_flow_spec_tcp_udp", "type_", "type"),
    ("ibv_flow_spec_tunnel", "type_", "type"),
    ("verbs_context", "priv_", "priv"),
    ("verbs_context", "abi_placeholder1", "ABI_placeholder1"),
    ("verbs_context", "abi_placeholder2", "ABI_placeholder2"),
    ("verbs_context", "_abi_placeholder3", "_ABI_placeholder3"),
];

/// What later versions of the header make longer, at its end.
const GROWING: &[&str] = &[
    "ibv_port_attr",
    "ibv_device_attr_ex",
    "ibv_cq_ex",
    "ibv_qp_ex",
    "ibv_qp_init_attr_ex",
    "ibv_srq_init_attr_ex",
    "ibv_cq_init_attr_ex",
    "ibv_parent_domain_init_attr",
    "ibv_alloc_dm_attr",
    "ibv_td_init_attr",
    "mlx5dv_qp_ex",
    "mlx5dv_context",
];

fn all() -> impl Iterator<Item = &'static Layout> {
    [
        attributes::LAYOUTS,
        cma_there(cma::LAYOUTS),
        context::LAYOUTS,
        device::LAYOUTS,
        flow::LAYOUTS,
        mlx5dv::LAYOUTS,
        objects::LAYOUTS,
        work::LAYOUTS,
    ]
    .into_iter()
    .flatten()
}

/// What is compared with the second header, if that is there.
fn cma_there<T>(what: &'static [T]) -> &'static [T] {
    if Path::new(CMA_HEADER).exists() {
        return what;
    }
    println!("SKIP layouts and numbers of connections: no {CMA_HEADER} (apt install librdmacm-dev)");
    &[]
}

/// What the header calls a structure.
fn c_type(name: &str) -> String {
    let known = TYPES.iter().find(|(n, _)| *n == name);
    known.map_or_else(|| format!("struct {name}"), |(_, c)| (*c).to_owned())
}

/// What the header calls a field.
fn c_field<'a>(of: &str, name: &'a str) -> &'a str {
    let known = FIELDS.iter().find(|(s, f, _)| *s == of && *f == name);
    known.map_or(name, |(.., c)| c)
}

/// Numbers of `numbers.rs`, `mlx5dv.rs` and `cma.rs`.
fn numbers() -> Vec<(&'static str, u64)> {
    let texts: &'static [&str] = &[include_str!("cma.rs")];
    [include_str!("numbers.rs"), include_str!("mlx5dv.rs")]
        .iter()
        .chain(cma_there(texts))
        .flat_map(|text| text.lines())
        .filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'))
        .map(|line| {
            let (name, value) = line.split_once(": c_uint = ").expect("a number");
            let value = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            (name, value.expect("a number"))
        })
        .collect()
}

/// A program that prints a line `KEY VALUE` for each of these expressions.
fn program(expressions: &[(String, String)]) -> String {
    let mut text = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n\
         #include <infiniband/mlx5dv.h>\n\
         #if __has_include(<rdma/rdma_cma.h>)\n#include <rdma/rdma_cma.h>\n#endif\nint main(void) {\n",
    );
    for (key, expression) in expressions {
        writeln!(
            text,
            "    printf(\"{key} %llu\\n\", (unsigned long long)({expression}));"
        )
        .expect("a text");
    }
    text + "    return 0;\n}\n"
}

/// What the compiler says of these expressions.
fn compiled(expressions: &[(String, String)]) -> BTreeMap<String, u64> {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program(expressions)).expect("a file");
    let cc = Command::new("cc")
        .arg("-o")
        .args([&binary, &source])
        .output()
        .expect("a C compiler (apt install gcc libc6-dev)");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let ran = Command::new(&binary).output().expect("it runs");
    String::from_utf8_lossy(&ran.stdout)
        .lines()
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').expect("a key and a value");
            (key.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Without the header there is nothing to compare with; that is said, not hidden.
fn header_is_there(test: &str) -> bool {
    let there = Path::new(HEADER).exists();
    if !there {
        println!("SKIP {test}: no {HEADER} (apt install libibverbs-dev)");
    }
    there
}

#[test]
fn structures_are_laid_out_as_in_the_header() {
    if !header_is_there("abi::structures_are_laid_out_as_in_the_header") {
        return;
    }
    let mut expressions = Vec::new();
    let mut ours = Vec::new();
    for layout in all() {
        let (name, c) = (layout.name, c_type(layout.name));
        expressions.push((name.to_owned(), format!("sizeof({c})")));
        ours.push((name.to_owned(), layout.size as u64));
        for (field, offset, size) in layout.fields {
            let c_field = c_field(name, field);
            if c_field.is_empty() {
                continue;
            }
            // A context grows at its front: its fields are counted from its end.
            let (at, offset) = if name == "verbs_context" {
                (
                    format!("sizeof({c}) - offsetof({c}, {c_field})"),
                    layout.size - offset,
                )
            } else {
                (format!("offsetof({c}, {c_field})"), *offset)
            };
            expressions.push((format!("{name}.{field} at"), at));
            ours.push((format!("{name}.{field} at"), offset as u64));
            let may_be_longer = GROWING.contains(&name) || TYPES.iter().any(|(n, _)| n == field);
            if !may_be_longer {
                expressions.push((
                    format!("{name}.{field} bytes"),
                    format!("sizeof((({c} *)0)->{c_field})"),
                ));
                ours.push((format!("{name}.{field} bytes"), *size as u64));
            }
        }
    }
    let theirs = compiled(&expressions);
    let mut wrong = Vec::new();
    for (key, here) in &ours {
        let there = theirs[key];
        let may_grow = GROWING.contains(&key.as_str()) || key == "verbs_context";
        if there != *here && !(may_grow && there > *here) {
            wrong.push(format!("{key}: {here} here, {there} in the header"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(ours.len() > 500, "only {} were compared", ours.len());
}

#[test]
fn numbers_are_those_of_the_header() {
    if !header_is_there("abi::numbers_are_those_of_the_header") {
        return;
    }
    let ours = numbers();
    let expressions: Vec<_> = ours
        .iter()
        .map(|(name, _)| ((*name).to_owned(), (*name).to_owned()))
        .collect();
    let theirs = compiled(&expressions);
    let wrong: Vec<_> = ours
        .iter()
        .filter(|(name, here)| theirs[*name] != *here)
        .map(|(name, here)| format!("{name}: {here} here, {} in the header", theirs[*name]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(ours.len() > 200, "only {} were compared", ours.len());
}
