//! What a newcomer reads, run as it stands: the README's commands, the examples, and the generated documentation.

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

const PROGRAM: &str = env!("CARGO_BIN_EXE_transom");

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
    let not_checked = text("docs/reference/not-checked.md");
    for limit in LIMITS {
        let is_rule = transom::rules::find(limit).is_some();
        assert!(is_rule || not_checked.contains(&format!("`{limit}`:")), "{limit}");
    }
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
        let port = log
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .find_map(|line| {
                let (_, port) = line["webhook"].as_str()?.rsplit_once(':')?;
                Some(port.to_owned())
            });
        // Somebody must read on, or the server would wait for room in the pipe.
        std::thread::spawn(move || log.for_each(drop));
        Server {
            child,
            port: port.expect("the server says where it listens"),
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
        .strip_prefix("cargo run --release -- ")
        .or_else(|| command.strip_prefix("transom "));
    let arguments = arguments.unwrap_or_else(|| panic!("not a command of ours: {command}"));
    format!("'{PROGRAM}' {arguments}")
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

#[test]
fn the_server_of_the_readme_answers_its_curl_as_the_readme_shows() {
    if !has_curl() {
        eprintln!("SKIPPED: there is no curl on this machine, so the README's requests were not sent");
        return;
    }
    let readme = text("README.md");
    let (mut server, mut answers) = (None, Vec::new());
    for step in steps(&readme) {
        if step.command.contains(" serve ") {
            server = Some(Server::start(&step.command));
        } else if step.command.starts_with("curl ") {
            let server = server.as_ref().expect("a server is started before it is asked");
            let answer = server.curl(&step.command);
            let shown = json(step.shown.first().expect("the README shows the answer"));
            assert_eq!(
                answer, shown,
                "the README shows another answer to: {}",
                step.command
            );
            answers.push(answer);
        }
    }
    let [denied, patched] = answers.as_slice() else {
        panic!("the README has {} requests", answers.len());
    };
    assert_eq!(denied["response"]["allowed"], false);
    let blocks = blocks(&readme);
    let message = denied["response"]["status"]["message"].as_str().unwrap();
    assert!(
        blocks[0].text.starts_with("Error from server (Forbidden): ")
            && blocks[0]
                .text
                .ends_with(&format!("denied the request: {message}")),
        "the README opens with another denial"
    );
    assert_eq!(
        json(&blocks[1]),
        patch(patched),
        "the README opens with another patch"
    );
}

#[test]
fn every_other_command_of_the_readme_prints_what_the_readme_shows() {
    let mut compared = 0;
    for Step { command, shown } in steps(&text("README.md")) {
        if command == "cargo test" || command.starts_with("curl ") || command.contains(" serve ") {
            continue;
        }
        let output = run(&ours(&command));
        let shown = shown
            .first()
            .unwrap_or_else(|| panic!("the README shows nothing for: {command}"));
        assert_eq!(
            lossy(&output.stdout).trim_end(),
            shown.text,
            "the README shows another output of: {command}"
        );
        compared += 1;
    }
    assert_eq!(compared, 3);
}

#[test]
fn the_commands_of_the_documentation_are_understood() {
    for page in [
        "docs/reference/cli.md",
        "docs/reference/policy.md",
        "docs/explanation/admission.md",
        "docs/explanation/inference.md",
        "docs/reference/metrics.md",
        "docs/how-to/check-in-ci.md",
        "docs/how-to/fix.md",
        "docs/how-to/you-were-denied.md",
    ] {
        for Step { command, .. } in steps(&text(page)) {
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
    let break_glass = read_policies(fs::read(root().join("manifests/break-glass.yaml")).unwrap());
    assert!(break_glass.is_ok(), "{break_glass:?}");
    for page in [
        "README.md",
        "docs/reference/policy.md",
        "docs/reference/stability.md",
    ] {
        for block in blocks(&text(page)) {
            if block.language == "yaml" && block.text.contains("kind: WindowsPodPolicy") {
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
    ];
    for folder in [
        "docs",
        "docs/explanation",
        "docs/how-to",
        "docs/reference",
        "docs/runbooks",
        "docs/tutorials",
    ] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            pages.push(format!(
                "{folder}/{}",
                entry.unwrap().file_name().to_string_lossy()
            ));
        }
    }
    for page in pages
        .iter()
        .filter(|page| Path::new(page).extension().is_some_and(|end| end == "md"))
    {
        let folder = root().join(page).parent().unwrap().to_owned();
        for link in text(page).split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                assert!(
                    folder.join(target).exists(),
                    "{page} links to {target}, which is not there"
                );
            }
        }
    }
}

/// Compares a generated text with its file, or writes it where `TRANSOM_BLESS=1` asks for that.
fn is_up_to_date(path: &str, generated: &str) {
    if env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        fs::write(root().join(path), generated).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(root().join(path)).unwrap_or_default() == generated,
        "{path} is not what the catalogue says; TRANSOM_BLESS=1 cargo test --test offline docs:: writes it again"
    );
}

#[test]
fn the_page_of_rules_is_what_the_catalogue_says() {
    is_up_to_date("docs/reference/rules.md", &rules_markdown());
    let printed = run(&ours("transom generate rules-doc"));
    assert_eq!(lossy(&printed.stdout), rules_markdown());
}

#[test]
fn the_explained_rule_is_shown_as_it_is_printed() {
    let page = text("docs/reference/cli.md");
    let start = "transom explain run-as-user\n```\n\n```text\n";
    let (before, rest) = page.split_once(start).unwrap();
    let (_, after) = rest.split_once("```\n").unwrap();
    let printed = lossy(&run(&ours("transom explain run-as-user")).stdout);
    is_up_to_date(
        "docs/reference/cli.md",
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
fn the_readme_counts_the_rules_of_every_family() {
    const START: &str = "<!-- families: written by TRANSOM_BLESS=1 cargo test --test offline docs:: -->\n";
    const END: &str = "<!-- end of families -->";
    let readme = text("README.md");
    let (before, rest) = readme.split_once(START).expect("the table of families begins");
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
    is_up_to_date("README.md", &format!("{before}{START}{table}{END}{after}"));
}
