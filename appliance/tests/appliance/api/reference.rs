//! The reference of the API, in Markdown: what the comments of the .proto files say.

use std::fmt::Write as _;

use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, ServiceDescriptor,
};

use super::items::PACKAGE;

const HEAD: &str = "\
# gRPC API

Every service, method, message and enum of package `vnic.v1`. This file is made from the comments of
[`proto/control/proto/vnic/v1`](../proto/control/proto/vnic/v1); a test holds it to that. How to connect, pages, watches, errors,
and clients in Python and Go: [clients.md](clients.md).

A field is `optional` if a message tells whether it was set; any other that is not set has its zero value (0, false, empty). Fields of
`one of` a group exclude one another.
";

/// The page.
pub fn markdown(pool: &DescriptorPool) -> String {
    let ours = || pool.files().filter(|file| file.package_name() == PACKAGE);
    let mut files: Vec<FileDescriptor> = ours().collect();
    // What several services use comes last.
    files.sort_by_key(|file| (file.services().len() == 0, file.name().to_owned()));
    let mut page = HEAD.to_owned();
    index(&files, &mut page);
    for file in &files {
        of_file(file, &mut page);
    }
    page
}

/// All services with their methods, then all messages and enums by name.
fn index(files: &[FileDescriptor], page: &mut String) {
    *page += "\n## Services\n\n| service | methods |\n|---|---|\n";
    for service in files.iter().flat_map(FileDescriptor::services) {
        let method = |m: MethodDescriptor| format!("[{}](#{})", m.name(), anchor(&method_title(&m)));
        let methods: Vec<String> = service.methods().map(method).collect();
        let _ = writeln!(
            page,
            "| [{0}](#{1}) | {2} |",
            service.name(),
            anchor(service.name()),
            methods.join(", ")
        );
    }
    let mut types: Vec<String> = Vec::new();
    for file in files {
        types.extend(file.enums().map(|e| short(e.full_name())));
        let mut messages: Vec<MessageDescriptor> = file.messages().collect();
        while let Some(message) = messages.pop() {
            types.push(short(message.full_name()));
            types.extend(message.child_enums().map(|e| short(e.full_name())));
            messages.extend(message.child_messages().filter(|m| !m.is_map_entry()));
        }
    }
    types.sort();
    let links: Vec<String> = types
        .iter()
        .map(|name| format!("[{name}](#{})", anchor(name)))
        .collect();
    let _ = write!(page, "\n## Messages and enums\n\n{}\n", links.join(",\n"));
}

fn of_file(file: &FileDescriptor, page: &mut String) {
    let comments = Comments(file.file_descriptor_proto());
    for service in file.services() {
        of_service(&service, &comments, page);
    }
    if file.services().len() == 0 {
        let name = file.name().rsplit('/').next().unwrap_or_default();
        let _ = write!(page, "\n## {name}\n");
    }
    for values in file.enums() {
        of_enum(&values, &comments, page);
    }
    for message in file.messages() {
        of_message(&message, &comments, page);
    }
}

fn of_service(service: &ServiceDescriptor, comments: &Comments<'_>, page: &mut String) {
    let _ = write!(page, "\n## {}\n\n", service.name());
    let _ = writeln!(page, "{}", prose(&comments.of(service.path())));
    for method in service.methods() {
        let side = |stream: bool, message: &MessageDescriptor| {
            format!(
                "{}{}",
                if stream { "stream of " } else { "" },
                link(message.full_name())
            )
        };
        let _ = write!(
            page,
            "\n### {}\n\n{} → {}\n\n{}\n",
            method_title(&method),
            side(method.is_client_streaming(), &method.input()),
            side(method.is_server_streaming(), &method.output()),
            prose(&comments.of(method.path()))
        );
    }
}

fn of_message(message: &MessageDescriptor, comments: &Comments<'_>, page: &mut String) {
    let _ = write!(page, "\n### {}\n", short(message.full_name()));
    let said = prose(&comments.of(message.path()));
    if !said.is_empty() {
        let _ = write!(page, "\n{said}\n");
    }
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let said = prose(&comments.of(oneof.path()));
        let _ = write!(page, "\nOne of `{}`: {said}\n", oneof.name());
    }
    if message.fields().len() == 0 {
        *page += "\nNo fields.\n";
    } else {
        *page += "\n| number | field | type | |\n|---:|---|---|---|\n";
    }
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for field in fields {
        let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let group = oneof.map_or_else(String::new, |oneof| format!("One of `{}`. ", oneof.name()));
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} |",
            field.number(),
            field.name(),
            type_cell(&field),
            cell(&(group + &comments.of(field.path())))
        );
    }
    for values in message.child_enums() {
        of_enum(&values, comments, page);
    }
    for child in message.child_messages().filter(|child| !child.is_map_entry()) {
        of_message(&child, comments, page);
    }
}

fn of_enum(values: &EnumDescriptor, comments: &Comments<'_>, page: &mut String) {
    let _ = write!(page, "\n### {}\n", short(values.full_name()));
    let said = prose(&comments.of(values.path()));
    if !said.is_empty() {
        let _ = write!(page, "\n{said}\n");
    }
    *page += "\n| number | value | |\n|---:|---|---|\n";
    for value in values.values() {
        let said = cell(&comments.of(value.path()));
        let _ = writeln!(page, "| {} | `{}` | {said} |", value.number(), value.name());
    }
}

/// Comments of a file, by the paths of what they are about.
struct Comments<'a>(&'a FileDescriptorProto);

impl Comments<'_> {
    fn of(&self, path: &[i32]) -> String {
        let info = self.0.source_code_info.as_ref();
        let places = info.map_or(&[][..], |info| &info.location);
        let place = places.iter().find(|place| place.path == path);
        let said = place.and_then(|place| place.leading_comments.as_deref());
        let lines = said.unwrap_or_default().lines().map(str::trim);
        lines.collect::<Vec<_>>().join("\n").trim().to_owned()
    }
}

/// A comment between headings. A line that begins with a status code begins a line.
fn prose(comment: &str) -> String {
    let mut text = String::new();
    for line in escaped(comment).lines() {
        if is_code(line) && !text.is_empty() && !text.ends_with("\n\n") {
            text += "\n";
        }
        text += line;
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// A comment in a table.
fn cell(comment: &str) -> String {
    escaped(comment).replace('|', "\\|").replace('\n', " ")
}

/// Does it begin with status codes, such as `INVALID_ARGUMENT, NOT_FOUND: `?
fn is_code(line: &str) -> bool {
    let is_word = |word: &str| word.len() > 4 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let (codes, rest) = line.split_once(':').unwrap_or((line, ""));
    !rest.is_empty() && codes.split(", ").all(is_word)
}

/// What is no code must not look like HTML or emphasis.
fn escaped(comment: &str) -> String {
    let mut code = false;
    let mut text = String::new();
    for c in comment.chars() {
        code ^= c == '`';
        match c {
            '<' if !code => text += "&lt;",
            '*' if !code => text += "\\*",
            c => text.push(c),
        }
    }
    text
}

fn type_cell(field: &FieldDescriptor) -> String {
    let name = match field.kind() {
        Kind::Message(entry) if field.is_map() => format!(
            "map of {} to {}",
            type_of(&entry.map_entry_key_field()),
            type_of(&entry.map_entry_value_field())
        ),
        _ => type_of(field),
    };
    match field.cardinality() {
        Cardinality::Repeated if !field.is_map() => format!("repeated {name}"),
        _ if field.field_descriptor_proto().proto3_optional() => format!("optional {name}"),
        _ => name,
    }
}

fn type_of(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => link(message.full_name()),
        Kind::Enum(values) => link(values.full_name()),
        scalar => format!("`{scalar:?}`"),
    }
}

/// A link to what a name means: here, or none for what is Google's.
fn link(name: &str) -> String {
    match name.strip_prefix(PACKAGE) {
        Some(_) => format!("[{0}](#{1})", short(name), anchor(&short(name))),
        None => format!("`{name}`"),
    }
}

fn short(name: &str) -> String {
    name.trim_start_matches(PACKAGE)
        .trim_start_matches('.')
        .to_owned()
}

fn method_title(method: &MethodDescriptor) -> String {
    format!("{}.{}", method.parent_service().name(), method.name())
}

/// The anchor of a heading that has letters, digits and points only.
fn anchor(title: &str) -> String {
    title.replace('.', "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_headings_have_one_anchor() {
        let page = markdown(&super::super::pool());
        let headings = page.lines().filter_map(|line| line.strip_prefix("##"));
        let mut anchors: Vec<String> = headings
            .map(|line| anchor(line.trim_start_matches('#').trim()))
            .collect();
        let all = anchors.len();
        anchors.sort();
        anchors.dedup();
        assert_eq!(anchors.len(), all);
    }

    #[test]
    fn comments_are_text() {
        assert_eq!(escaped("a<b of `x<y>` *"), "a&lt;b of `x<y>` \\*");
        assert_eq!(cell("`a|b`\nc"), "`a\\|b` c");
        assert_eq!(
            prose("What.\nNOT_FOUND: no.\nMore."),
            "What.\n\nNOT_FOUND: no.\nMore."
        );
    }
}
