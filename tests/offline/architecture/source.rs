//! Reads the sources of the program and of its core: which file uses what of them, without a compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A file of a folder of sources, as its path in that folder without `.rs`.
pub type Module = Vec<String>;

/// A path of these crates that stands in a source file.
#[derive(Debug)]
pub struct Import {
    pub from: Module,
    pub path: Module,
    line: usize,
}

impl Import {
    /// For people: `src/a/b.rs:7`.
    pub fn place(&self) -> String {
        place(&self.from, self.line)
    }
}

/// Every source file that is not only for tests.
pub struct Sources {
    pub modules: BTreeSet<Module>,
    pub imports: Vec<Import>,
    /// Where a type of each name is defined, as `src/a/b.rs:7`.
    pub types: BTreeMap<String, Vec<String>>,
    /// Every text literal, with its place, as `src/a/b.rs:7`.
    pub texts: Vec<(String, String)>,
    /// Where a name stands that a module hands on.
    handed_on: BTreeMap<(Module, String), Module>,
}

impl Sources {
    pub fn read() -> Self {
        let mut sources = Vec::new();
        for root in roots() {
            for path in files(&root) {
                let module = path.strip_prefix(&root).unwrap().with_extension("");
                let module: Module = module
                    .iter()
                    .map(|part| part.to_str().unwrap().to_owned())
                    .collect();
                sources.push(Source::of(module, &fs::read_to_string(&path).unwrap()));
            }
        }
        let tests: Vec<Module> = sources
            .iter()
            .flat_map(|source| {
                source
                    .tests
                    .iter()
                    .map(|name| [&source.module[..], std::slice::from_ref(name)].concat())
            })
            .collect();
        sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
        assert!(sources.len() > 100, "the sources were found");
        let mut read = Sources {
            modules: BTreeSet::new(),
            imports: Vec::new(),
            types: BTreeMap::new(),
            texts: Vec::new(),
            handed_on: BTreeMap::new(),
        };
        for source in sources {
            for used in source.uses {
                if let Some(name) = used.public_as {
                    read.handed_on
                        .insert((source.module.clone(), name), used.path.clone());
                }
                read.imports.push(Import {
                    from: source.module.clone(),
                    path: used.path,
                    line: used.line,
                });
            }
            let place = |line: usize| place(&source.module, line);
            for (name, line) in source.types {
                read.types.entry(name).or_default().push(place(line));
            }
            let texts = source.texts.into_iter();
            read.texts
                .extend(texts.map(|token| (place(token.line), token.text)));
            read.modules.insert(source.module);
        }
        read
    }

    /// The file that a path leads to: past every module that only hands the name on.
    pub fn resolve(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        loop {
            let depth = (0..=path.len())
                .rev()
                .find(|depth| self.modules.contains(&path[..*depth]));
            let depth = depth.unwrap_or_default();
            let module = path[..depth].to_vec();
            let Some(name) = path.get(depth) else {
                return module;
            };
            match self.handed_on.get(&(module.clone(), name.clone())) {
                Some(onward) if *onward != path => path = [&onward[..], &path[depth + 1..]].concat(),
                _ => return module,
            }
        }
    }
}

/// What one source file uses of its own crate.
struct Source {
    module: Module,
    uses: Vec<Used>,
    /// The types that it defines outside of functions, each with its line.
    types: Vec<(String, usize)>,
    /// Its text literals, with their quotes.
    texts: Vec<Token>,
    /// Its modules that are only for tests and stand in files of their own.
    tests: Vec<String>,
}

struct Used {
    path: Module,
    line: usize,
    /// The name under which it is handed on.
    public_as: Option<String>,
}

struct Token {
    text: String,
    line: usize,
}

impl Source {
    fn of(module: Module, text: &str) -> Self {
        let mut tests = Vec::new();
        let (texts, tokens): (Vec<Token>, Vec<Token>) = without_tests(tokens(text), &mut tests)
            .into_iter()
            .partition(|token| token.text.starts_with('"'));
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let mut source = Source {
            module,
            uses: Vec::new(),
            types: types(&tokens),
            texts,
            tests,
        };
        let (mut at, mut inline) = (0, Vec::new());
        while at < tokens.len() {
            let starts = matches!(text(at), "crate" | "self" | "super") && text(at + 1) == "::";
            if text(at) == "use" && text(at + 1) != "<" {
                let public = at > 0 && matches!(text(at - 1), "pub" | ")");
                at += 1;
                source.tree(&tokens, &mut at, &[], public);
            } else if starts && text(at.wrapping_sub(1)) != "::" {
                let (line, mut path) = (tokens[at].line, vec![text(at).to_owned()]);
                while text(at + 1) == "::" && is_name(text(at + 2)) {
                    path.push(text(at + 2).to_owned());
                    at += 2;
                }
                inline.extend(source.own(&path).map(|path| Used {
                    path,
                    line,
                    public_as: None,
                }));
            } else {
                let is_inline = text(at) == "mod" && text(at + 2) == "{";
                assert!(
                    !is_inline,
                    "a module of src has a file: {}:{}",
                    source.module.join("/"),
                    tokens[at].line
                );
            }
            at += 1;
        }
        source.uses.extend(inline);
        source
    }

    /// One branch of a `use`; ends at the token after it.
    fn tree(&mut self, tokens: &[Token], at: &mut usize, before: &[String], public: bool) {
        let mut path = before.to_vec();
        let line = tokens[*at].line;
        let mut name = None;
        while let Some(token) = tokens.get(*at) {
            match token.text.as_str() {
                "{" => {
                    *at += 1;
                    while tokens[*at].text != "}" {
                        self.tree(tokens, at, &path, public);
                        if tokens[*at].text == "," {
                            *at += 1;
                        }
                    }
                    *at += 1;
                    return;
                }
                "," | "}" | ";" => break,
                "as" => {
                    name = Some(tokens[*at + 1].text.clone());
                    *at += 1;
                }
                "::" | "*" => {}
                "self" if !path.is_empty() => {}
                part => path.push(part.to_owned()),
            }
            *at += 1;
        }
        let name = name.or_else(|| path.last().cloned());
        if let Some(path) = self.own(&path) {
            self.uses.push(Used {
                path,
                line,
                public_as: name.filter(|_| public),
            });
        }
    }

    /// The path from the root of the crate; `None` for another crate's.
    fn own(&self, path: &[String]) -> Option<Module> {
        let mut from = self.module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => from.clear(),
            // `main` is a crate of its own, and uses ours by its name.
            "transom" if self.module == ["main"] => from.clear(),
            "self" => {}
            "super" => {
                while rest.get(1).is_some_and(|part| part == "super") {
                    from.pop();
                    rest = &rest[1..];
                }
                from.pop();
            }
            // A child of this module, without `self::`.
            child => {
                let file = format!("{}/{child}.rs", self.module.join("/"));
                let is_there = roots().iter().any(|root| root.join(&file).exists());
                return is_there.then(|| [&from[..], path].concat());
            }
        }
        Some([&from[..], &rest[1..]].concat())
    }
}

/// The structs, enums, aliases and traits that a file defines, without those within functions and other items.
fn types(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut depth = 0_i32;
    let mut types = Vec::new();
    for pair in tokens.windows(2) {
        let [keyword, name] = [&pair[0], &pair[1]].map(|token| token.text.as_str());
        depth += i32::from(keyword == "{") - i32::from(keyword == "}");
        if depth == 0 && matches!(keyword, "struct" | "enum" | "type" | "trait") && is_name(name) {
            types.push((name.to_owned(), pair[1].line));
        }
    }
    types
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The tokens of a source file without comments and characters: names, texts, `::`, and every other sign alone.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if is_name(rest) {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else if first == '"' {
            quoted(&text[..text.len() - rest.len()], rest)
        } else if rest.starts_with("'\\") {
            3 + rest[3..].find('\'').map_or(0, |at| at + 1)
        } else if first == '\'' && rest.chars().nth(2) == Some('\'') {
            rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at)
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        if is_name(token) || !token.starts_with(|c: char| c.is_whitespace() || matches!(c, '/' | '\'')) {
            tokens.push(Token {
                text: token.to_owned(),
                line,
            });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// How long a text literal is, with its quotes, by what stands before it.
fn quoted(before: &str, text: &str) -> usize {
    let open = before.trim_end_matches('#');
    if open.ends_with('r') {
        let close = format!("\"{}", "#".repeat(before.len() - open.len()));
        return 1 + text[1..].find(&close).map_or(0, |at| at + close.len());
    }
    let mut escaped = false;
    let end = text[1..].find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

/// Leaves out every item under `#[cfg(test)]`; the names of modules among them that have files go to `files`.
fn without_tests(tokens: Vec<Token>, files: &mut Vec<String>) -> Vec<Token> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        kept.push(token);
        let attribute = kept.len().checked_sub(TEST.len()).map(|start| &kept[start..]);
        if !attribute.is_some_and(|end| end.iter().map(|token| token.text.as_str()).eq(TEST)) {
            continue;
        }
        kept.truncate(kept.len() - TEST.len());
        let (mut depth, mut item) = (0_i32, Vec::new());
        for token in tokens.by_ref() {
            let text = token.text.as_str();
            depth += i32::from(matches!(text, "{" | "(" | "[")) - i32::from(matches!(text, "}" | ")" | "]"));
            let ends = depth == 0 && matches!(text, ";" | "}");
            item.push(token.text);
            if ends {
                break;
            }
        }
        if let [.., keyword, name, end] = &item[..]
            && (keyword.as_str(), end.as_str()) == ("mod", ";")
        {
            files.push(name.clone());
        }
    }
    kept
}

const ROOTS: [&str; 2] = ["src", "crates/core/src"];

/// The folders of the sources: the program, and its core.
pub fn roots() -> [PathBuf; 2] {
    ROOTS.map(|root| Path::new(env!("CARGO_MANIFEST_DIR")).join(root))
}

/// For people: `src/a/b.rs:7`.
fn place(module: &Module, line: usize) -> String {
    let file = format!("{}.rs", module.join("/"));
    let is_there = |root: &&str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(root)
            .join(&file)
            .is_file()
    };
    let root = ROOTS.into_iter().find(is_there).unwrap();
    format!("{root}/{file}:{line}")
}

/// Every source file below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_reader_of_sources_sees_what_it_should() {
    let text = r##"
        //! use crate::comment;
        use std::fmt;
        pub use crate::a::{
            B as C, // use crate::other;
            d::{self, E},
        };
        #[cfg(test)]
        mod tests;
        #[cfg(test)]
        #[rustfmt::skip]
        mod inner { use crate::tested; }
        fn f<'a>(c: char) -> &'a str { super::x::y(c == '"'); crate::n::M; r#"use crate::string;"# }
        use self::below::Z;
        #[derive(Debug)]
        pub(super) struct S<'a> { field: &'a str }
        impl Iterator for S<'_> { type Item = u8; }
        fn g() { enum Inner {} }
        type T = S<'static>;
    "##;
    let source = Source::of(vec!["module".to_owned(), "file".to_owned()], text);
    let seen: Vec<String> = source.uses.iter().map(|used| used.path.join("::")).collect();
    assert_eq!(
        seen,
        [
            "a::B",
            "a::d",
            "a::d::E",
            "module::file::below::Z",
            "module::x::y",
            "n::M"
        ]
    );
    assert_eq!(source.tests, ["tests"]);
    let types: Vec<&str> = source.types.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(types, ["S", "T"]);
    assert_eq!(source.uses[1].line, 6);
    let texts: Vec<&str> = source.texts.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(texts, ["\"use crate::string;\"#"]);
}
