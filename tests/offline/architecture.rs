//! The order of the modules of the program and its core, that every import keeps to it, and that names of types are unique: read from the sources,
//! without a compiler.

mod source;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use transom::rules::catalogue;

use self::source::{Import, Module, Sources};

/// Every module, lowest first, with the modules that it may use. This is where the order stands; `src/lib.rs` and
/// `docs/contributing/architecture.md` draw it.
#[rustfmt::skip]
const MODULES: [(&str, &str); 26] = [
    ("model",        ""),
    ("process",      ""),
    ("rules",        "model"),
    ("engine",       "model rules"),
    ("plan",         "model rules engine"),
    ("drain",        "model plan"),
    ("admission",    "model rules engine"),
    ("manifest",     "model"),
    ("registration", "model engine"),
    ("api",          "model rules engine manifest"),
    ("check",        "model process rules engine manifest api"),
    ("fix",          "model rules engine manifest check"),
    ("audit_log",    "model process"),
    ("registry",     "model process"),
    ("image_report", "model"),
    ("tls",          "process"),
    ("cluster",      "model engine registration api process"),
    ("scan",         "model rules engine admission registration cluster"),
    ("render",       "model rules engine plan drain manifest check audit_log image_report scan"),
    ("preflight",    "model rules engine plan manifest registration api cluster scan render"),
    ("certs",        "model process tls cluster"),
    ("controller",   "model rules engine plan registration api process registry cluster scan"),
    ("webhook",      "model admission process tls"),
    ("serve",        "model rules engine admission registration api check process tls cluster certs \
                      registry controller webhook"),
    ("cli",          "model rules engine plan drain manifest registration api check fix audit_log image_report render process registry tls \
                      cluster scan preflight controller webhook serve"),
    ("main",         "process cli"),
];

#[test]
fn a_module_uses_only_modules_below_it() {
    for (at, (module, uses)) in MODULES.iter().enumerate() {
        for used in uses.split_whitespace() {
            let below = MODULES[..at].iter().any(|(name, _)| *name == used);
            assert!(
                below,
                "the table lets {module} use {used}, which does not stand above it"
            );
        }
    }
    let sources = Sources::read();
    for (module, _) in MODULES {
        assert!(
            sources.modules.contains(&vec![module.to_owned()]),
            "there is no module {module}"
        );
    }
    let mut wrong = Vec::new();
    for import in &sources.imports {
        let (Some(module), Some(used)) = (import.from.first(), import.path.first()) else {
            continue;
        };
        let Some((_, uses)) = MODULES.iter().find(|(name, _)| name == module) else {
            assert_eq!(module, "lib", "{} is in no module of the table", import.place());
            continue;
        };
        if module != used && is_module(used) && !uses.split_whitespace().any(|name| name == used) {
            let path = import.path.join("::");
            wrong.push(format!("{}: {module} must not use {path}", import.place()));
        }
    }
    assert!(wrong.is_empty(), "imports run back:\n{}", wrong.join("\n"));
    for (module, uses) in MODULES {
        for used in uses.split_whitespace() {
            let is_used = |import: &Import| {
                import.from.first().is_some_and(|from| from == module)
                    && import.path.first().is_some_and(|path| path == used)
            };
            assert!(
                sources.imports.iter().any(is_used),
                "the table lets {module} use {used}, which it does not"
            );
        }
    }
    for module in sources.modules.iter().filter(|module| module.len() == 1) {
        assert!(
            module[0] == "lib" || is_module(&module[0]),
            "{} is in no module of the table",
            module[0]
        );
    }
}

/// The compiler sees that the core uses no other crate, and its clippy.toml refuses what of the standard library is outside
/// of a function's arguments. None of these reads a clock, a file or the network.
#[test]
fn the_core_depends_only_on_pure_crates() {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/core/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap();
    let names = dependencies.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = names.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    let pure = [
        "serde",
        "serde_json",
        "serde_path_to_error",
        "base64",
        "memchr",
        "libyaml-safer",
        "jiff",
        "json-patch",
        "schemars",
        "similar",
        "sha2",
        "strsim",
        "thiserror",
    ];
    assert_eq!(names, pure);
}

/// Pages, expired tokens and retries of a list are in `cluster/list.rs`: the client of kube reads one page, once.
#[test]
fn only_one_file_lists_objects() {
    for path in source::roots().iter().flat_map(|root| source::files(root)) {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in [
            "ListParams",
            ".list_metadata(",
            "?labelSelector=",
            "&labelSelector=",
        ] {
            assert!(
                path.ends_with("cluster/list.rs") || !text.contains(word),
                "{}: {word}: lists are read with cluster/list.rs",
                path.display()
            );
        }
    }
}

/// A user of the program does not have these pages: a message says what to do, or names a command.
#[test]
fn no_message_names_a_page_of_the_documentation() {
    let names_a_page = |text: &str| {
        let mut words = text.split(|c: char| c.is_whitespace() || "\"'`([".contains(c));
        words.any(|word| word.starts_with("docs/") && word.contains(".md"))
    };
    let mut texts = Sources::read().texts;
    assert!(texts.len() > 1000, "{} texts were found", texts.len());
    // The examples there write the pages.
    texts.retain(|(place, _)| !place.starts_with("src/cli/generate.rs:"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("charts/transom/templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            texts.push((
                path.display().to_string(),
                std::fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    let wrong: Vec<String> = texts
        .iter()
        .filter(|(_, text)| names_a_page(text))
        .map(|(place, _)| place.clone())
        .collect();
    assert!(wrong.is_empty(), "these texts name a page:\n{}", wrong.join("\n"));
}

/// What is known about a rule is in its static, and other code names the static, so that a list of names elsewhere cannot
/// lack a new rule. A name without a hyphen, such as `privileged`, is the name of a field or of a profile too.
#[test]
fn only_the_catalogue_names_rules_in_texts() {
    let names: Vec<&str> = catalogue().map(|rule| rule.name).collect();
    let is_id = |word: &str| word.strip_prefix("TSM").is_some_and(|number| number.len() == 3);
    let is_rule = |word: &str| is_id(word) || word.contains('-') && names.contains(&word);
    let names_a_rule = |text: &str| {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.any(is_rule)
    };
    let mut texts = Sources::read().texts;
    // The help of commands shows examples.
    texts.retain(|(place, _)| {
        let is_help = place.starts_with("src/cli.rs") || place.starts_with("src/cli/");
        !is_help && !place.starts_with("crates/core/src/rules")
    });
    let wrong: Vec<&str> = (texts.iter().filter(|(_, text)| names_a_rule(text)))
        .map(|(place, _)| place.as_str())
        .collect();
    assert!(wrong.is_empty(), "these texts name a rule:\n{}", wrong.join("\n"));
}

/// The lint `missing_docs` would also require a comment on each field and variant that its name explains.
#[test]
fn public_items_are_documented() {
    const ITEMS: [&str; 9] = [
        "fn ",
        "async fn ",
        "const fn ",
        "struct ",
        "enum ",
        "trait ",
        "type ",
        "const ",
        "static ",
    ];
    let is_item = |line: &str| {
        let named = line.strip_prefix("pub ");
        named.is_some_and(|rest| ITEMS.iter().any(|item| rest.starts_with(item)))
    };
    let (mut wrong, mut documented) = (Vec::new(), 0);
    for path in source::roots().iter().flat_map(|root| source::files(root)) {
        // The commands' functions are `run`, and clap prints the comments of their arguments.
        if path.ends_with("tests.rs")
            || path.components().any(|part| part.as_os_str() == "cli")
            || path.ends_with("src/cli.rs")
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut has_comment = false;
        // Of a file, only the end is for tests. A macro is given the comments of what it defines.
        let lines = text.lines().map(str::trim_start);
        for (at, line) in lines
            .take_while(|line| !line.ends_with("mod tests {"))
            .enumerate()
        {
            if line.starts_with("///") || line.starts_with("$(#[") {
                has_comment = true;
            } else if is_item(line) {
                documented += usize::from(has_comment);
                if !std::mem::take(&mut has_comment) {
                    wrong.push(format!("{}:{}: {line}", path.display(), at + 1));
                }
            } else if line.is_empty() || line == "}" {
                has_comment = false;
            }
        }
    }
    assert!(documented > 2000, "{documented} items were found");
    assert!(wrong.is_empty(), "without a comment:\n{}", wrong.join("\n"));
}

/// A type can be searched for by its name, and a sentence about it needs no path.
#[test]
fn each_type_has_a_name_of_its_own() {
    let types = Sources::read().types;
    assert!(types.len() > 500, "{} types were found", types.len());
    let shared = types.iter().filter(|(_, places)| places.len() > 1);
    let shared: Vec<String> = shared
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(shared.is_empty(), "types share a name:\n{}", shared.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let sources = Sources::read();
    let mut floors: BTreeMap<Module, Graph<'_>> = BTreeMap::new();
    for import in &sources.imports {
        let to = sources.resolve(&import.path);
        let same = import.from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        // A parent and what is below it may know each other; of two others, the branches are compared at which they part.
        if same < import.from.len() && same < to.len() {
            let floor = floors.entry(import.from[..same].to_vec()).or_default();
            let edges = floor.entry(import.from[same].clone()).or_default();
            edges.entry(to[same].clone()).or_insert(import);
        }
    }
    let circles = floors.iter().flat_map(|(parent, graph)| circles(parent, graph));
    let circles: Vec<String> = circles.collect();
    assert!(
        circles.is_empty(),
        "files import each other:\n{}",
        circles.join("\n")
    );
}

type Graph<'a> = BTreeMap<String, BTreeMap<String, &'a Import>>;

fn is_module(name: &str) -> bool {
    MODULES.iter().any(|(module, _)| *module == name)
}

/// Every circle of a graph that has not been told yet, each once, with one import for every step.
fn circles(parent: &[String], graph: &Graph<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    for start in graph.keys() {
        if reported.contains(start.as_str()) {
            continue;
        }
        if let Some(circle) = way_back(graph, start) {
            reported.extend(circle.iter().copied());
            let names: Vec<String> = circle
                .iter()
                .map(|name| [parent, &[(*name).to_owned()]].concat().join("/"))
                .collect();
            let next = circle.iter().cycle().skip(1);
            let steps: Vec<String> = circle
                .iter()
                .zip(next)
                .map(|(a, b)| {
                    let import = graph[*a][*b];
                    format!("    {}: {}", import.place(), import.path.join("::"))
                })
                .collect();
            found.push(format!(
                "{} → {}\n{}",
                names.join(" → "),
                names[0],
                steps.join("\n")
            ));
        }
    }
    found
}

/// The shortest way from a node to itself.
fn way_back<'a>(graph: &'a Graph<'_>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in graph.get(*way.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                return Some(way);
            }
            if seen.insert(next.as_str()) {
                ways.push_back([&way[..], &[next.as_str()]].concat());
            }
        }
    }
    None
}
