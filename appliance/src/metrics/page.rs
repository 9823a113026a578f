//! Writer of Prometheus' text format, version 0.0.4: without a registry, and without state from scrape to scrape.

use std::fmt::{Display, Write as _};

/// A growing page. The values of a metric must follow its heading; a metric without values is left out.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    name: String,
    /// Heading that is written before the first value.
    heading: String,
}

impl Page {
    /// Makes a page with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Page {
        Page {
            text: String::with_capacity(bytes),
            ..Page::default()
        }
    }

    /// Begins a counter.
    pub fn counter(&mut self, name: &str, help: &str) {
        self.heading(name, help, "counter");
    }

    /// Begins a gauge.
    pub fn gauge(&mut self, name: &str, help: &str) {
        self.heading(name, help, "gauge");
    }

    /// Begins a histogram, whose values are parts.
    pub fn histogram(&mut self, name: &str, help: &str) {
        self.heading(name, help, "histogram");
    }

    fn heading(&mut self, name: &str, help: &str, kind: &str) {
        // Help texts are one line without backslashes; a test checks this.
        self.heading.clear();
        let _ = write!(self.heading, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        name.clone_into(&mut self.name);
    }

    /// Adds a value of the last metric. Integers are exact.
    pub fn value(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.part("", labels, value);
    }

    /// Adds a value of a part of the last metric, such as `_bucket`.
    pub fn part(&mut self, part: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.push_str(&self.heading);
        self.heading.clear();
        self.text.push_str(&self.name);
        self.text.push_str(part);
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

    /// Adds the parts of a histogram: `counts` has a number for each bucket, which does not count those before it; the last one has no
    /// bound.
    pub fn buckets(
        &mut self,
        labels: &[(&str, &dyn Display)],
        bounds: impl Iterator<Item = String>,
        counts: &[u64],
        sum: impl Display,
    ) {
        let mut all = 0;
        for (bound, n) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            all += n;
            self.part("_bucket", &[labels, &[("le", &bound)]].concat(), all);
        }
        self.part("_sum", labels, sum);
        self.part("_count", labels, all);
    }

    /// Escapes a label from this offset on: names of interfaces may need it.
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

    /// Text of the page.
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
