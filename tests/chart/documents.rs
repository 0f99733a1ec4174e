//! What the documentation tells a user to type: flags of the program, values of the chart, and YAML to copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::engine::{Engine, engine};
use super::generated;
use super::read;
use crate::support::command::{markdown_in, program};

/// Every page that people write. Those of commands and schemas are generated, and have a test of their own.
fn pages() -> Vec<String> {
    let is_generated = |page: &String| page.starts_with("docs/reference/cli/");
    let mut pages: Vec<String> = ["README.md", "CONTRIBUTING.md", "charts/transom/README.md"]
        .map(str::to_owned)
        .into();
    pages.extend(markdown_in("docs").into_iter().filter(|page| !is_generated(page)));
    pages
}

fn text(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap()
}

/// The fenced blocks of a page in one language; what is left of it is its prose.
pub fn blocks(page: &str, languages: &[&str]) -> (Vec<String>, String) {
    let (text, mut blocks, mut prose) = (text(page), Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            prose.push_str(line);
            prose.push('\n');
            continue;
        };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        if languages.contains(&language) {
            blocks.push(inside.join("\n"));
        }
    }
    (blocks, prose)
}

/// Everything in a page that a shell could read: the lines of its blocks, and what stands in backticks.
pub fn typed(page: &str) -> Vec<String> {
    let (blocks, prose) = blocks(page, &["sh", "console"]);
    let lines = blocks.iter().flat_map(|block| {
        let block = block.replace("\\\n", " ");
        block
            .lines()
            .map(|line| line.trim_start_matches("$ ").to_owned())
            .collect::<Vec<_>>()
    });
    let spans = prose
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|span| span.replace('\n', " "));
    lines.chain(spans).collect()
}

/// The words of a command, as a shell divides it, up to a pipe or a comment.
pub fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// With --help at its end a command says what it would do, once it has understood what stands before.
fn help(words: &[String]) -> (bool, String) {
    let output = Command::new(program())
        .args(words)
        .arg("--help")
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn every_command_of_the_program_in_the_pages_has_flags_that_it_knows() {
    let mut seen = 0;
    for page in pages() {
        for command in typed(&page).iter().filter_map(|it| it.strip_prefix("transom ")) {
            // A placeholder, as in `-n NAMESPACE`, stands for a name.
            let is_placeholder =
                |word: &String| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
            // The shell takes what follows.
            let words = words(command).into_iter().take_while(|word| word != ">");
            let words: Vec<String> = words
                .map(|word| {
                    if is_placeholder(&word) {
                        "x".to_owned()
                    } else {
                        word
                    }
                })
                .collect();
            let mut helped = help(&words);
            // Where only a flag is named, its value is not.
            if !helped.0 && words.last().is_some_and(|last| last.starts_with("--")) {
                helped = help(&[&words[..], &["x".to_owned()]].concat());
            }
            assert!(helped.0, "{page}: transom {command}\n{}", helped.1);
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen} commands");
    assert!(
        !help(&["uninstall", "--keep-nodes"].map(str::to_owned)).0,
        "--help hides a flag that is not there"
    );
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The values that a command sets, by files and by hand; `None` where it sets none.
pub fn set(engine: &Engine, command: &str) -> Option<Value> {
    let mut values = None;
    let words = words(command);
    // The other files of values are written by the reader, or by a preflight, whose values have a test of their own.
    let is_here = |pair: &&[String]| pair[0] == "--values" && pair[1].starts_with("charts/");
    for pair in words.windows(2).filter(is_here) {
        merge(
            values.get_or_insert_with(|| json!({})),
            generated::values(&text(&pair[1])),
        );
    }
    for pair in words
        .windows(2)
        .filter(|pair| pair[0] == "--set" || pair[0] == "--set-json")
    {
        // What a reader fills in.
        let expression = pair[1]
            .replace('…', "mirror.example.com")
            .replace("$DIGEST", &format!("sha256:{}", "a".repeat(64)));
        let parsed = engine
            .request("parse", json!({"kind": pair[0], "expression": expression}))
            .unwrap();
        merge(values.get_or_insert_with(|| json!({})), parsed);
    }
    values
}

#[test]
fn every_set_in_the_pages_is_a_value_that_the_chart_takes() {
    let Some(engine) = engine() else { return };
    let mut seen = 0;
    for page in pages() {
        for command in typed(&page) {
            let Some(values) = set(engine, &command) else {
                continue;
            };
            engine
                .request("validate", json!({"values": values}))
                .unwrap_or_else(|error| panic!("{page}: {command}\n{error}"));
            engine
                .render(&values)
                .unwrap_or_else(|error| panic!("{page}: {command}\n{error}"));
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen} commands");
}

#[test]
fn every_upgrade_of_operations_and_emergency_works_with_the_values_of_each_platform() {
    let Some(engine) = engine() else { return };
    let folder = generated::chart().join("platforms");
    let mut seen = 0;
    for page in [
        "docs/how-to/operations.md",
        "docs/how-to/emergency.md",
        "docs/how-to/upgrade.md",
    ] {
        for command in typed(page) {
            if !command.starts_with("helm upgrade transom charts/transom") {
                continue;
            }
            for platform in fs::read_dir(&folder).unwrap() {
                let platform = platform.unwrap().path();
                // What the quick starts install, and the values of which the command reuses.
                let mut values = generated::values(&fs::read_to_string(&platform).unwrap());
                merge(&mut values, json!({"mode": "Audit"}));
                merge(&mut values, set(engine, &command).unwrap_or(json!({})));
                let request = json!({"values": values, "name": "transom", "namespace": "transom-system", "is_upgrade": true});
                for what in ["validate", "render"] {
                    let request = if what == "render" {
                        request.clone()
                    } else {
                        json!({"values": values})
                    };
                    engine.request(what, request).unwrap_or_else(|error| {
                        panic!("{page} with {}: {command}\n{error}", platform.display())
                    });
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 6 * 8, "{seen} upgrades");
}

#[test]
fn the_values_for_registries_keep_the_mode() {
    let blocks = blocks("docs/how-to/install.md", &["yaml"]).0;
    let block = blocks
        .iter()
        .find(|it| it.starts_with("# registries.yaml"))
        .unwrap();
    let spec = &generated::values(block)["podPolicies"]["default"]["spec"];
    assert!(
        spec["evidence"]["imageEvidence"] == "Registry" && spec.get("mode").is_none(),
        "{block}"
    );
    assert!(
        block.contains("--reset-then-reuse-values --values registries.yaml"),
        "{block}"
    );
}

/// The verbs of each resource that the rules of roles grant.
fn granted<'r>(rules: impl Iterator<Item = &'r Value>) -> BTreeMap<String, BTreeSet<String>> {
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        for resource in texts(&rule["resources"]) {
            granted.entry(resource).or_default().extend(texts(&rule["verbs"]));
        }
    }
    granted
}

/// The same as the tables below a heading list it: resources in the first column but `skip`, verbs in the next.
fn listed(
    page: &str,
    heading: &str,
    skip: usize,
    known: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, BTreeSet<String>> {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let words = |cell: &str| -> Vec<String> {
        let words = cell.split(|c: char| !(c.is_ascii_alphanumeric() || c == '/'));
        words.map(str::to_owned).collect()
    };
    let section = page.split("\n## ").find(|it| it.starts_with(heading)).unwrap();
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let row_verbs = words(cells[skip + 1]);
        for resource in words(cells[skip]).into_iter().filter(|it| known.contains_key(it)) {
            let of_row = row_verbs.iter().filter(|it| verbs.contains(&it.as_str()));
            listed.entry(resource).or_default().extend(of_row.cloned());
        }
    }
    listed
}

#[test]
fn the_page_of_rights_lists_what_the_chart_grants() {
    let Some(engine) = engine() else { return };
    let values = json!({
        "reports": {"enabled": true}, "probe": {"enabled": true, "namespace": "probes"}, "rbac": {"runtimeClasses": true},
        "nodePolicies": {"default": {"spec": {"runtimeClasses": {"mode": "Reconcile"}}}}, "nodeStartup": {"imagePuller": {"enabled": true}},
        "imageLookups": {"registries": ["quay.io"], "pullSecret": "pull", "pullSecretNamespaces": ["shop"], "caConfigMap": {"name": "roots"}},
    });
    let rendered = engine.render(&values).unwrap();
    let rules = |kind: &str, is_in: &dyn Fn(&str) -> bool| {
        let roles = rendered.objects.iter().filter(|it| it["kind"] == kind);
        let roles = roles.filter(|it| is_in(it["metadata"]["name"].as_str().unwrap()));
        granted(roles.flat_map(|it| it["rules"].as_array().unwrap()))
    };
    let is_job = |name: &str| ["transom-pre-delete", "transom-pre-upgrade", "transom-test"].contains(&name);
    let page = text("docs/reference/rights.md");
    for (heading, skip, granted) in [
        (
            "Cluster-wide rights",
            0,
            rules("ClusterRole", &|name| !is_job(name)),
        ),
        (
            "Rights in single namespaces",
            0,
            rules("Role", &|name| !is_job(name)),
        ),
    ] {
        assert_eq!(listed(&page, heading, skip, &granted), granted, "{heading}");
    }
    let (mut of_jobs, in_namespaces) = (rules("ClusterRole", &is_job), rules("Role", &is_job));
    for (resource, verbs) in in_namespaces {
        of_jobs.entry(resource).or_default().extend(verbs);
    }
    assert_eq!(listed(&page, "Rights of the Jobs", 1, &of_jobs), of_jobs);
}

#[test]
fn every_installation_in_the_pages_names_the_registry_of_the_image() {
    let mut seen = 0;
    for page in pages() {
        for command in typed(&page) {
            let makes = [
                "helm install transom charts/transom",
                "helm template transom charts/transom",
            ];
            if makes.iter().any(|it| command.starts_with(it)) {
                // The tutorial loads its image into the local cluster.
                let registry = if page.starts_with("docs/tutorials/") {
                    "localhost"
                } else {
                    "REGISTRY"
                };
                assert!(
                    command.contains(&format!("--set image.registry={registry}")),
                    "{page}: {command}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 10, "{seen} commands");
}

/// The schema of a value; `None` where the chart has no such value.
fn schema_of<'s>(schema: &'s Value, path: &str) -> Option<&'s Value> {
    path.split('.').try_fold(schema, |at, name| {
        let below = at["properties"].get(name);
        let below = below.or_else(|| at.get("additionalProperties").filter(|it| it.is_object()))?;
        match below["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')),
            None => Some(below),
        }
    })
}

#[test]
fn every_value_that_the_pages_name_is_there() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    assert!(schema_of(&schema, "podPolicies.default.spec.validation.rules").is_some());
    assert!(schema_of(&schema, "podPolicies.default.spec.rulez").is_none());
    let mut seen = 0;
    // The page of the node policy names its fields, of which the chart has values of the same name.
    for page in pages()
        .iter()
        .filter(|page| *page != "docs/reference/node-policy.md")
    {
        let (_, prose) = blocks(page, &[]);
        for span in prose.split('`').skip(1).step_by(2) {
            let path = span.split(['=', ':', ' ']).next().unwrap();
            // Attributes of spans and names of files are no values.
            let is_other = ["server.address", "server.port"].contains(&path)
                || [".json", ".txt", ".yaml"].iter().any(|end| path.ends_with(end));
            let is_path = path.contains('.') && !path.contains(['/', '*', '(']) && !is_other;
            let first = path.split('.').next().unwrap();
            if is_path && schema["properties"].get(first).is_some() {
                assert!(schema_of(&schema, path).is_some(), "{page}: {span}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} values");
}

#[test]
fn the_yaml_of_the_pages_can_be_read_and_names_what_the_chart_makes() {
    let mut seen = 0;
    for page in pages() {
        let is_content = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let all = blocks(&page, &["yaml"]).0;
        for block in all.iter().filter(|block| block.lines().any(is_content)) {
            // Kyverno's variables, which Transom takes for a chart that was not rendered.
            let value = generated::values(&block.replace("{{", "\u{27e6}"));
            assert!(value.is_object(), "{page}: {value}");
            for ignored in value["spec"]["ignoreDifferences"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let kind = ignored["kind"].as_str().unwrap();
                let known = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
                assert!(
                    known.contains(&kind) && ignored["group"] == "admissionregistration.k8s.io",
                    "{ignored}"
                );
            }
            for policy in value["policyPreconditions"]
                .as_object()
                .into_iter()
                .flat_map(|it| it.values())
            {
                assert_eq!(policy["all"].as_array().map(Vec::len), Some(2), "{page}: {value}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen} blocks");
}
