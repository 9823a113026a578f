//! Rust source without what only people read.

/// The source with comments blanked, and strings and characters emptied; lines stay where they are.
pub fn code(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = String::with_capacity(source.len());
    let mut i = 0;
    while i < bytes.len() {
        let end = match bytes[i] {
            b'/' if bytes.get(i + 1) == Some(&b'/') => line_end(bytes, i),
            b'/' if bytes.get(i + 1) == Some(&b'*') => comment_end(bytes, i),
            b'r' | b'b' | b'c' if !follows_word(bytes, i) => raw_end(bytes, i).unwrap_or(i),
            b'"' => string_end(bytes, i),
            b'\'' => char_end(bytes, i).unwrap_or(i),
            _ => i,
        };
        if end == i {
            // Only ASCII decides anything above, so a whole character goes over here.
            let c = source[i..].chars().next().unwrap_or(' ');
            out.push(c);
            i += c.len_utf8();
        } else {
            out.push(' ');
            out.extend(source[i..end].chars().filter(|c| *c == '\n'));
            i = end;
        }
    }
    out
}

/// The code without its `#[cfg(test)] mod … { … }` blocks, which are blanked.
pub fn without_tests(source: &str) -> String {
    let code = code(source);
    let lines: Vec<&str> = code.lines().collect();
    let mut out = String::with_capacity(code.len());
    let mut inside = false;
    for (i, line) in lines.iter().enumerate() {
        let module = |l: &&str| l.starts_with("mod ") && l.trim_end().ends_with('{');
        if line.trim_end() == "#[cfg(test)]" && lines.get(i + 1).is_some_and(module) {
            inside = true;
        }
        if !inside {
            out.push_str(line);
        }
        out.push('\n');
        inside &= line.trim_end() != "}";
    }
    out
}

/// Is this word in the line, not as a part of another?
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).map(|i| line.as_bytes()[i]);
        let after = line.as_bytes().get(at + word.len()).copied();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

fn follows_word(bytes: &[u8], i: usize) -> bool {
    i > 0 && (bytes[i - 1].is_ascii_alphanumeric() || bytes[i - 1] == b'_')
}

fn line_end(bytes: &[u8], i: usize) -> usize {
    bytes[i..]
        .iter()
        .position(|b| *b == b'\n')
        .map_or(bytes.len(), |n| i + n)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i < bytes.len() {
        match bytes.get(i..i + 2) {
            Some(b"/*") => (i, depth) = (i + 2, depth + 1),
            Some(b"*/") => {
                (i, depth) = (i + 2, depth - 1);
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut i = start + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// A string with a prefix: `r"…"`, `br#"…"#`, `b"…"`, `c"…"`.
fn raw_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut i = start;
    while matches!(bytes.get(i), Some(b'r' | b'b' | b'c')) && i < start + 2 {
        i += 1;
    }
    let raw = bytes[start..i].contains(&b'r');
    let hashes = bytes[i..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(i + hashes) != Some(&b'"') || (hashes > 0 && !raw) {
        return None;
    }
    if !raw {
        return Some(string_end(bytes, i));
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = i + hashes + 1;
    let at = bytes[body..].windows(close.len()).position(|w| w == close);
    Some(at.map_or(bytes.len(), |n| body + n + close.len()))
}

/// A character; `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes[start + 3..].iter().position(|b| *b == b'\'')?;
        return Some(start + 3 + close + 1);
    }
    // One character, of up to four bytes.
    let width = bytes[start + 1..].iter().take(5).position(|b| *b == b'\'')?;
    let text = std::str::from_utf8(&bytes[start + 1..start + 1 + width]).ok()?;
    (text.chars().count() == 1).then_some(start + 1 + width + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go_and_lines_stay() {
        let source =
            "a // unsafe\n/* x /* unsafe */ \n y */ b \"un\\\"safe\" c r#\"x\" \"#d '\\'' '\"' <'a> 'é' e\n";
        let stripped = code(source);
        assert_eq!(stripped.matches('\n').count(), source.matches('\n').count());
        assert!(
            !stripped.contains("unsafe") && !stripped.contains('y'),
            "{stripped}"
        );
        for word in ["a", "b", "c", "d", "e"] {
            assert!(has_word(&stripped, word), "{word} in {stripped}");
        }
        assert!(stripped.contains("<'a>"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x unsafe { }", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(has_word("unsafe", "unsafe"));
    }

    #[test]
    fn test_modules_do_not_count() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        let stripped = without_tests(source);
        assert!(
            stripped.contains("fn a") && stripped.contains("fn c") && !stripped.contains("fn b"),
            "{stripped}"
        );
        assert_eq!(stripped.lines().count(), 7);
    }
}
