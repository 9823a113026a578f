//! `.reg` files as Windows writes them ("Windows Registry Editor Version 5.00"): syntax of sections and values.

use std::fmt::Write as _;

/// First line.
const HEADER: &str = "Windows Registry Editor Version 5.00";
/// Column at which Windows breaks a line of bytes.
const WIDTH: usize = 78;

/// Data of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// `REG_DWORD`.
    Dword(u32),
    /// `REG_SZ` or `REG_EXPAND_SZ`.
    Text(String),
    /// `REG_MULTI_SZ`.
    Multi(Vec<String>),
    /// Any other type, by number.
    Other(u32),
    /// The value is deleted.
    Delete,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Line number, from 1.
    pub number: usize,
    /// Name of the value; empty: the key's default value.
    pub name: String,
    /// Data of the value.
    pub data: Data,
}

/// A registry key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Line number, from 1.
    pub number: usize,
    /// Path of the key.
    pub path: String,
    /// Whether the key is deleted with all its values.
    pub delete: bool,
    /// Comments above the key.
    pub comments: Vec<String>,
    /// Values of the key.
    pub values: Vec<Line>,
}

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Line number, from 1.
    pub line: usize,
    /// Problem, and what is allowed.
    pub problem: String,
}

/// Decodes a file: UTF-16LE with a byte order mark, or UTF-8 with or without one.
fn text(bytes: &[u8]) -> Result<String, String> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest).ok_or_else(|| "not valid UTF-16".to_owned()),
        [0xfe, 0xff, ..] => Err("UTF-16BE: save it as UTF-16LE or UTF-8".to_owned()),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec())
            .map_err(|_| "neither UTF-16LE with a byte order mark nor UTF-8".to_owned()),
    }
}

fn utf16(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let units: Vec<u16> = units.iter().map(|u| u16::from_le_bytes(*u)).collect();
    String::from_utf16(&units).ok()
}

fn bytes_of(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Parses a file; the error has all problems.
pub fn parse(bytes: &[u8]) -> Result<Vec<Section>, Vec<Wrong>> {
    let wrong = |line, problem: &str| Wrong {
        line,
        problem: problem.to_owned(),
    };
    let text = text(bytes).map_err(|problem| vec![wrong(1, &problem)])?;
    let mut lines = text.lines().enumerate().map(|(i, l)| (i + 1, l.trim()));
    match lines.find(|(_, l)| !l.is_empty()) {
        Some((_, HEADER)) => {}
        first => {
            let line = first.map_or(1, |(n, _)| n);
            return Err(vec![wrong(line, &format!("the first line must be {HEADER:?}"))]);
        }
    }
    let mut sections: Vec<Section> = Vec::new();
    let (mut problems, mut comments) = (Vec::new(), Vec::new());
    while let Some((number, line)) = lines.next() {
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix(';') {
            comments.push(comment.trim().to_owned());
            continue;
        }
        if let Some(inner) = line.strip_prefix('[') {
            match inner.strip_suffix(']') {
                Some(path) => {
                    let (delete, path) = path.strip_prefix('-').map_or((false, path), |p| (true, p));
                    sections.push(Section {
                        number,
                        path: path.to_owned(),
                        delete,
                        comments: std::mem::take(&mut comments),
                        values: Vec::new(),
                    });
                }
                None => problems.push(wrong(number, "a key ends with ]")),
            }
            continue;
        }
        comments.clear();
        // A list of bytes may continue over several lines.
        let mut whole = line.to_owned();
        while whole.ends_with('\\') && is_bytes(&whole) {
            whole.pop();
            match lines.next() {
                Some((_, next)) => whole.push_str(next),
                None => break,
            }
        }
        match (value(&whole), sections.last_mut()) {
            (Err(problem), _) => problems.push(wrong(number, &problem)),
            (Ok(_), None) => problems.push(wrong(number, "a value before the first [key]")),
            (Ok(_), Some(section)) if section.delete => {
                problems.push(wrong(number, "a value of a key that is deleted"));
            }
            (Ok((name, data)), Some(section)) => section.values.push(Line { number, name, data }),
        }
    }
    if problems.is_empty() {
        Ok(sections)
    } else {
        Err(problems)
    }
}

/// A quoted text, and the rest of the line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 2..)?)),
            '\\' => value.push(chars.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Whether a line is a value made of bytes.
fn is_bytes(line: &str) -> bool {
    let rest = match line.strip_prefix('@') {
        Some(rest) => Some(rest),
        None => quoted(line).map(|(_, rest)| rest),
    };
    let data = rest.and_then(|r| r.trim_start().strip_prefix('='));
    let start = data.and_then(|d| d.trim_start().get(..3));
    start.is_some_and(|d| d.eq_ignore_ascii_case("hex"))
}

/// Whether the rest of a line is empty or a comment.
fn is_end(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with(';')
}

fn value(line: &str) -> Result<(String, Data), String> {
    let (name, rest) = match line.strip_prefix('@') {
        Some(rest) => (String::new(), rest),
        None => quoted(line).ok_or("neither a [key], a \"name\"=value nor a ; comment")?,
    };
    let data = rest
        .trim_start()
        .strip_prefix('=')
        .ok_or_else(|| format!("{name:?}: = is missing"))?
        .trim_start();
    let wrong = |problem: &str| Err(format!("{name:?}: {problem}"));
    if data.starts_with('"') {
        return match quoted(data) {
            Some((text, rest)) if is_end(rest) => Ok((name, Data::Text(text))),
            _ => wrong("a text ends with a quotation mark"),
        };
    }
    let data = data.split(';').next().unwrap_or_default().trim();
    let lower = data.to_ascii_lowercase();
    if lower == "-" {
        return Ok((name, Data::Delete));
    }
    if let Some(digits) = lower.strip_prefix("dword:") {
        let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        return match u32::from_str_radix(digits, 16) {
            Ok(number) if hex => Ok((name, Data::Dword(number))),
            _ => wrong("dword: is followed by 1 to 8 hexadecimal digits"),
        };
    }
    if let Some(rest) = lower.strip_prefix("hex") {
        let (kind, bytes) = match rest.strip_prefix('(') {
            None => (3, rest.strip_prefix(':')),
            Some(rest) => match rest.split_once("):") {
                Some((kind, bytes)) => match u32::from_str_radix(kind, 16) {
                    Ok(kind) => (kind, Some(bytes)),
                    Err(_) => return wrong("hex( is followed by a hexadecimal number"),
                },
                None => (3, None),
            },
        };
        let Some(bytes) = bytes.and_then(byte_list) else {
            return wrong("hex: is followed by bytes such as 0a,ff");
        };
        return match typed(kind, &bytes) {
            Some(data) => Ok((name, data)),
            None => wrong("the bytes do not fit their type"),
        };
    }
    wrong("a value is \"text\", dword:, hex: or -")
}

fn byte_list(text: &str) -> Option<Vec<u8>> {
    let parts = text.split(',').map(str::trim);
    // An empty list, or a comma at the end, adds no byte.
    parts
        .filter(|p| !p.is_empty())
        .map(|p| {
            let short = p.len() <= 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
            short.then(|| u8::from_str_radix(p, 16).ok())?
        })
        .collect()
}

fn typed(kind: u32, bytes: &[u8]) -> Option<Data> {
    let ended = |text: String| text.strip_suffix('\0').map_or(text.clone(), str::to_owned);
    Some(match kind {
        1 | 2 => Data::Text(ended(utf16(bytes)?)),
        4 => Data::Dword(u32::from_le_bytes(bytes.try_into().ok()?)),
        7 => {
            // Each text ends with a zero, and so does the list.
            let text = utf16(bytes)?;
            let text = text.strip_suffix('\0').unwrap_or(&text);
            let text = text.strip_suffix('\0').unwrap_or(text);
            match text {
                "" => Data::Multi(Vec::new()),
                text => Data::Multi(text.split('\0').map(str::to_owned).collect()),
            }
        }
        other => Data::Other(other),
    })
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Writes bytes as Windows does: lines of at most 80 columns, continued by a backslash.
fn hex(out: &mut String, name: &str, kind: u32, bytes: &[u8]) {
    let mut line = format!("{name}=hex({kind:x}):");
    for (i, byte) in bytes.iter().enumerate() {
        let comma = if i + 1 < bytes.len() { "," } else { "" };
        if line.len() + 3 > WIDTH {
            let _ = write!(out, "{line}\\\r\n");
            line = "  ".to_owned();
        }
        let _ = write!(line, "{byte:02x}{comma}");
    }
    let _ = write!(out, "{line}\r\n");
}

fn write_value(out: &mut String, line: &Line) {
    let name = if line.name.is_empty() {
        "@".to_owned()
    } else {
        quote(&line.name)
    };
    let _ = match &line.data {
        Data::Dword(number) => write!(out, "{name}=dword:{number:08x}\r\n"),
        // A text with control characters is written as bytes.
        Data::Text(text) if text.chars().any(char::is_control) => {
            hex(out, &name, 1, &bytes_of(&format!("{text}\0")));
            Ok(())
        }
        Data::Text(text) => write!(out, "{name}={}\r\n", quote(text)),
        Data::Multi(all) => {
            let text: String = all.iter().map(|t| format!("{t}\0")).collect();
            hex(out, &name, 7, &bytes_of(&format!("{text}\0")));
            Ok(())
        }
        Data::Other(_) => Ok(()),
        Data::Delete => write!(out, "{name}=-\r\n"),
    };
}

/// Writes a file with these sections: UTF-16LE with a byte order mark, as Windows does, or UTF-8.
pub fn write(sections: &[Section], utf8: bool) -> Vec<u8> {
    let mut out = format!("{HEADER}\r\n");
    for section in sections {
        out.push_str("\r\n");
        for comment in &section.comments {
            let _ = write!(out, "; {comment}\r\n");
        }
        let minus = if section.delete { "-" } else { "" };
        let _ = write!(out, "[{minus}{}]\r\n", section.path);
        for line in &section.values {
            write_value(&mut out, line);
        }
    }
    out.push_str("\r\n");
    if utf8 {
        return out.into_bytes();
    }
    let mut bytes = vec![0xff, 0xfe];
    bytes.extend(bytes_of(&out));
    bytes
}

#[cfg(test)]
mod tests;
