//! Files of a crate that use one another in circles, directly or through others.
//!
//! An arrow goes from a file to the file that *declares* what it names: in a `use`, in code, or in what is between the brackets of a macro.
//! A name that a module only passes on (`pub use`) leads to where it is declared, and passing on is no use. So a module that declares
//! nothing and holds its parts together is in no circle; a module whose parts use its types is in a circle with those that it uses. Methods
//! are not followed: a call names no file. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

use super::shape::{is_test, parsed};
use super::{Breach, Tree};

/// Files of a circle, at most.
const CIRCLE_MAX: usize = 3;

/// The names of a path, or of a module.
type Path = Vec<String>;

/// What a file holds, as a module of its crate.
#[derive(Default)]
struct Module {
    /// Its path in the project.
    file: String,
    /// What it imports: the name, the path of what it means, and whether it only passes it on.
    imports: BTreeMap<String, (Path, bool)>,
    /// Modules all of whose names it imports, likewise.
    globs: Vec<(Path, bool)>,
    /// What it declares.
    declares: BTreeSet<String>,
    /// Paths that it names elsewhere, each with the modules within the file where it does.
    names: Vec<(Path, Path)>,
}

/// The modules of a crate by path.
#[derive(Default)]
struct Crate(BTreeMap<Path, Module>);

/// Circles of more than `CIRCLE_MAX` files in the crates below these folders.
pub fn circles(tree: &Tree, folders: &[&str]) -> Vec<Breach> {
    let all = folders.iter().flat_map(|folder| of(tree, folder));
    let large = all.filter(|circle| circle.len() > CIRCLE_MAX);
    large
        .map(|circle| {
            let what = format!(
                "{} files use one another in a circle; {CIRCLE_MAX} are allowed",
                circle.len()
            );
            Breach::of(circle.join(" "), what)
        })
        .collect()
}

/// All circles of the crates below a folder, the largest first.
pub fn of(tree: &Tree, folder: &str) -> Vec<Vec<String>> {
    let arrows = crates(tree, folder).iter().flat_map(Crate::arrows).collect();
    components(&arrows)
}

/// The crates below a folder: each folder with a `lib.rs` or a `main.rs` holds one.
fn crates(tree: &Tree, folder: &str) -> Vec<Crate> {
    let inside = format!("{folder}/");
    let of_tests = |path: &str| path.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
    let files: Vec<(&str, &str)> = tree
        .ending(".rs")
        .filter(|(path, _)| path.starts_with(&inside) && !of_tests(path))
        .collect();
    let root = |path: &str| {
        let ends = ["/lib.rs", "/main.rs"];
        let found = ends.iter().find_map(|end| path.strip_suffix(end));
        found.map(str::to_owned)
    };
    let roots: BTreeSet<String> = files.iter().filter_map(|(path, _)| root(path)).collect();
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for (path, text) in &files {
        let rest = |root: &String| {
            path.strip_prefix(root.as_str())?
                .strip_prefix('/')
                .map(str::to_owned)
        };
        let held = roots.iter().filter_map(|root| Some((root, rest(root)?)));
        let Some((root, rest)) = held.max_by_key(|(root, _)| root.len()) else {
            continue;
        };
        let name = rest.trim_end_matches(".rs");
        let mut module: Path = name.split('/').map(str::to_owned).collect();
        if name.ends_with("/mod") || matches!(name, "mod" | "lib" | "main") {
            module.pop();
        }
        let one = crates.entry(root).or_default();
        one.0.insert(module, Module::read(path, text));
    }
    crates.into_values().collect()
}

impl Module {
    fn read(path: &str, text: &str) -> Module {
        let file = parsed(path, text);
        let mut reader = Reader::default();
        reader.module.file = path.to_owned();
        reader.module.declares = file.items.iter().filter_map(declared).collect();
        reader.visit_file(&file);
        reader.module
    }
}

/// The name that an item declares.
fn declared(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Mod(i) => &i.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Reads a file: what it imports, and which paths it names.
#[derive(Default)]
struct Reader {
    module: Module,
    /// Modules in the file that are being read.
    within: Path,
}

impl<'a> Visit<'a> for Reader {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            self.within.push(module.ident.to_string());
            syn::visit::visit_item_mod(self, module);
            self.within.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        if !is_test(&item.attrs) {
            self.import(&item.tree, &mut Vec::new(), passes_on);
        }
    }

    /// `pub(super)` names no item.
    fn visit_vis_restricted(&mut self, _: &'a syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.module.names.push((self.within.clone(), parts));
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        for path in paths(&item.tokens.to_string()) {
            self.module.names.push((self.within.clone(), path));
        }
        syn::visit::visit_macro(self, item);
    }
}

impl Reader {
    fn import(&mut self, tree: &UseTree, before: &mut Path, passes_on: bool) {
        match tree {
            UseTree::Path(p) => {
                before.push(p.ident.to_string());
                self.import(&p.tree, before, passes_on);
                before.pop();
            }
            UseTree::Group(g) => g.items.iter().for_each(|t| self.import(t, before, passes_on)),
            UseTree::Name(n) => self.add(&n.ident, &n.ident, before, passes_on),
            UseTree::Rename(r) => self.add(&r.ident, &r.rename, before, passes_on),
            UseTree::Glob(_) => self.module.globs.push((before.clone(), passes_on)),
        }
    }

    fn add(&mut self, name: &syn::Ident, known_as: &syn::Ident, before: &Path, passes_on: bool) {
        let mut path = before.clone();
        let mut known_as = known_as.to_string();
        if name == "self" {
            known_as = path.last().cloned().unwrap_or_default();
        } else {
            path.push(name.to_string());
        }
        // In a module within the file, `super` is the file.
        if self.within.is_empty() || path.first().is_none_or(|first| first != "super") {
            self.module.imports.insert(known_as, (path, passes_on));
        }
    }
}

/// The paths in a text of Rust; strings are left out.
fn paths(text: &str) -> Vec<Path> {
    let outside: Vec<&str> = text.split('"').step_by(2).collect();
    let text = outside.join(" ").replace(" :: ", "::");
    let words = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')));
    let path = |word: &str| word.split("::").map(str::to_owned).collect::<Path>();
    words.filter(|word| !word.is_empty()).map(path).collect()
}

impl Crate {
    /// Which file names what is declared in which other one.
    fn arrows(&self) -> BTreeSet<(String, String)> {
        let mut arrows = BTreeSet::new();
        for (at, module) in &self.0 {
            let used =
                |(path, passes_on): &(Path, bool)| (!passes_on).then(|| self.find(at, path, 0)).flatten();
            let mut found: Vec<&Module> = module
                .imports
                .values()
                .chain(&module.globs)
                .filter_map(used)
                .collect();
            for (within, path) in &module.names {
                let at: Path = at.iter().chain(within).cloned().collect();
                // Code names items: a module's name alone is that of a variable or a field.
                let alone = path.len() == 1 && self.0.contains_key(&[&at[..], &path[..]].concat());
                found.extend(self.find(&at, path, 0).filter(|_| !alone));
            }
            let others = found.into_iter().filter(|to| to.file != module.file);
            arrows.extend(others.map(|to| (module.file.clone(), to.file.clone())));
        }
        arrows
    }

    /// The module that declares what `path` means in module `at`; nothing: it is not of this crate.
    fn find(&self, at: &[String], path: &[String], depth: usize) -> Option<&Module> {
        // Imports may lead to one another.
        if depth > 16 {
            return None;
        }
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => self.walk(Vec::new(), &path[1..], depth),
            "self" => self.walk(at.to_vec(), &path[1..], depth),
            "super" => self.walk(at[..at.len().checked_sub(ups)?].to_vec(), &path[ups..], depth),
            first => {
                let mut child = at.to_vec();
                child.push(first.to_owned());
                if self.0.contains_key(&child) {
                    return self.walk(child, &path[1..], depth);
                }
                let (import, _) = self.0.get(at)?.imports.get(first)?;
                let target: Path = import.iter().chain(&path[1..]).cloned().collect();
                self.find(at, &target, depth + 1)
            }
        }
    }

    /// From a module on, along a path.
    fn walk(&self, mut at: Path, path: &[String], depth: usize) -> Option<&Module> {
        for (i, part) in path.iter().enumerate() {
            at.push(part.clone());
            if self.0.contains_key(&at) {
                continue;
            }
            at.pop();
            let module = self.0.get(&at)?;
            if module.declares.contains(part) {
                return Some(module);
            }
            if let Some((import, _)) = module.imports.get(part) {
                let target: Path = import.iter().chain(&path[i + 1..]).cloned().collect();
                return self.find(&at, &target, depth + 1).or(Some(module));
            }
            let passed = module
                .globs
                .iter()
                .filter_map(|(glob, _)| self.find(&at, glob, depth + 1));
            let declares = |module: &&Module| module.declares.contains(part);
            return passed.into_iter().find(declares).or(Some(module));
        }
        self.0.get(&at)
    }
}

/// Files that all lead to one another, the largest circle first.
fn components(arrows: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in next.keys() {
        let (mut seen, mut left) = (BTreeSet::new(), vec![*file]);
        while let Some(at) = left.pop() {
            left.extend(next.get(at).into_iter().flatten().filter(|to| seen.insert(**to)));
        }
        reached.insert(file, seen);
    }
    let mut found: Vec<Vec<String>> = Vec::new();
    for (file, all) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|all| all.contains(file));
        let circle: Vec<String> = all.iter().filter(back).map(|f| (*f).to_owned()).collect();
        // Each circle once: when its first file is looked at.
        if circle.len() > 1 && circle.first().is_some_and(|first| first == file) {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<Vec<String>> {
        of(&Tree::of(files), "x/src")
    }

    #[test]
    fn circles_go_through_whoever_declares() {
        // `d` only passes on what `a` and `b` use of one another.
        let circles = found([
            ("x/src/lib.rs", "mod d; pub use d::A;"),
            (
                "x/src/d/mod.rs",
                "mod a; mod b; mod c; pub use a::A; pub use b::*;",
            ),
            ("x/src/d/a.rs", "use super::B; pub struct A;"),
            ("x/src/d/b.rs", "pub struct B; fn f() { crate::d::c::g() }"),
            ("x/src/d/c.rs", "pub fn g() { println!(\"{}\", crate::A::NAME) }"),
        ]);
        assert_eq!(circles, [["x/src/d/a.rs", "x/src/d/b.rs", "x/src/d/c.rs"]]);
    }

    #[test]
    fn a_module_and_parts_that_use_its_types_are_a_circle() {
        let part = "use super::T; pub fn f(_: T) {}";
        let files = [
            ("x/src/lib.rs", "mod d;"),
            ("x/src/d.rs", "mod a; mod b; pub struct T; fn f() { a::f(T) }"),
            ("x/src/d/a.rs", part),
            ("x/src/d/b.rs", part),
        ];
        assert_eq!(found(files), [["x/src/d.rs", "x/src/d/a.rs"]]);
    }

    #[test]
    fn tests_strings_and_visibility_name_nothing() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b;"),
            ("x/src/a.rs", "use crate::b::B; pub(super) struct A;"),
            (
                "x/src/b.rs",
                "pub struct B; const T: &str = concat!(\"crate::a::A\"); #[cfg(test)] mod tests { use crate::a::A; }",
            ),
        ];
        assert!(found(files).is_empty());
    }

    #[test]
    fn variables_name_no_modules() {
        let part = "use super::T; pub fn f(_: T) {}";
        let file = |text: &str| {
            let text = format!("mod a; pub struct T; fn f() {{ {text} }}");
            let files = [
                ("x/src/lib.rs", "mod d;"),
                ("x/src/d.rs", &text),
                ("x/src/d/a.rs", part),
            ];
            found(files).len()
        };
        assert_eq!(file("let a = 1; g(a); h!(s.a, a)"), 0);
        assert_eq!(file("a::f(T)"), 1);
        assert_eq!(file("h!(a::f(T))"), 1);
    }

    #[test]
    fn crates_in_a_folder_are_crates_of_their_own() {
        let files = [
            ("x/src/main.rs", "mod a;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "pub struct B;"),
            ("x/src/y/main.rs", "mod a; mod b;"),
            ("x/src/y/a.rs", "use crate::b::B; pub struct A;"),
            ("x/src/y/b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(found(files), [["x/src/y/a.rs", "x/src/y/b.rs"]]);
    }

    #[test]
    fn large_circles_are_breaches() {
        let file = |next: &str| format!("use crate::{next}::T as N; pub struct T;");
        let (a, b, c, d) = (file("b"), file("c"), file("d"), file("a"));
        let tree = Tree::of([
            ("x/src/lib.rs", ""),
            ("x/src/a.rs", &a),
            ("x/src/b.rs", &b),
            ("x/src/c.rs", &c),
            ("x/src/d.rs", &d),
        ]);
        assert_eq!(circles(&tree, &["x/src"]).len(), 1);
        assert_eq!(circles(&tree, &["y/src"]), []);
    }
}
