//! The documentation against the program: commands, outputs, denials, links, options, and the generated pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use transom::api::read_policies;
use transom::render::rules_markdown;
use transom::rules::FAMILIES;
use transom::rules::documentation::DocumentationUrl;

use crate::support::command::{markdown_in, program};
use crate::support::skipped::skipped;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Limits of Windows that Kubernetes' documentation, old and new, tells of, and that an object alone does not show.
const LIMITS: [&str; 10] = [
    "csi-proxy",
    "gmsa-containerd-smb",
    "host-mount-projection",
    "host-port-scaling",
    "icmp-egress",
    "network-policy",
    "secret-volume-plain-text",
    "service-node-local-access",
    "service-node-port-overlay-2022",
    "windows-priorityclass",
];

#[test]
fn a_limit_is_a_rule_or_stands_among_what_is_not_checked() {
    let page = text("docs/reference/coverage.md");
    for limit in LIMITS {
        let is_rule = transom::rules::find(limit).is_some();
        let anchor = format!("| <a id=\"{limit}\"></a>");
        assert!(is_rule || page.contains(&anchor), "{limit}");
    }
}

/// The page names rules that exist, has every case once, and counts what is reported or prevented.
#[test]
fn the_page_of_cases_names_rules_that_exist_and_counts_its_rows() {
    let page = text("docs/reference/coverage.md");
    let links = page.split("](rules.md#").skip(1);
    let rules: Vec<&str> = links.filter_map(|link| link.split(')').next()).collect();
    assert!(rules.len() > 40, "{rules:?}");
    for rule in rules {
        assert!(transom::rules::find(rule).is_some(), "there is no rule {rule}");
    }
    let (mut numbers, mut found) = (Vec::new(), 0);
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Ok(number) = cells[1].parse::<u32>() else {
            continue;
        };
        numbers.push(number);
        // A rule or a command that reports it, that Transom prevents it, or why neither.
        match cells[3] {
            by if by.starts_with('[') || by.starts_with("Prevented") => found += 1,
            why if why.starts_with("Not: ") => {}
            other => panic!("case {number} is {other:?}"),
        }
    }
    assert_eq!(numbers, (1..=56).collect::<Vec<u32>>());
    assert!(
        page.contains(&format!("Of 56 cases, {found} are reported or prevented.")),
        "{found} are"
    );
    assert!(found >= 40, "{found} of 56");
}

/// A fenced block: its language and what stands in it.
struct Block {
    language: String,
    text: String,
}

/// A command of a document, with the blocks that follow it up to the next command.
struct Step {
    command: String,
    shown: Vec<Block>,
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(Block {
            language: language.to_owned(),
            text: inside.join("\n"),
        });
    }
    blocks
}

fn steps(markdown: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks(markdown) {
        if block.language == "sh" {
            let commands = block.text.lines().filter(|line| !line.is_empty());
            steps.extend(commands.map(|line| Step {
                command: line.to_owned(),
                shown: Vec::new(),
            }));
        } else if let Some(step) = steps.last_mut() {
            step.shown.push(block);
        }
    }
    steps
}

/// A server that ends with the test.
struct Server {
    child: Child,
    port: String,
    /// The address of `/metrics`.
    health: String,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts what a document says, on free ports and with the CA in a folder of its own.
    fn start(command: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let arguments = "exec ".to_owned()
            + &ours(command).replace("ca.pem", &ca.display().to_string())
            + " --listen 127.0.0.1:0 --health-listen 127.0.0.1:0 --log-format json";
        let mut child = shell(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = log
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .find_map(|line| {
                let (_, port) = line["webhook"].as_str()?.rsplit_once(':')?;
                Some((port.to_owned(), line["health"].as_str()?.to_owned()))
            });
        // Somebody must read on, or the server would wait for room in the pipe.
        std::thread::spawn(move || log.for_each(drop));
        let (port, health) = listening.expect("the server says where it listens");
        Server {
            child,
            port,
            health,
            ca,
            _folder: folder,
        }
    }

    /// Runs a `curl` of a document against this server.
    fn curl(&self, command: &str) -> Value {
        let command = command.replace("ca.pem", &self.ca.display().to_string()).replace(
            "https://localhost:8443/",
            &format!("https://localhost:{}/", self.port),
        );
        let output = run(&command.replacen("curl ", "curl --silent --show-error --fail --max-time 20 ", 1));
        assert!(output.status.success(), "{command}\n{}", lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}

/// The command with the program that was built for this test in place of `cargo run`.
fn ours(command: &str) -> String {
    let arguments = command
        .strip_prefix("cargo run -- ")
        .or_else(|| command.strip_prefix("transom "));
    let arguments = arguments.unwrap_or_else(|| panic!("not a command of ours: {command}"));
    format!("'{}' {arguments}", program().display())
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).current_dir(root());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("TRANSOM_") {
            shell.env_remove(name);
        }
    }
    shell
}

fn run(command: &str) -> Output {
    shell(command).output().unwrap()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(block: &Block) -> Value {
    assert_eq!(block.language, "json");
    serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{error} in\n{}", block.text))
}

fn has_curl() -> bool {
    let found = Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// The decoded patch of an answer.
fn patch(answer: &Value) -> Value {
    let bytes = BASE64_STANDARD.decode(answer["response"]["patch"].as_str().unwrap());
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

/// The tutorial whose commands need nothing but this repository.
const TUTORIAL: &str = "docs/tutorials/without-a-cluster.md";

#[test]
fn the_server_of_the_tutorial_answers_its_curl_as_the_tutorial_shows() {
    if !has_curl() {
        skipped("SKIPPED: there is no curl on this machine, so the tutorial's requests were not sent");
        return;
    }
    let (mut server, mut answers) = (None, Vec::new());
    for step in steps(&text(TUTORIAL)) {
        if step.command.contains(" serve ") {
            server = Some(Server::start(&step.command));
        } else if step.command.starts_with("curl ") {
            let server = server.as_ref().expect("a server is started before it is asked");
            let answer = server.curl(&step.command);
            let shown = json(step.shown.first().expect("the tutorial shows the answer"));
            assert_eq!(
                answer, shown,
                "the tutorial shows another answer to: {}",
                step.command
            );
            answers.push((answer, step.shown));
        }
    }
    let [(denied, _), (patched, shown)] = answers.as_slice() else {
        panic!("the tutorial has {} requests", answers.len());
    };
    assert_eq!(denied["response"]["allowed"], false);
    assert_eq!(
        json(&shown[1]),
        patch(patched),
        "the tutorial shows another decoded patch"
    );
}

#[test]
fn every_other_command_of_readme_and_tutorial_prints_what_the_page_shows() {
    for (page, comparisons) in [("README.md", 1), (TUTORIAL, 3)] {
        let mut compared = 0;
        for Step { command, shown } in steps(&text(page)) {
            if command.starts_with("curl ") || command.contains(" serve ") {
                continue;
            }
            let output = run(&ours(&command));
            let printed = lossy(&output.stdout);
            let printed = printed.trim_end();
            assert!(
                !printed.is_empty() && matches!(output.status.code(), Some(0 | 1)),
                "{page}: {command}: {}",
                lossy(&output.stderr)
            );
            let Some(shown) = shown.first().filter(|block| block.language == "text") else {
                continue;
            };
            // A block that starts with an ellipsis shows the last lines.
            let same = match shown.text.strip_prefix("…\n") {
                Some(end) => printed.ends_with(&format!("\n{end}")),
                None => printed == shown.text,
            };
            assert!(same, "{page} shows another output of {command}\n{printed}");
            compared += 1;
        }
        assert_eq!(compared, comparisons, "{page}");
    }
}

/// A denial that a page quotes.
struct Denial {
    page: String,
    /// The file that kubectl names.
    file: Option<String>,
    message: String,
}

/// The denials that the pages quote, as kubectl prints them or as the webhook's message alone.
fn denials() -> Vec<Denial> {
    let mut found = Vec::new();
    let pages = markdown_in("docs").into_iter().chain(["README.md".to_owned()]);
    for page in pages {
        for block in blocks(&text(&page)) {
            let mut lines = block.text.lines();
            let Some((file, first)) = lines.by_ref().find_map(|line| {
                let quoted = line.split_once(" denied the request: ");
                let file = line.split('"').nth(1).map(str::to_owned);
                // The output of the demo is compared as a whole.
                let is_message = !line.starts_with("denied: ")
                    && line.contains(" problems with ")
                    && line.ends_with(" for Windows:");
                match quoted {
                    Some((_, message)) => Some((file, message)),
                    None => is_message.then_some((None, line)),
                }
            }) else {
                continue;
            };
            // The answer of a program quotes the message as JSON; the test of the tutorial compares it.
            if block.language == "json" {
                continue;
            }
            let rest = lines.take_while(|line| !line.starts_with("$ "));
            let message: Vec<&str> = std::iter::once(first).chain(rest).collect();
            found.push(Denial {
                page: page.clone(),
                file,
                message: message.join("\n"),
            });
        }
    }
    found
}

/// The first object of a YAML text.
fn object(yaml: &str) -> Value {
    let parsed = transom::manifest::parse(yaml.as_bytes().to_vec());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    serde_json::from_str(parsed.documents[0].json()).unwrap()
}

/// The review that an API server sends when this Deployment or Pod is created in a namespace.
fn review_of(mut object: Value, namespace: &str) -> Value {
    let is_pod = object["kind"] == "Pod";
    let name = if is_pod {
        "review-create-windows-pod"
    } else {
        "review-create-linux-fields"
    };
    let mut review: Value = serde_json::from_str(&text(&format!("manifests/examples/{name}.json"))).unwrap();
    object["metadata"]["namespace"] = namespace.into();
    review["request"]["namespace"] = namespace.into();
    review["request"]["name"] = object["metadata"]["name"].clone();
    review["request"]["object"] = object;
    review
}

impl Server {
    /// Starts a server whose only policy is the one that the chart creates.
    fn start_with_default_policy(folder: &Path, facts: &str) -> Server {
        let policy = folder.join("policy.yaml");
        let default = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: default}\n\
                       spec: {mode: Enforce}\n";
        fs::write(&policy, default).unwrap();
        Server::start(&format!(
            "transom serve --standalone --policy {} {facts} --write-ca ca.pem",
            policy.display()
        ))
    }

    fn review(&self, folder: &Path, path: &str, review: &Value) -> Value {
        let file = folder.join("review.json");
        fs::write(&file, review.to_string()).unwrap();
        self.curl(&format!(
            "curl --cacert ca.pem -H 'Content-Type: application/json' --data @{} https://localhost:8443/{path}",
            file.display()
        ))
    }
}

#[test]
fn every_denial_in_the_pages_is_the_answer_of_the_webhook() {
    if !has_curl() {
        skipped("SKIPPED: there is no curl on this machine, so the denials in the pages were not compared");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_default_policy(folder.path(), "");
    let denials = denials();
    for page in [
        "README.md",
        "docs/tutorials/local-cluster.md",
        "docs/how-to/you-were-denied.md",
    ] {
        assert!(
            denials.iter().any(|denial| denial.page == page),
            "{page} quotes no denial"
        );
    }
    for Denial { page, file, message } in denials {
        let (_, name) = message.split_once(" problems with Deployment ").unwrap();
        let (namespace, _) = name.split_once('/').unwrap();
        let object = if let Some(file) = &file {
            object(&text(file))
        } else {
            let example = text("manifests/examples/review-create-linux-fields.json");
            let review: Value = serde_json::from_str(&example).unwrap();
            review["request"]["object"].clone()
        };
        let answer = server.review(folder.path(), "validate", &review_of(object, namespace));
        assert_eq!(
            answer["response"]["status"]["message"].as_str(),
            Some(message.as_str()),
            "{page} quotes another denial"
        );
    }
}

/// The commands of the blocks that a user copies line by line, each with the lines that it prints.
fn console(markdown: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for block in blocks(markdown) {
        for line in block.text.lines().filter(|_| block.language == "console") {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, printed))) => printed.push(line.to_owned()),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
    }
    commands
}

#[test]
fn the_local_cluster_tutorial_shows_what_the_webhooks_answer() {
    const PAGE: &str = "docs/tutorials/local-cluster.md";
    if !has_curl() {
        skipped("SKIPPED: there is no curl on this machine, so {PAGE} was not compared");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_with_default_policy(folder.path(), "");
    let (mut pod, mut compared) = (Value::Null, 0);
    for (command, printed) in console(&text(PAGE)) {
        if command == "kubectl apply -f manifests/examples/facts.yaml" {
            let facts = "--facts manifests/examples/facts.yaml";
            server = Server::start_with_default_policy(folder.path(), facts);
        } else if command == "kubectl delete -f manifests/examples/facts.yaml" {
            server = Server::start_with_default_policy(folder.path(), "");
        } else if let Some(image) = command.strip_prefix("kubectl run iis --image=") {
            pod = serde_json::json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "iis", "labels": {"run": "iis"}},
                "spec": {"containers": [{"name": "iis", "image": image}]},
            });
            let answer = server.review(folder.path(), "mutate", &review_of(pod.clone(), "default"));
            let patch: json_patch::Patch = serde_json::from_value(patch(&answer)).unwrap();
            json_patch::patch(&mut pod, &patch).unwrap();
        } else if let Some(expressions) = command.strip_prefix("kubectl get pod iis -o jsonpath=") {
            let fields = expressions.split('{').filter_map(|part| part.strip_prefix('.'));
            let fields: Vec<&str> = fields.filter_map(|part| Some(part.split_once('}')?.0)).collect();
            assert_eq!(fields.len(), printed.len(), "{command}");
            for (field, printed) in fields.into_iter().zip(printed) {
                let (field, of_key) = match field.split_once("[?(@.key==\"") {
                    Some((field, key)) => (field, key.strip_suffix("\")]")),
                    None => (field, None),
                };
                let value = pod.pointer(&format!("/{}", field.replace('.', "/")));
                let value = match of_key {
                    Some(key) => {
                        value.and_then(|list| list.as_array()?.iter().find(|element| element["key"] == key))
                    }
                    None => value,
                };
                let shown: Value = serde_json::from_str(&printed).unwrap();
                assert_eq!(value, Some(&shown), "{PAGE}: {field}");
                compared += 1;
            }
        } else if command.starts_with("jq 'select(.annotations[") {
            let deployment = object(&text("manifests/examples/deployment-bad.yaml"));
            let answer = server.review(folder.path(), "validate", &review_of(deployment, "default"));
            let annotations = answer["response"]["auditAnnotations"].as_object().unwrap();
            let named = annotations
                .iter()
                .map(|(key, value)| (format!("validate.transom.dev/{key}"), value.clone()));
            let shown: Value = serde_json::from_str(&printed.join("\n")).unwrap();
            assert_eq!(named.collect::<Value>(), shown, "{PAGE}: annotations");
            compared += 1;
        }
    }
    assert_eq!(compared, 5, "{PAGE}");
}

#[test]
fn the_example_of_a_scrape_has_the_metrics_that_the_server_has() {
    const PAGE: &str = "docs/reference/metrics-example.md";
    if !has_curl() {
        skipped("SKIPPED: there is no curl on this machine, so {PAGE} was not compared");
        return;
    }
    let server = Server::start("transom serve --standalone --write-ca ca.pem");
    for (path, review) in [
        ("validate", "review-create-linux-fields"),
        ("mutate", "review-create-windows-pod"),
    ] {
        server.curl(&format!(
            "curl --cacert ca.pem -H 'Content-Type: application/json' --data @manifests/examples/{review}.json \
             https://localhost:8443/{path}"
        ));
    }
    let scrape = run(&format!("curl --silent --fail http://{}/metrics", server.health));
    let scrape = lossy(&scrape.stdout);
    let described = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("# HELP ") || line.starts_with("# TYPE "));
        lines.map(str::to_owned).collect()
    };
    let (page, printed) = (text(PAGE), described(&scrape));
    assert!(printed.len() > 30, "{scrape}");
    let shown = described(&page);
    let names = |lines: &[String]| -> Vec<Option<String>> {
        lines
            .iter()
            .map(|line| line.split(' ').nth(2).map(str::to_owned))
            .collect()
    };
    assert_eq!(names(&shown), names(&printed), "{PAGE} shows other metrics");
    let mut blessed = page.clone();
    for (shown, printed) in shown.iter().zip(&printed) {
        blessed = blessed.replace(shown, printed);
    }
    is_up_to_date(PAGE, &blessed);
}

#[test]
fn the_page_on_denials_names_parts_of_its_message_and_an_exemption_that_works() {
    const PAGE: &str = "docs/how-to/you-were-denied.md";
    let page = text(PAGE);
    let denial = denials().into_iter().find(|denial| denial.page == PAGE).unwrap();
    let parts = page
        .lines()
        .skip_while(|line| *line != "| part | meaning |")
        .skip(2);
    let mut named = 0;
    for part in parts.take_while(|line| line.starts_with("| `")) {
        let part = part.split('`').nth(1).unwrap();
        let is_in_other_messages = part == "(added in admission)" || part == "and 3 more; run transom check";
        assert!(
            is_in_other_messages || denial.message.contains(part),
            "{PAGE}: the message has no part {part}"
        );
        named += 1;
    }
    assert!(named >= 6, "{named} parts");

    let values = blocks(&page)
        .into_iter()
        .find(|block| block.text.starts_with("podPolicies:"));
    let mut spec = object(&values.unwrap().text)["podPolicies"]["default"]["spec"].take();
    spec["mode"] = "Enforce".into();
    let policy = serde_json::json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"}, "spec": spec,
    });
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.yaml"), policy.to_string()).unwrap();
    fs::copy(
        root().join("manifests/examples/deployment-bad.yaml"),
        folder.path().join("web.yaml"),
    )
    .unwrap();
    let documented = console(&page);
    let (command, _) = documented
        .iter()
        .find(|(command, _)| command.starts_with("transom check --policy "))
        .unwrap();
    let last_day = policy["spec"]["exemptions"][0]["expiresOn"].as_str().unwrap();
    let last_day: jiff::civil::Date = last_day.parse().unwrap();
    for (today, status) in [(last_day, 0), (last_day.tomorrow().unwrap(), 1)] {
        let command = format!(
            "cd '{}' && {} --today {today}",
            folder.path().display(),
            ours(command)
        );
        let output = run(&command);
        let printed = lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{printed}{}",
            lossy(&output.stderr)
        );
        assert_eq!(printed.contains("(exempted)"), status == 0, "{printed}");
    }
    let json = format!(
        "cd '{}' && {} --today {last_day} -o json",
        folder.path().display(),
        ours(command)
    );
    let report: Value = serde_json::from_slice(&run(&json).stdout).unwrap();
    let exemption = &report["objects"][0]["exempted"][0]["exemption"];
    assert!(
        blocks(&page).iter().any(|block| *exemption == block.text),
        "{PAGE} shows another annotation: {exemption}"
    );
}

#[test]
fn the_commands_of_the_documentation_are_understood() {
    let mut pages = markdown_in("docs/reference/cli");
    pages.extend(
        [
            "docs/reference/policy.md",
            "docs/explanation/admission.md",
            "docs/explanation/inference.md",
            "docs/reference/metrics.md",
            "docs/how-to/check-in-ci.md",
            "docs/how-to/fix.md",
            "docs/how-to/you-were-denied.md",
        ]
        .map(str::to_owned),
    );
    for page in pages {
        for Step { command, .. } in steps(&text(&page)) {
            if !command.starts_with("transom ") || command.contains(" serve ") {
                continue;
            }
            let output = run(&ours(&command));
            let status = output.status.code();
            assert!(
                matches!(status, Some(0 | 1)),
                "{page}: {command}: {status:?}\n{}",
                lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn the_bad_example_is_denied_and_the_good_one_is_not() {
    for (file, status) in [("deployment-bad.yaml", 1), ("deployment-good.yaml", 0)] {
        let output = run(&ours(&format!("transom check manifests/examples/{file}")));
        assert_eq!(
            output.status.code(),
            Some(status),
            "{file}: {}",
            lossy(&output.stdout)
        );
    }
    let good = run(&ours(
        "transom check --no-advice manifests/examples/deployment-good.yaml manifests/examples/facts.yaml",
    ));
    assert!(
        lossy(&good.stdout).contains("nothing found"),
        "{}",
        lossy(&good.stdout)
    );
}

/// The first line of a policy that a page shows with the errors that it causes.
const WITH_MISTAKES: &str = "# policy.yaml, with four mistakes\n";

#[test]
fn an_invalid_policy_causes_the_errors_that_the_page_shows() {
    const PAGE: &str = "docs/reference/policy.md";
    let page = text(PAGE);
    let start = format!("```yaml\n{WITH_MISTAKES}");
    let (before, rest) = page.split_once(&start).unwrap();
    let (policy, rest) = rest.split_once("```\n").unwrap();
    let (between, rest) = rest.split_once("```text\n").unwrap();
    let (_, after) = rest.split_once("```\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("policy.yaml"),
        format!("{WITH_MISTAKES}{policy}"),
    )
    .unwrap();
    let output = run(&format!(
        "cd '{}' && printf 'kind: Pod' | '{}' check --policy policy.yaml -",
        folder.path().display(),
        program().display()
    ));
    assert_eq!(output.status.code(), Some(2));
    let printed = lossy(&output.stderr);
    assert_eq!(printed.lines().count(), 5, "{printed}");
    is_up_to_date(
        PAGE,
        &format!("{before}{start}{policy}```\n{between}```text\n{printed}```\n{after}"),
    );
}

#[test]
fn every_policy_example_is_accepted() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("manifests/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("policy") {
            if let Err(errors) = read_policies(fs::read(&path).unwrap()) {
                panic!("{}: {errors:?}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 2, "there are {seen} policy examples");
    let printed = run(&ours("transom generate break-glass"));
    let break_glass = read_policies(printed.stdout);
    assert!(break_glass.is_ok(), "{break_glass:?}");
    for page in markdown_in("docs") {
        for block in blocks(&text(&page)) {
            let is_valid = !block.text.starts_with(WITH_MISTAKES);
            if is_valid && block.language == "yaml" && block.text.contains("kind: WindowsPodPolicy") {
                read_policies(block.text.clone().into_bytes())
                    .unwrap_or_else(|errors| panic!("{page}: {errors:?} in\n{}", block.text));
            }
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = vec![
        "README.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "SECURITY.md".to_owned(),
        "CHANGELOG.md".to_owned(),
        "charts/transom/README.md".to_owned(),
    ];
    pages.extend(markdown_in("docs"));
    for page in &pages {
        let folder = root().join(page).parent().unwrap().to_owned();
        for link in text(page).split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() {
                root().join(page)
            } else {
                folder.join(target)
            };
            assert!(target.exists(), "{page} links to {link}, which does not exist");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                assert!(
                    headings(&text).any(|of_target| of_target == heading),
                    "{page} links to {link}, but the page has no such heading"
                );
            }
        }
    }
}

/// The pages that a reader of `page` can reach by links, `page` included.
fn reachable_from(page: &str) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![root().join(page)];
    while let Some(page) = open.pop() {
        let page = page.canonicalize().unwrap();
        if page.extension().is_none_or(|extension| extension != "md") || !reached.insert(page.clone()) {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
        open.extend(links.map(|link| page.parent().unwrap().join(link)));
    }
    reached
}

#[test]
fn the_map_leads_to_every_page() {
    let reached = reachable_from("docs/README.md");
    for page in markdown_in("docs") {
        let path = root().join(&page).canonicalize().unwrap();
        assert!(
            reached.contains(&path),
            "no page that docs/README.md leads to links to {page}"
        );
    }
}

/// More words than a person reads in one go.
const LONGEST_PAGE: usize = 2_500;
/// The words of all pages that people write. More are not read: shorten another page first.
const MOST_WORDS: usize = 45_000;

/// The words of a page outside blocks of code.
fn prose_words(page: &str) -> usize {
    let text = text(page);
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let words = prose.flat_map(str::split_whitespace);
    words.filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The pages of rules and of metrics are generated.
#[test]
fn no_page_is_too_long_and_neither_are_all_together() {
    let generated = ["docs/reference/rules.md", "docs/reference/metrics-example.md"];
    let pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    let pages = markdown_in("docs").into_iter().chain(pages);
    let mut all = 0;
    for page in pages.filter(|page| !generated.contains(&page.as_str())) {
        let words = prose_words(&page);
        assert!(
            words <= LONGEST_PAGE,
            "{page} has {words} words, more than {LONGEST_PAGE}: split it by what a reader looks for"
        );
        all += words;
    }
    assert!(all <= MOST_WORDS, "{all} words are more than {MOST_WORDS}");
    assert!(all > 10_000, "only {all} words were found");
}

#[test]
fn the_recommended_audit_policy_records_everything_that_the_webhooks_review() {
    let page = text("docs/how-to/audit.md");
    let mut blocks = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next());
    let policy = blocks.find(|block| block.contains("kind: Policy")).unwrap();
    let policy = json_of(policy);
    let rows = |resources: &Value, group: &str, names: &str| -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        for rule in resources.as_array().unwrap() {
            let groups: Vec<&str> = match &rule[group] {
                Value::String(group) => vec![group],
                groups => groups
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|it| it.as_str().unwrap())
                    .collect(),
            };
            for resource in rule[names].as_array().unwrap() {
                all.extend(
                    groups
                        .iter()
                        .map(|group| ((*group).to_owned(), resource.as_str().unwrap().to_owned())),
                );
            }
        }
        all
    };
    let recorded = rows(&policy["rules"][0]["resources"], "group", "resources");
    let webhooks = lossy(&run(&ours("transom generate webhooks --url https://localhost:1")).stdout);
    let mut reviewed = BTreeSet::new();
    for configuration in webhooks.split("\n---\n").map(json_of) {
        for entry in configuration["webhooks"].as_array().into_iter().flatten() {
            reviewed.extend(rows(&entry["rules"], "apiGroups", "resources"));
        }
    }
    assert!(reviewed.len() > 20, "{reviewed:?}");
    let omitted: Vec<_> = reviewed.difference(&recorded).collect();
    assert!(omitted.is_empty(), "{omitted:?}");
}

/// A YAML document as JSON.
fn json_of(yaml: &str) -> Value {
    let parsed = transom::manifest::parse(yaml.as_bytes().to_vec());
    parsed.documents.first().map_or(Value::Null, |document| {
        serde_json::from_str(document.json()).unwrap()
    })
}

/// Where conditions get their types and reasons.
const CONDITION_SOURCES: [&str; 9] = [
    "src/controller/node_policies/status.rs",
    "src/controller/startup/controller.rs",
    "src/controller/pod_policies/build_labels.rs",
    "src/controller/pod_policies/image_registries.rs",
    "src/controller/pod_policies/programmed.rs",
    "src/controller/pod_policies/status.rs",
    "src/controller/reports/health.rs",
    "src/registration/configurations.rs",
    "src/registration/configurations/image_registries.rs",
];

#[test]
fn every_condition_type_and_reason_is_documented() {
    let pages: String = markdown_in("docs").iter().map(|page| text(page)).collect();
    let mut found = BTreeSet::new();
    for path in CONDITION_SOURCES {
        let source = text(path);
        let production = source.split("#[cfg(test)]").next().unwrap();
        let is_name = |part: &&str| {
            part.starts_with(|c: char| c.is_ascii_uppercase()) && part.chars().all(char::is_alphabetic)
        };
        let names = production.split('"').filter(is_name).map(str::to_owned);
        found.extend(names);
    }
    assert!(found.len() > 60, "{found:?}");
    found.retain(|name| !pages.contains(&format!("`{name}`")));
    assert!(found.is_empty(), "not documented: {found:?}");
}

/// The fragments by which a page's headings can be linked, and its explicit anchors.
fn headings(markdown: &str) -> impl Iterator<Item = String> {
    let titles = markdown.lines().filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len())
            .then(|| title.strip_prefix(' '))
            .flatten()
    });
    let slugs = titles.map(|title| {
        let title = title.to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    });
    let anchors = markdown.split("<a id=\"").skip(1);
    slugs.chain(anchors.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())))
}

/// The commands below `command`, as `--help` lists them, and `command` itself.
fn commands_of(command: &str) -> Vec<String> {
    let help = run(&ours(&format!("transom {command} --help")));
    assert!(help.status.success(), "{command}: {}", lossy(&help.stderr));
    let help = lossy(&help.stdout);
    // The program lists its commands below several headings.
    let commands = help
        .lines()
        .skip_while(|line| !line.starts_with("Usage:"))
        .skip(1);
    let commands = commands
        .take_while(|line| !["Arguments:", "Options:"].contains(line))
        .filter(|line| line.starts_with("  "));
    let subcommands = commands
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let full = |name: &str| format!("{command} {name}").trim().to_owned();
    let below = subcommands.flat_map(|name| commands_of(&full(name)));
    let own = (!command.is_empty()).then(|| command.to_owned());
    own.into_iter().chain(below).collect()
}

/// What `--help` prints for a command and its subcommands, as a block.
fn help_block(commands: &[String]) -> String {
    let of = |command: &String| lossy(&run(&ours(&format!("transom {command} --help"))).stdout);
    let all: Vec<String> = commands.iter().map(of).collect();
    format!("```text\n{}```\n", all.join("\n"))
}

#[test]
fn every_command_has_a_page_with_what_its_help_prints() {
    const FOLDER: &str = "docs/reference/cli";
    const START: &str = "<!-- help: written by TRANSOM_BLESS=1 cargo test --test offline docs:: -->\n";
    const END: &str = "<!-- end of help -->";
    let overview = text(&format!("{FOLDER}/README.md"));
    let mut of_pages: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for command in commands_of("") {
        let name = command.split(' ').next().unwrap_or_default();
        let row = overview.split_once(&format!("| [`transom {name}`]("));
        let (_, link) = row.unwrap_or_else(|| panic!("{FOLDER}/README.md has no row for transom {name}"));
        // Several commands may have one page.
        let page = link.split(['#', ')']).next().unwrap_or_default().to_owned();
        of_pages.entry(page).or_default().push(command);
    }
    assert!(of_pages.len() >= 16, "{of_pages:?}");
    for (page, commands) in &of_pages {
        let path = format!("{FOLDER}/{page}");
        let page = text(&path);
        let (before, rest) = page.split_once(START).expect("the block of the help begins");
        let (_, after) = rest.split_once(END).expect("the block of the help ends");
        is_up_to_date(
            &path,
            &format!("{before}{START}{}{END}{after}", help_block(commands)),
        );
    }
}

fn is_up_to_date(path: &str, generated: &str) {
    crate::support::command::is_up_to_date(path, generated, "offline docs::");
}

#[test]
fn the_page_of_rules_is_what_the_catalogue_says() {
    is_up_to_date("docs/reference/rules.md", &rules_markdown());
    let printed = run(&ours("transom generate rules-doc"));
    assert_eq!(lossy(&printed.stdout), rules_markdown());
}

#[test]
fn the_page_of_versions_shows_as_many_rules_as_there_are() {
    let (page, start) = (text("docs/reference/versions.md"), "transom.dev/v1alpha1, ");
    let (before, rest) = page.split_once(start).unwrap();
    let (_, after) = rest.split_once(" rules\n").unwrap();
    let rules = transom::rules::catalogue().count();
    is_up_to_date(
        "docs/reference/versions.md",
        &format!("{before}{start}{rules} rules\n{after}"),
    );
}

#[test]
fn the_link_to_every_rule_is_an_anchor_of_the_page() {
    let published = DocumentationUrl::parse("https://git.example.com/docs").unwrap();
    // The file may be written at the same time.
    let rules = rules_markdown();
    for rule in transom::rules::catalogue() {
        let address = published.of_rule(rule);
        let (page, anchor) = address.split_once('#').unwrap();
        assert!(anchor.eq_ignore_ascii_case(rule.id), "{address}");
        assert_eq!(page, "https://git.example.com/docs/reference/rules.md");
        let place = format!("<a id=\"{anchor}\"></a>\n\n### {}\n", rule.name);
        let found = rules.matches(&place).count();
        assert_eq!(found, 1, "{address}");
    }
}

#[test]
fn the_explained_rule_is_shown_as_it_is_printed() {
    let page = text("docs/reference/cli/explain.md");
    let start = "transom explain run-as-user\n```\n\n```text\n";
    let (before, rest) = page.split_once(start).unwrap();
    let (_, after) = rest.split_once("```\n").unwrap();
    let printed = lossy(&run(&ours("transom explain run-as-user")).stdout);
    is_up_to_date(
        "docs/reference/cli/explain.md",
        &format!("{before}{start}{printed}```\n{after}"),
    );
}

/// The page with what its commands print: standard output in the first `diff` or `yaml` block after a command, standard
/// error in the first `text` block.
fn with_output(page: &str) -> String {
    let mut written = String::new();
    let mut output: Option<Output> = None;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(written, "{line}");
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let shown = match (language, &mut output) {
            ("diff" | "yaml", Some(output)) => std::mem::take(&mut output.stdout),
            ("text", Some(output)) => std::mem::take(&mut output.stderr),
            _ => {
                output = (language == "sh").then(|| run(&ours(&inside.join("\n"))));
                Vec::new()
            }
        };
        let shown = match lossy(&shown) {
            shown if shown.is_empty() => inside.iter().fold(String::new(), |text, line| text + line + "\n"),
            shown => shown,
        };
        let _ = writeln!(written, "{shown}```");
    }
    written
}

#[test]
fn the_page_about_fix_shows_what_is_printed() {
    const PAGE: &str = "docs/how-to/fix.md";
    let page = text(PAGE);
    is_up_to_date(PAGE, &with_output(&page));
    assert!(
        page.contains("\n-          runAsUser: 1000\n"),
        "{PAGE} shows no diff"
    );
}

#[test]
fn the_map_counts_the_rules_of_every_family() {
    const START: &str = "<!-- families: written by TRANSOM_BLESS=1 cargo test --test offline docs:: -->\n";
    const END: &str = "<!-- end of families -->";
    let map = text("docs/README.md");
    let (before, rest) = map.split_once(START).expect("the table of families begins");
    let (_, after) = rest.split_once(END).expect("the table of families ends");
    let mut table = String::from("| family | rules | ids |\n|---|---|---|\n");
    for family in FAMILIES {
        let ids = (
            family.rules.first().map(|rule| rule.id),
            family.rules.last().map(|rule| rule.id),
        );
        let (Some(first), Some(last)) = ids else { continue };
        let _ = writeln!(
            table,
            "| {} | {} | {first} to {last} |",
            family.title,
            family.rules.len()
        );
    }
    is_up_to_date("docs/README.md", &format!("{before}{START}{table}{END}{after}"));
}
