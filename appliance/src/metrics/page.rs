//! Prometheus' text format, version 0.0.4, written line by line: no registry, nothing kept from scrape to scrape.

use std::fmt::{Display, Write as _};

/// A page that grows. All values of a metric must follow its heading; one without values is left out.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    name: String,
    /// The heading, until the first value comes.
    heading: String,
}

impl Page {
    /// With room for a page of so many bytes.
    pub fn with_capacity(bytes: usize) -> Page {
        Page {
            text: String::with_capacity(bytes),
            ..Page::default()
        }
    }

    /// The heading of a counter.
    pub fn counter(&mut self, name: &str, help: &str) {
        self.heading(name, help, "counter");
    }

    /// The heading of a gauge.
    pub fn gauge(&mut self, name: &str, help: &str) {
        self.heading(name, help, "gauge");
    }

    fn heading(&mut self, name: &str, help: &str, kind: &str) {
        // Our help texts are one line without backslashes; a test sees to it.
        self.heading.clear();
        let _ = write!(self.heading, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        name.clone_into(&mut self.name);
    }

    /// A value of the metric whose heading came last. Whole numbers are exact.
    pub fn value(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.push_str(&self.heading);
        self.heading.clear();
        self.text.push_str(&self.name);
        for (i, (key, label)) in labels.iter().enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            self.text.push_str(key);
            self.text.push_str("=\"");
            let from = self.text.len();
            let _ = write!(self.text, "{label}");
            self.escape(from);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// Names and addresses have nothing to escape, but names of interfaces may.
    fn escape(&mut self, from: usize) {
        if self.text[from..].contains(['\\', '"', '\n']) {
            let label = self.text.split_off(from);
            for c in label.chars() {
                match c {
                    '\n' => self.text.push_str("\\n"),
                    '\\' | '"' => self.text.extend(['\\', c]),
                    c => self.text.push(c),
                }
            }
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_whole_numbers_exact() {
        let mut page = Page::default();
        page.counter("a_total", "Things.");
        page.value(&[("x", &"a\"b\\c\nd"), ("y", &7)], u64::MAX);
        page.gauge("none", "Nothing.");
        page.gauge("b", "More.");
        page.value(&[], 0.25);
        assert_eq!(
            page.finish(),
            "# HELP a_total Things.\n# TYPE a_total counter\n\
             a_total{x=\"a\\\"b\\\\c\\nd\",y=\"7\"} 18446744073709551615\n\
             # HELP b More.\n# TYPE b gauge\nb 0.25\n"
        );
    }
}
