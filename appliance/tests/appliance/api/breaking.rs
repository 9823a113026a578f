//! Which changes of the API break a client that is in use.

use super::items::Item;

/// What is between two lists of the API.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What breaks a client, and what to do instead.
    pub breaking: Vec<String>,
    /// What is new. No client depends on it.
    pub added: Vec<String>,
}

fn items(list: &str) -> Vec<Item> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| Item::parse(line).unwrap_or_else(|| panic!("no line of the list: {line}")))
        .collect()
}

fn same(a: &Item, b: &Item) -> bool {
    (a.kind, &a.owner, &a.name) == (b.kind, &b.owner, &b.name)
        && (a.kind != "reserved" || a.number == b.number)
}

/// Compares a list with the one that clients were built with.
pub fn changes(known: &str, now: &str) -> Changes {
    let (known, now) = (items(known), items(now));
    let mut changes = Changes::default();
    for old in &known {
        // What belongs to something that is gone is gone with it.
        let owned = !old.name.is_empty() || old.kind == "reserved";
        let orphan = owned && !now.iter().any(|item| item.owner == old.owner);
        if orphan {
            continue;
        }
        match now.iter().find(|new| same(old, new)) {
            None => changes.breaking.push(gone(old, &known, &now)),
            Some(new) if new.number != old.number => changes.breaking.push(format!(
                "`{old}` has another number, {}: give it its own back, and what is new the next free one",
                number(new)
            )),
            Some(new) if new.shape != old.shape => changes.breaking.push(reshaped(old, new)),
            Some(_) => {}
        }
    }
    let added = now.iter().filter(|new| !known.iter().any(|old| same(old, new)));
    changes.added = added.map(ToString::to_string).collect();
    changes
}

fn number(item: &Item) -> String {
    item.number.map_or_else(|| "none".to_owned(), |n| n.to_string())
}

fn gone(old: &Item, known: &[Item], now: &[Item]) -> String {
    let new = |item: &&Item| !known.iter().any(|other| same(other, item));
    let heir = now
        .iter()
        .filter(new)
        .find(|item| item.kind == old.kind && item.owner == old.owner && item.number == old.number);
    match (old.kind, heir) {
        ("reserved", _) => format!("`{old}` is not reserved any more: old clients still send and read it"),
        ("field" | "value", Some(heir)) => format!(
            "`{old}` has another name, {}: JSON and programs use the name; keep it",
            heir.name
        ),
        ("field" | "value", None) => format!(
            "`{old}` is gone: keep it, marked `deprecated` and still answered; if it must go, in the next package \
             (vnic.v2), or with its number and name `reserved` here"
        ),
        ("method", _) => format!("`{old}` is gone: keep it beside the new method"),
        _ => format!("`{old}` is gone, and all that belongs to it: keep it beside what is new"),
    }
}

fn reshaped(old: &Item, new: &Item) -> String {
    let advice = match old.kind {
        "method" => "keep it, and make a new method",
        _ => "keep it, and make a new field with the next free number",
    };
    format!("`{old}` is `{}` now: {advice}", new.shape)
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost_types::descriptor_proto::ReservedRange;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
        FileDescriptorProto, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
    };

    use super::*;
    use crate::api::items;

    const KNOWN: &str = "# a comment\n\
        service vnic.v1.S\n\
        method vnic.v1.S.Get : vnic.v1.M -> vnic.v1.M\n\
        method vnic.v1.S.Watch : vnic.v1.M -> stream vnic.v1.M\n\
        message vnic.v1.M\n\
        field vnic.v1.M.name = 1 : string\n\
        field vnic.v1.M.mtu = 2 : uint32\n\
        field vnic.v1.M.macs = 3 : repeated string\n\
        reserved vnic.v1.M = 4\n\
        enum vnic.v1.E\n\
        value vnic.v1.E.E_UNSPECIFIED = 0\n\
        value vnic.v1.E.E_ON = 1\n";

    /// What breaks when these words of the list become those.
    #[track_caller]
    fn broken(from: &str, to: &str) -> String {
        assert!(KNOWN.contains(from), "{from}");
        let changes = changes(KNOWN, &KNOWN.replace(from, to));
        assert_eq!(changes.breaking.len(), 1, "{changes:?}");
        changes.breaking[0].clone()
    }

    #[test]
    fn nothing_changed_is_no_change() {
        assert_eq!(changes(KNOWN, KNOWN), Changes::default());
    }

    #[test]
    fn what_is_added_is_told_and_allowed() {
        let more = "field vnic.v1.M.mode = 5 : optional bool\nvalue vnic.v1.E.E_OFF = 2\n\
                    method vnic.v1.S.List : vnic.v1.M -> vnic.v1.M\nmessage vnic.v1.N\n";
        let changes = changes(KNOWN, &format!("{KNOWN}{more}"));
        assert_eq!(changes.breaking, Vec::<String>::new());
        assert_eq!(changes.added, more.lines().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_removed_breaks() {
        let field = broken("field vnic.v1.M.mtu = 2 : uint32\n", "");
        assert!(
            field.starts_with("`field vnic.v1.M.mtu = 2 : uint32` is gone"),
            "{field}"
        );
        assert!(field.contains("`reserved`"), "{field}");
        // That the number is reserved from then on makes no difference to those who use the field.
        broken("field vnic.v1.M.mtu = 2 : uint32", "reserved vnic.v1.M = 2");
        assert!(broken("value vnic.v1.E.E_ON = 1\n", "").contains("is gone"));
        let method = broken("method vnic.v1.S.Get : vnic.v1.M -> vnic.v1.M\n", "");
        assert!(
            method.contains("is gone: keep it beside the new method"),
            "{method}"
        );
        assert!(broken("reserved vnic.v1.M = 4\n", "").contains("not reserved any more"));
        assert!(broken("reserved vnic.v1.M = 4", "field vnic.v1.M.new = 4 : bool").contains("not reserved"));
    }

    #[test]
    fn a_message_that_is_removed_is_told_once() {
        let left: String = KNOWN
            .lines()
            .filter(|line| !line.contains(" vnic.v1.M") || line.starts_with("method"))
            .map(|line| format!("{line}\n"))
            .collect();
        let changes = changes(KNOWN, &left);
        assert_eq!(changes.breaking.len(), 1, "{changes:?}");
        assert!(changes.breaking[0].starts_with("`message vnic.v1.M` is gone"));
    }

    #[test]
    fn another_number_breaks() {
        let text = broken("M.mtu = 2", "M.mtu = 7");
        assert!(
            text.contains("`field vnic.v1.M.mtu = 2 : uint32` has another number, 7"),
            "{text}"
        );
        assert!(broken("E_ON = 1", "E_ON = 2").contains("has another number, 2"));
    }

    #[test]
    fn another_name_breaks() {
        let text = broken("M.mtu = 2", "M.max_payload = 2");
        assert!(text.contains("has another name, max_payload"), "{text}");
        assert!(broken("E_ON = 1", "E_UP = 1").contains("has another name, E_UP"));
    }

    #[test]
    fn another_type_or_label_breaks() {
        for shape in [
            "uint64",
            "optional uint32",
            "repeated uint32",
            "uint32, one of size",
        ] {
            let text = broken("mtu = 2 : uint32", &format!("mtu = 2 : {shape}"));
            assert!(
                text.contains(&format!("is `{shape}` now: keep it, and make a new field")),
                "{text}"
            );
        }
    }

    #[test]
    fn another_request_answer_or_stream_breaks() {
        for (from, to) in [
            ("Get : vnic.v1.M -> vnic.v1.M", "Get : vnic.v1.N -> vnic.v1.M"),
            (
                "Get : vnic.v1.M -> vnic.v1.M",
                "Get : vnic.v1.M -> stream vnic.v1.M",
            ),
            (
                "Watch : vnic.v1.M -> stream vnic.v1.M",
                "Watch : vnic.v1.M -> vnic.v1.M",
            ),
        ] {
            assert!(broken(from, to).contains("now: keep it, and make a new method"));
        }
    }

    #[test]
    fn descriptors_become_lines() {
        let field = |name: &str, number, label: Label, kind: Type| FieldDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number),
            label: Some(label.into()),
            r#type: Some(kind.into()),
            ..FieldDescriptorProto::default()
        };
        let mut entry = DescriptorProto {
            name: Some("LabelsEntry".to_owned()),
            field: vec![
                field("key", 1, Label::Optional, Type::String),
                field("value", 2, Label::Optional, Type::Uint64),
            ],
            ..DescriptorProto::default()
        };
        entry.options.get_or_insert_default().map_entry = Some(true);
        let mut labels = field("labels", 3, Label::Repeated, Type::Message);
        labels.type_name = Some(".vnic.v1.M.LabelsEntry".to_owned());
        let mut perhaps = field("perhaps", 4, Label::Optional, Type::Bool);
        (perhaps.oneof_index, perhaps.proto3_optional) = (Some(1), Some(true));
        let mut choice = field("choice", 10, Label::Optional, Type::Enum);
        (choice.oneof_index, choice.type_name) = (Some(0), Some(".vnic.v1.M.E".to_owned()));
        let oneof = |name: &str| OneofDescriptorProto {
            name: Some(name.to_owned()),
            ..OneofDescriptorProto::default()
        };
        let file = FileDescriptorProto {
            name: Some("vnic/v1/m.proto".to_owned()),
            package: Some("vnic.v1".to_owned()),
            syntax: Some("proto3".to_owned()),
            message_type: vec![DescriptorProto {
                name: Some("M".to_owned()),
                field: vec![
                    choice,
                    field("macs", 2, Label::Repeated, Type::String),
                    labels,
                    perhaps,
                    field("name", 1, Label::Optional, Type::String),
                ],
                nested_type: vec![entry],
                enum_type: vec![EnumDescriptorProto {
                    name: Some("E".to_owned()),
                    value: vec![EnumValueDescriptorProto {
                        name: Some("E_UNSPECIFIED".to_owned()),
                        number: Some(0),
                        options: None,
                    }],
                    ..EnumDescriptorProto::default()
                }],
                oneof_decl: vec![oneof("action"), oneof("_perhaps")],
                reserved_range: vec![ReservedRange {
                    start: Some(5),
                    end: Some(7),
                }],
                ..DescriptorProto::default()
            }],
            service: vec![ServiceDescriptorProto {
                name: Some("S".to_owned()),
                method: vec![MethodDescriptorProto {
                    name: Some("Watch".to_owned()),
                    input_type: Some(".vnic.v1.M".to_owned()),
                    output_type: Some(".vnic.v1.M".to_owned()),
                    server_streaming: Some(true),
                    ..MethodDescriptorProto::default()
                }],
                ..ServiceDescriptorProto::default()
            }],
            ..FileDescriptorProto::default()
        };
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file).expect("a file");
        let list = items::list(&pool);
        let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "message vnic.v1.M",
                "field vnic.v1.M.name = 1 : string",
                "field vnic.v1.M.macs = 2 : repeated string",
                "field vnic.v1.M.labels = 3 : map<string, uint64>",
                "field vnic.v1.M.perhaps = 4 : optional bool",
                "field vnic.v1.M.choice = 10 : vnic.v1.M.E, one of action",
                "reserved vnic.v1.M = 5",
                "reserved vnic.v1.M = 6",
                "enum vnic.v1.M.E",
                "value vnic.v1.M.E.E_UNSPECIFIED = 0",
                "service vnic.v1.S",
                "method vnic.v1.S.Watch : vnic.v1.M -> stream vnic.v1.M",
            ]
        );
        for line in lines {
            assert_eq!(Item::parse(line).expect("a line").to_string(), line);
        }
    }
}
