//! Rules for the shape of the product's types: how many fields, how many files an `impl` is spread over, how long argument lists are, and
//! which way its files know one another. What is there already and is too much stands in a list; the lists only get shorter.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, TraitItem, Type};

use super::{Breach, Tree};

/// Where the ceilings of this file are.
const LIST: &str = "tests/src/house/shape.rs";
/// Fields of a struct, at most.
const FIELDS_MAX: usize = 15;
/// Files with an inherent `impl` of a type, at most.
const FILES_MAX: usize = 4;

/// What a count may be at most, and where: types, or files.
pub type Ceilings<'a> = &'a [(&'static str, usize)];

/// Structs with more fields.
pub const WIDE: Ceilings<'static> = &[
    ("appliance::AdapterAdd", 17),
    ("appliance::FaultAdd", 21),
    ("guest-lib::Qp", 16),
    ("guest-lib::Shared", 17),
    ("vnic-backend/engine::KeyDef", 17),
    ("vnic-backend/engine::Limits", 22),
    ("vnic-backend/engine::Parameters", 21),
    ("vnic-backend/engine::QosKeys", 16),
    ("vnic-backend/engine::QpAttributes", 19),
    ("vnic-backend/engine::Requester", 16),
    ("vnic-backend/engine::Shared", 35),
    ("vnic-backend/engine::Statistics", 19),
    ("vnic-backend/fabric::Egress", 19),
    ("vnic-backend/fabric::Port", 17),
    ("vnic-backend/sim::FlowsTable", 16),
    ("vnic-backend/sim::Oracle", 23),
    ("vnic-backend/sim::Plan", 16),
    ("vnic-backend/sim::Qp", 21),
    ("vnic-backend/sim::Send", 20),
    ("vnic-backend/sim::World", 24),
    ("vnic-backend::Function", 20),
    ("vnic-backend::Receiver", 19),
];
/// Types with an `impl` in more files.
pub const SPREAD: Ceilings<'static> = &[
    ("guest-lib::ProtectionDomain", 5),
    ("guest-lib::Shared", 5),
    ("vnic-backend/engine::Device", 6),
    ("vnic-backend/engine::Qp", 13),
    ("vnic-backend::Core", 10),
    ("vnic-backend::Function", 10),
    ("vnic-backend::Inner", 10),
    ("vnic-backend::Nic", 9),
    ("vnic-backend::Outputs", 6),
];
/// Functions with an argument list that needs an allowance, by file.
pub const LONG_CALLS: Ceilings<'static> = &[
    ("vnic-backend/engine/src/rdma/qp/completer.rs", 1),
    ("vnic-backend/engine/src/rdma/region.rs", 1),
    ("vnic-backend/sim/src/oracle/keys.rs", 1),
];
/// Uses that run back within a folder: files that know each other in circles.
pub const BACKWARDS: Ceilings<'static> = &[
    ("vnic-backend/src", 2),
    ("vnic-backend/src/datapath", 8),
    ("vnic-backend/src/rdma", 2),
];

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

/// Structs with more than `FIELDS_MAX` fields.
pub fn fields(tree: &Tree, known: Ceilings<'_>) -> Vec<Breach> {
    let mut found = BTreeMap::new();
    for (path, file) in sources(tree) {
        for item in items(&file) {
            let Item::Struct(s) = item else { continue };
            let count = match &s.fields {
                Fields::Named(named) => named.named.len(),
                _ => 0,
            };
            if count > FIELDS_MAX {
                let most: &mut usize = found.entry(format!("{}::{}", room(path), s.ident)).or_default();
                *most = count.max(*most);
            }
        }
    }
    compare(
        &found,
        known,
        &format!("fields; {FIELDS_MAX} are allowed: part it by what lives together"),
        LIST,
    )
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
        let back = against(&arrows);
        let drawn: String = back.iter().map(|(a, b)| format!(" {a}->{b}")).collect();
        let found = BTreeMap::from([((*folder).to_owned(), back.len())]);
        let known: Vec<_> = known.iter().copied().filter(|(of, _)| of == folder).collect();
        breaches.extend(compare(
            &found,
            &known,
            &format!("uses that run back:{drawn}"),
            LIST,
        ));
    }
    breaches
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

/// The arrows against an order that has few of them (Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc
/// set problem", 1993).
pub(super) fn against(arrows: &BTreeSet<(String, String)>) -> Vec<&(String, String)> {
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
    let place = |m: &str| first.iter().position(|f| *f == m);
    arrows.iter().filter(|(a, b)| place(a) > place(b)).collect()
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
    fn wide_structs_are_found_and_ceilings_only_fall() {
        let wide = format!(
            "struct A {{ {} }}\n#[cfg(test)] mod tests {{ struct B {{ {0} }} }}",
            "f: u8,".repeat(16)
        );
        let tree = Tree::of([("a/src/lib.rs", wide.as_str())]);
        assert_eq!(places(&fields(&tree, &[])), ["a::A"]);
        assert_eq!(fields(&tree, &[("a::A", 16)]), []);
        assert_eq!(places(&fields(&tree, &[("a::A", 17)])), ["a::A"], "lower it");
        assert_eq!(
            places(&fields(&Tree::of([("a/src/lib.rs", "")]), &[("a::A", 16)])),
            ["a::A"],
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
        let tree = Tree::of([
            ("x/src/d/a.rs", "use super::b::B;"),
            ("x/src/d/b/e.rs", "use super::super::a; use super::e;"),
        ]);
        assert_eq!(backwards(&tree, &["x/src/d"], &[("x/src/d", 1)]), []);
    }
}
