//! Rules for the shape of the product's types: how many fields, how many files an `impl` is spread over, how long argument lists are, and
//! which way its files know one another. What is there already and is too much stands in a list; the lists only get shorter. A struct that
//! is wide says why in a line above it.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, TraitItem, Type};

use super::{Breach, Tree};

/// Where the ceilings of this file are.
const LIST: &str = "tests/src/house/shape.rs";
/// Fields of a struct, at most, unless a line of the comments above it begins with `REASON`.
const FIELDS_MAX: usize = 15;
/// What the reason begins with for which a struct has more fields.
const REASON: &str = "Wide: ";
/// Words of a reason, at least.
const REASON_WORDS: usize = 4;
/// Files with an inherent `impl` of a type, at most.
const FILES_MAX: usize = 4;

/// What a count may be at most, and where: types, or files.
pub type Ceilings<'a> = &'a [(&'static str, usize)];

/// Types with an `impl` in more files.
pub const SPREAD: Ceilings<'static> = &[
    ("guest-lib::ProtectionDomain", 5),
    ("vnic-backend/engine::Device", 6),
    ("vnic-backend/engine::Qp", 13),
    ("vnic-backend::Function", 11),
    ("vnic-backend::Inner", 10),
    ("vnic-backend::Nic", 10),
    ("vnic-backend::Outputs", 6),
];
/// Functions with an argument list that needs an allowance, by file.
pub const LONG_CALLS: Ceilings<'static> = &[
    ("vnic-backend/engine/src/rdma/qp/completer.rs", 1),
    ("vnic-backend/engine/src/rdma/region.rs", 1),
    ("vnic-backend/sim/src/oracle/keys.rs", 1),
];
/// Uses that run back within a folder: files that know each other in circles.
pub const BACKWARDS: Ceilings<'static> = &[("vnic-backend/src", 2)];

/// The product's sources: no tests, no benches, nothing generated.
fn sources(tree: &Tree) -> Vec<(&str, syn::File)> {
    let of_product = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        let is_test = |part: &&str| matches!(*part, "tests" | "tests.rs" | "fuzz" | "examples" | "build.rs");
        path.ends_with(".rs") && parts.contains(&"src") && !parts.iter().any(is_test)
    };
    let files = tree.files.iter().filter(|(path, _)| of_product(path));
    files
        .map(|(path, text)| (path.as_str(), parsed(path, text)))
        .collect()
}

pub(super) fn parsed(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The crate that a file belongs to.
fn room(path: &str) -> &str {
    path.split("/src/").next().unwrap_or_default()
}

pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test"))
}

/// All items of a file, those of modules in it too, but for tests.
fn items(file: &syn::File) -> Vec<&Item> {
    let mut all = Vec::new();
    let mut next: Vec<&Item> = file.items.iter().collect();
    while let Some(item) = next.pop() {
        match item {
            Item::Mod(module) if !is_test(&module.attrs) => {
                next.extend(module.content.iter().flat_map(|(_, items)| items));
            }
            item => all.push(item),
        }
    }
    all
}

/// Structs with more than `FIELDS_MAX` fields above which no comment says why, and reasons of structs that have fewer.
pub fn fields(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, file) in sources(tree) {
        let text = &tree.files[path];
        for item in items(&file) {
            let found = match item {
                Item::Struct(s) => match &s.fields {
                    Fields::Named(named) => Some((s.ident.to_string(), named.named.len())),
                    _ => None,
                },
                Item::Macro(m) => in_macro(&m.mac),
                _ => None,
            };
            let Some((name, count)) = found else { continue };
            let reasoned = has_reason(text, &name);
            let place = format!("{path}: {name}");
            if count > FIELDS_MAX && !reasoned {
                let text = format!(
                    "{count} fields; {FIELDS_MAX} are allowed: part it by what lives together, or say why in a line \"// {REASON}\" above it"
                );
                breaches.push(Breach::of(place, text));
            } else if count <= FIELDS_MAX && reasoned {
                breaches.push(Breach::of(
                    place,
                    format!("{count} fields: the line \"// {REASON}\" goes"),
                ));
            }
        }
    }
    breaches
}

/// Do the comments above a struct say why it has so many fields?
fn has_reason(text: &str, name: &str) -> bool {
    let begins = |line: &str, with: &str| {
        let rest = line
            .split_once(with)
            .and_then(|(_, rest)| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', '<']) && rest.contains('{'))
    };
    let lines: Vec<&str> = text.lines().collect();
    let defined = lines.iter().position(|line| begins(line, "struct "));
    // In a macro it is a name alone.
    let Some(at) = defined.or_else(|| lines.iter().position(|line| begins(line.trim_start(), ""))) else {
        return false;
    };
    let above = lines[..at].iter().rev().map(|line| line.trim());
    let mut above = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    above.any(|line| {
        let reason = line.trim_start_matches('/').trim_start().strip_prefix(REASON);
        reason.is_some_and(|r| r.split_whitespace().count() >= REASON_WORDS)
    })
}

/// A struct that a macro makes of `Name { field: Type; .. }`: its name, how many fields it has.
fn in_macro(mac: &syn::Macro) -> Option<(String, usize)> {
    let parse = |input: syn::parse::ParseStream<'_>| {
        let name: syn::Ident = input.parse()?;
        let inside;
        syn::braced!(inside in input);
        let mut count = 0;
        while !inside.is_empty() {
            inside.call(Attribute::parse_outer)?;
            inside.parse::<syn::Ident>()?;
            inside.parse::<syn::Token![:]>()?;
            count += 1;
            while !inside.is_empty() && !inside.peek(syn::Token![;]) {
                inside.step(|at| {
                    let (_, rest) = at.token_tree().ok_or_else(|| at.error("nothing left"))?;
                    Ok(((), rest))
                })?;
            }
            inside.parse::<Option<syn::Token![;]>>()?;
        }
        Ok((name.to_string(), count))
    };
    mac.parse_body_with(parse).ok()
}

/// Types with inherent `impl`s in more than `FILES_MAX` files.
pub fn impls(tree: &Tree, known: Ceilings<'_>) -> Vec<Breach> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut defined: BTreeMap<String, usize> = BTreeMap::new();
    for (path, file) in sources(tree) {
        for item in items(&file) {
            if let Item::Struct(syn::ItemStruct { ident, .. }) | Item::Enum(syn::ItemEnum { ident, .. }) =
                item
            {
                *defined.entry(format!("{}::{ident}", room(path))).or_default() += 1;
            }
            let Item::Impl(ItemImpl {
                trait_: None,
                self_ty,
                ..
            }) = item
            else {
                continue;
            };
            if let Type::Path(of) = &**self_ty
                && let Some(last) = of.path.segments.last()
            {
                let name = format!("{}::{}", room(path), last.ident);
                files.entry(name).or_default().insert(path);
            }
        }
    }
    // Types of one name are many types.
    files.retain(|name, files| files.len() > FILES_MAX && defined.get(name).is_none_or(|n| *n == 1));
    let found = files
        .into_iter()
        .map(|(name, files)| (name, files.len()))
        .collect();
    compare(
        &found,
        known,
        &format!("files with an impl; {FILES_MAX} are allowed: part the type, not its impl"),
        LIST,
    )
}

/// Allowances for long argument lists.
pub fn calls(tree: &Tree, known: Ceilings<'_>) -> Vec<Breach> {
    let allows = |attributes: &[Attribute]| {
        let about = |a: &&Attribute| a.path().is_ident("allow") || a.path().is_ident("expect");
        attributes.iter().filter(about).any(|a| {
            let mut long = false;
            let _ = a.parse_nested_meta(|meta| {
                long |= meta
                    .path
                    .segments
                    .last()
                    .is_some_and(|s| s.ident == "too_many_arguments");
                if meta.input.peek(syn::Token![=]) {
                    let _: syn::Expr = meta.value()?.parse()?;
                }
                Ok(())
            });
            long
        })
    };
    let mut found = BTreeMap::new();
    for (path, file) in sources(tree) {
        let mut count = 0;
        for item in items(&file) {
            count += match item {
                Item::Fn(f) => usize::from(allows(&f.attrs)),
                Item::Impl(i) => {
                    let of = |item: &ImplItem| matches!(item, ImplItem::Fn(f) if allows(&f.attrs));
                    usize::from(allows(&i.attrs)) + i.items.iter().filter(|item| of(item)).count()
                }
                Item::Trait(t) => {
                    let of = |item: &TraitItem| matches!(item, TraitItem::Fn(f) if allows(&f.attrs));
                    t.items.iter().filter(|item| of(item)).count()
                }
                _ => 0,
            };
        }
        if count > 0 {
            found.insert(path.to_owned(), count);
        }
    }
    compare(
        &found,
        known,
        "functions with too many arguments: what goes together wants a type",
        LIST,
    )
}

/// Uses between the files of a folder that run back: the folder's modules in the order in which fewest do so (a module stands behind
/// those that it uses), and the uses against that order.
pub fn backwards(tree: &Tree, folders: &[&str], known: Ceilings<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for folder in folders {
        let arrows = arrows(tree, folder);
        let found = BTreeMap::from([((*folder).to_owned(), against(&arrows).len())]);
        let known: Vec<_> = known.iter().copied().filter(|(of, _)| of == folder).collect();
        let what = format!("uses that run back:\n{}", drawing(folder, &arrows));
        breaches.extend(compare(&found, &known, &what, LIST));
    }
    breaches
}

/// The modules of a folder in the order of [`backwards`], a line each: whom a module uses that stands below it, and behind `▲` whom it uses
/// that stands above it.
pub fn drawing(folder: &str, arrows: &BTreeSet<(String, String)>) -> String {
    let order = order(arrows);
    let width = order.iter().map(|m| m.len()).max().unwrap_or_default();
    let mut drawn = format!("{folder}\n");
    for (place, module) in order.iter().enumerate() {
        let uses = |them: &[&str]| -> String {
            let them = them
                .iter()
                .filter(|to| arrows.contains(&((*module).to_owned(), (**to).to_owned())));
            them.map(|to| format!(" {to}")).collect()
        };
        drawn.push_str(&format!("  {module:width$}"));
        for (arrow, uses) in [("▼", uses(&order[place..])), ("▲", uses(&order[..place]))] {
            if !uses.is_empty() {
                drawn.push_str(&format!(" {arrow}{uses}"));
            }
        }
        drawn.truncate(drawn.trim_end().len());
        drawn.push('\n');
    }
    drawn
}

/// Who uses whom below a folder: its first-level modules by name.
pub fn arrows(tree: &Tree, folder: &str) -> BTreeSet<(String, String)> {
    let inside = format!("{folder}/");
    let files = || {
        tree.files
            .iter()
            .filter(|(path, _)| path.starts_with(&inside) && path.ends_with(".rs"))
    };
    let module = |path: &str| {
        let rest = path.strip_prefix(&inside).unwrap_or_default();
        rest.split('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".rs")
            .to_owned()
    };
    let modules: BTreeSet<String> = files()
        .map(|(path, _)| module(path))
        .filter(|m| m != "mod")
        .collect();
    let name = folder.rsplit('/').next().unwrap_or_default();
    let mut arrows = BTreeSet::new();
    for (path, text) in files() {
        let from = module(path);
        if from == "mod" || path.ends_with("/tests.rs") || path.contains("/tests/") {
            continue;
        }
        // How far up the folder is: `super` of a file at its first level, one more for each folder below.
        let depth = path
            .strip_prefix(&inside)
            .unwrap_or_default()
            .matches('/')
            .count();
        let ups = "super::".repeat(depth + 1);
        let from_root = if name == "src" {
            "crate::".to_owned()
        } else {
            format!("crate::{name}::")
        };
        let mut uses = Uses::default();
        uses.visit_file(&parsed(path, text));
        for path in uses.0 {
            let rest = path.strip_prefix(&ups).or_else(|| path.strip_prefix(&from_root));
            let to = rest.and_then(|rest| rest.split("::").next()).unwrap_or_default();
            if modules.contains(to) && to != from {
                arrows.insert((from.clone(), to.to_owned()));
            }
        }
    }
    arrows
}

/// Paths that a file names, in `use` and elsewhere.
#[derive(Default)]
struct Uses(Vec<String>);

impl<'a> Visit<'a> for Uses {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.add(&item.tree, String::new());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.0.push(parts.join("::"));
        syn::visit::visit_path(self, path);
    }
}

impl Uses {
    fn add(&mut self, tree: &syn::UseTree, before: String) {
        match tree {
            syn::UseTree::Path(p) => self.add(&p.tree, format!("{before}{}::", p.ident)),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.add(t, before.clone())),
            syn::UseTree::Name(n) => self.0.push(format!("{before}{}", n.ident)),
            syn::UseTree::Rename(r) => self.0.push(format!("{before}{}", r.ident)),
            syn::UseTree::Glob(_) => self.0.push(before),
        }
    }
}

/// The arrows against [`order`].
pub(super) fn against(arrows: &BTreeSet<(String, String)>) -> Vec<&(String, String)> {
    let order = order(arrows);
    let place = |m: &str| order.iter().position(|f| *f == m);
    arrows.iter().filter(|(a, b)| place(a) > place(b)).collect()
}

/// The modules in an order that has few arrows against it (Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc
/// set problem", 1993).
fn order(arrows: &BTreeSet<(String, String)>) -> Vec<&str> {
    let mut left: BTreeSet<&str> = arrows
        .iter()
        .flat_map(|(a, b)| [a.as_str(), b.as_str()])
        .collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let out = |m: &str| {
            arrows
                .iter()
                .filter(|(a, b)| a == m && left.contains(b.as_str()))
                .count()
        };
        let into = |m: &str| {
            arrows
                .iter()
                .filter(|(a, b)| b == m && left.contains(a.as_str()))
                .count()
        };
        let sink = left.iter().copied().find(|m| out(m) == 0);
        let source = left.iter().copied().find(|m| into(m) == 0);
        let next = match (sink, source) {
            (Some(sink), _) => {
                last.push(sink);
                sink
            }
            (None, Some(source)) => {
                first.push(source);
                source
            }
            (None, None) => {
                let gain = |m: &&str| out(m) as isize - into(m) as isize;
                let Some(most) = left.iter().copied().max_by_key(gain) else {
                    break;
                };
                first.push(most);
                most
            }
        };
        left.remove(next);
    }
    last.reverse();
    first.extend(last);
    first
}

/// More than is known is a breach; less is one too, for the list is to follow.
pub(super) fn compare(
    found: &BTreeMap<String, usize>,
    known: Ceilings<'_>,
    what: &str,
    list: &str,
) -> Vec<Breach> {
    let ceiling = |name: &str| known.iter().find(|(of, _)| *of == name).map_or(0, |(_, n)| *n);
    let more = found.iter().filter(|(name, count)| **count > ceiling(name));
    let mut breaches: Vec<Breach> = more
        .map(|(name, n)| Breach::of(name.as_str(), format!("{n} {what}")))
        .collect();
    for (name, most) in known {
        let now = found.get(*name).copied().unwrap_or_default();
        if now < *most {
            let text = format!("{now} by now: the ceiling of {most} in {list} comes down");
            breaches.push(Breach::of(*name, text));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(breaches: &[Breach]) -> Vec<&str> {
        breaches.iter().map(|b| b.place.as_str()).collect()
    }

    #[test]
    fn wide_structs_say_why() {
        let named = |n: usize| "f: u8,".repeat(n);
        let found = |text: &str| fields(&Tree::of([("a/src/lib.rs", text)])).len();
        let wide = format!("pub(super) struct A<T> {{ {} }}", named(16));
        assert_eq!(found(&wide), 1);
        assert_eq!(found(&format!("#[cfg(test)] mod tests {{ {wide} }}")), 0);
        assert_eq!(
            found(&format!(
                "/// Of a row.\n// Wide: a row of a table.\n#[derive(Debug)]\n{wide}"
            )),
            0
        );
        assert_eq!(found(&format!("// Wide: why not.\n{wide}")), 1, "no reason");
        assert_eq!(
            found(&format!("// Wide: a row of a table.\nfn f() {{}}\n{wide}")),
            1,
            "another's"
        );
        let narrow = format!("// Wide: a row of a table.\nstruct A {{ {} }}", named(15));
        assert_eq!(found(&narrow), 1, "take it out");
        let made = format!("B {{ {} }}", "#[a(b)] f: Option<u8> => g;".repeat(16));
        assert_eq!(found(&format!("make! {{\n{made} }}")), 1);
        assert_eq!(
            found(&format!("make! {{\n// Wide: a row of a table.\n{made} }}")),
            0
        );
        assert_eq!(found("other!(1, 2);"), 0);
    }

    #[test]
    fn ceilings_only_fall() {
        let tree = Tree::of([("a/src/lib.rs", "#[allow(clippy::too_many_arguments)] fn f() {}")]);
        assert_eq!(calls(&tree, &[("a/src/lib.rs", 1)]), []);
        assert_eq!(
            places(&calls(&tree, &[("a/src/lib.rs", 2)])),
            ["a/src/lib.rs"],
            "lower it"
        );
        assert_eq!(
            places(&calls(&Tree::of([("a/src/lib.rs", "")]), &[("a/src/lib.rs", 1)])),
            ["a/src/lib.rs"],
            "take it out"
        );
    }

    #[test]
    fn types_that_are_spread_are_found() {
        let files = [
            "a/src/1.rs",
            "a/src/2.rs",
            "a/src/3.rs",
            "a/src/4.rs",
            "a/src/5.rs",
        ];
        let tree = Tree::of(files.map(|f| (f, "impl A { fn f() {} } impl Copy for A {}")));
        assert_eq!(places(&impls(&tree, &[])), ["a::A"]);
        let tree = Tree::of(files.map(|f| (f, "impl Copy for A {}")));
        assert_eq!(impls(&tree, &[]), []);
    }

    #[test]
    fn long_argument_lists_are_found() {
        let text = "#[allow(clippy::too_many_arguments)] fn f() {}
            impl A { #[expect(clippy::too_many_arguments, reason = \"a\")] fn g() {} #[allow(dead_code)] fn h() {} }";
        let tree = Tree::of([("a/src/lib.rs", text)]);
        assert_eq!(calls(&tree, &[("a/src/lib.rs", 2)]), []);
        assert_eq!(places(&calls(&tree, &[])), ["a/src/lib.rs"]);
    }

    #[test]
    fn uses_that_run_back_are_found() {
        let tree = Tree::of([
            ("x/src/d/mod.rs", "mod a; mod b; mod c;"),
            ("x/src/d/a.rs", "use super::b::B; use crate::d::c::{self, C};"),
            ("x/src/d/b.rs", "use super::c;"),
            ("x/src/d/c.rs", ""),
        ]);
        assert_eq!(arrows(&tree, "x/src/d").len(), 3);
        assert_eq!(backwards(&tree, &["x/src/d"], &[]), []);
        assert_eq!(
            drawing("x/src/d", &arrows(&tree, "x/src/d")),
            "x/src/d\n  a ▼ b c\n  b ▼ c\n  c\n"
        );
        let tree = Tree::of([
            ("x/src/d/a.rs", "use super::b::B;"),
            ("x/src/d/b/e.rs", "use super::super::a; use super::e;"),
        ]);
        assert_eq!(backwards(&tree, &["x/src/d"], &[("x/src/d", 1)]), []);
        assert_eq!(
            drawing("x/src/d", &arrows(&tree, "x/src/d")),
            "x/src/d\n  b ▼ a\n  a ▲ b\n"
        );
    }
}
