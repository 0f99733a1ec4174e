//! What authors use besides the program: the hooks of pre-commit, the GitHub Action, the GitLab job and the manifest for
//! krew, each run or validated as its tool does it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use transom::manifest::parse;

use crate::support::command::{bad_pod, files, path_with_program};
use crate::support::skipped::skipped;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A YAML file of the repository; a list is the member `items`.
fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let parsed = parse(text.into_bytes());
    assert_eq!(parsed.errors, [], "{path}");
    assert_eq!(parsed.documents.len(), 1, "{path}");
    serde_json::from_str(parsed.documents[0].json()).unwrap()
}

/// A command with the program of this test on its path.
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("PATH", path_with_program());
    command
}

fn message(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Whether a tool is installed; the test of this name says so if it is not.
fn has(tool: &str, what: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success());
    if !found {
        skipped(format!("SKIPPED: {what}: there is no {tool} on this machine"));
    }
    found
}

#[test]
fn the_hooks_name_commands_and_options_that_exist() {
    let hooks = yaml(".pre-commit-hooks.yaml");
    let mut ids = Vec::new();
    for hook in hooks.as_array().unwrap() {
        // What pre-commit requires of a hook.
        for field in ["id", "name", "entry", "language"] {
            assert!(hook[field].is_string(), "{field} of {hook}");
        }
        ids.push(hook["id"].as_str().unwrap());
        let mut words = hook["entry"].as_str().unwrap().split_whitespace();
        assert_eq!(words.next(), Some("transom"));
        let help = command("transom", root())
            .args(words)
            .arg("--help")
            .output()
            .unwrap();
        assert!(help.status.success(), "{hook}: {}", message(&help));
    }
    assert_eq!(ids, ["transom-check", "transom-check-build", "transom-test"]);
}

#[test]
fn pre_commit_itself_runs_the_hook() {
    if !has("pre-commit", "the hooks were not run by pre-commit")
        || !has("git", "no repository for pre-commit")
    {
        return;
    }
    let config = ".pre-commit-config.yaml";
    let folder = files(&[
        (
            "good.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
        ),
        // No Kubernetes object: skipped.
        ("compose.yaml", "services: {}\n"),
    ]);
    let in_folder = |program: &str, arguments: &[&str]| {
        let mut run = command(program, folder.path());
        run.args(arguments)
            .env("PRE_COMMIT_HOME", folder.path().join(".cache"));
        run.output().unwrap()
    };
    // The hooks as a local repository, so that pre-commit needs no commit of them.
    let hooks = yaml(".pre-commit-hooks.yaml");
    let hook = hooks.as_array().unwrap()[0].clone();
    let text = json!({"repos": [{"repo": "local", "hooks": [hook]}]}).to_string();
    fs::write(folder.path().join(config), text).unwrap();
    fs::write(folder.path().join(".gitignore"), ".cache\n").unwrap();
    for arguments in [&["init", "--quiet"][..], &["add", "."]] {
        let run = in_folder("git", arguments);
        assert!(run.status.success(), "{}", message(&run));
    }
    let run = in_folder("pre-commit", &["run", "--all-files", "--verbose"]);
    assert!(run.status.success(), "{}", message(&run));
    fs::write(folder.path().join("bad.yaml"), bad_pod("name: web")).unwrap();
    in_folder("git", &["add", "."]);
    let run = in_folder("pre-commit", &["run"]);
    assert!(
        !run.status.success() && message(&run).contains("Pod web would be denied"),
        "{}",
        message(&run)
    );
}

/// The steps of the Action run with bash, with these inputs; the output of each step and the folder.
fn run_action(inputs: &[(&str, &str)], folder: &Path) -> Vec<Output> {
    let action = yaml("action.yml");
    assert_eq!(action["runs"]["using"], "composite");
    let defaults = action["inputs"].as_object().unwrap();
    let given: BTreeMap<&str, &str> = inputs.iter().copied().collect();
    assert!(given.keys().all(|name| defaults.contains_key(*name)), "{given:?}");
    let runner = folder.join(".runner");
    fs::create_dir_all(&runner).unwrap();
    let mut outputs = Vec::new();
    for step in action["runs"]["steps"].as_array().unwrap() {
        assert_eq!(step["shell"], "bash", "a composite step names its shell");
        let script = step["run"].as_str().unwrap();
        assert!(
            !script.contains("${{"),
            "inputs reach scripts as variables only: {script}"
        );
        // What a runner does for the shell bash.
        let mut bash = command("bash", folder);
        bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
        for (name, value) in step["env"].as_object().unwrap() {
            let value = value.as_str().unwrap();
            let input = value
                .strip_prefix("${{ inputs.")
                .and_then(|it| it.strip_suffix(" }}"))
                .unwrap();
            let default = defaults[input]["default"].as_str().unwrap();
            bash.env(name, given.get(input).copied().unwrap_or(default));
        }
        for name in ["GITHUB_PATH", "GITHUB_OUTPUT"] {
            bash.env(name, runner.join(name));
        }
        bash.env("RUNNER_TEMP", &runner).env("GITHUB_ACTION_PATH", root());
        // The runner puts what a step added to the path before the rest.
        if let Ok(added) = fs::read_to_string(runner.join("GITHUB_PATH")) {
            let path = std::env::var("PATH").unwrap_or_default();
            bash.env("PATH", format!("{}:{path}", added.trim()));
        }
        outputs.push(bash.output().unwrap());
    }
    outputs
}

#[test]
fn the_steps_of_the_action_check_the_paths_and_write_sarif() {
    if !has("bash", "the steps of the Action were not run") {
        return;
    }
    let folder = files(&[
        ("bad pods/a.yaml", &bad_pod("name: a")),
        ("b.yaml", &bad_pod("name: b")),
        ("$(touch evil)/c.yaml", &bad_pod("name: c")),
    ]);
    let inputs = [
        ("paths", "bad pods\nb.yaml\n\n$(touch evil)\n"),
        ("sarif", "out.sarif"),
        ("arguments", "--fail-on=error\n--exclude=x y"),
    ];
    let steps = run_action(&inputs, folder.path());
    assert_eq!(steps[0].status.code(), Some(0), "{}", message(&steps[0]));
    assert_eq!(steps[1].status.code(), Some(1), "{}", message(&steps[1]));
    let commands = message(&steps[1]);
    for file in ["bad pods/a.yaml", "b.yaml", "$(touch evil)/c.yaml"] {
        assert!(
            commands.contains(&format!("::error file={file},line=11")),
            "{commands}"
        );
    }
    assert!(!folder.path().join("evil").exists());
    let sarif: Value = serde_json::from_slice(&fs::read(folder.path().join("out.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    let output = fs::read_to_string(folder.path().join(".runner/GITHUB_OUTPUT")).unwrap();
    assert_eq!(output, "sarif=out.sarif\n");
    // Without inputs, the configuration names the paths.
    fs::write(
        folder.path().join(".transom.yaml"),
        "paths: [b.yaml]\nfailOn: never\n",
    )
    .unwrap();
    let steps = run_action(&[], folder.path());
    assert_eq!(steps[1].status.code(), Some(0), "{}", message(&steps[1]));
    assert!(
        message(&steps[1]).contains("::error file=b.yaml"),
        "{}",
        message(&steps[1])
    );
}

#[test]
fn the_action_downloads_only_what_has_the_digest() {
    if !has("curl", "the download of the Action was not run")
        || !has("sha256sum", "the digest was not checked")
    {
        return;
    }
    let folder = files(&[
        ("b.yaml", &bad_pod("name: b")),
        ("transom", "#!/bin/sh\necho a fake: \"$@\"\n"),
    ]);
    let url = format!("file://{}", folder.path().join("transom").display());
    let digest = command("sha256sum", folder.path())
        .arg("transom")
        .output()
        .unwrap();
    let digest = message(&digest)[..64].to_owned();
    let steps = run_action(
        &[("paths", "b.yaml"), ("url", &url), ("sha256", &digest)],
        folder.path(),
    );
    assert!(steps[0].status.success(), "{}", message(&steps[0]));
    assert_eq!(message(&steps[1]), "a fake: check --output github -- b.yaml\n");
    for digest in ["", &"0".repeat(64)] {
        let folder = files(&[]);
        let steps = run_action(&[("url", &url), ("sha256", digest)], folder.path());
        assert!(!steps[0].status.success(), "{digest:?}: {}", message(&steps[0]));
        assert!(!folder.path().join(".runner/GITHUB_PATH").exists(), "{digest:?}");
    }
}

#[test]
fn the_gitlab_job_writes_the_reports_that_it_names() {
    if !has("bash", "the script of the GitLab job was not run") {
        return;
    }
    let job = yaml(".gitlab/transom-check.yml")["transom-check"].clone();
    let folder = files(&[("a.yaml", &bad_pod("name: a")), ("b.yaml", &bad_pod("name: b"))]);
    let script = job["script"].as_array().unwrap()[0].as_str().unwrap();
    let mut bash = command("bash", folder.path());
    bash.args(["-c", script]);
    for (name, value) in job["variables"].as_object().unwrap() {
        bash.env(name, value.as_str().unwrap());
    }
    let run = bash.env("TRANSOM_PATHS", "a.yaml b.yaml").output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", message(&run));
    assert!(message(&run).contains("2 objects checked"), "{}", message(&run));
    let reports = job["artifacts"]["reports"].as_object().unwrap();
    assert_eq!(reports.keys().collect::<Vec<_>>(), ["codequality", "junit"]);
    for (kind, file) in reports {
        let report = fs::read_to_string(folder.path().join(file.as_str().unwrap())).unwrap();
        assert!(report.contains("run-as-user"), "{kind}: {report}");
        assert!(job["artifacts"]["paths"].as_array().unwrap().contains(file));
    }
}

/// The release packs an archive for each platform, with the binary under the name that krew starts.
fn the_archives_of_a_release_are_those_of(spec: &Value) {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "transom-linux-amd64",
        "transom-linux-arm64",
        "transom-windows-amd64.exe",
    ] {
        fs::write(folder.path().join(file), file).unwrap();
    }
    let packed = Command::new(root().join(".ci/krew-archives"))
        .arg("0.1.0")
        .arg(folder.path())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("TRANSOM", env!("CARGO_BIN_EXE_transom"))
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    for platform in spec["platforms"].as_array().unwrap() {
        let archive = platform["uri"].as_str().unwrap().rsplit('/').next().unwrap();
        let bin = platform["bin"].as_str().unwrap();
        let (suffix, unpack) = match archive.strip_suffix(".zip") {
            Some(_) => ("", &["python3", "-m", "zipfile", "--extract"][..]),
            None => ("--directory=", &["tar", "--extract", "--file"][..]),
        };
        let unpacked = folder.path().join(archive.replace('.', "_"));
        fs::create_dir(&unpacked).unwrap();
        let status = Command::new(unpack[0])
            .args(&unpack[1..])
            .arg(folder.path().join(archive))
            .arg(format!("{suffix}{}", unpacked.display()))
            .status();
        assert!(status.unwrap().success(), "{archive}");
        let suffix = archive.strip_prefix("transom_0.1.0_").unwrap();
        let platform = suffix.split('.').next().unwrap().replace('_', "-");
        let content = fs::read_to_string(unpacked.join(bin)).unwrap();
        assert!(
            content.starts_with(&format!("transom-{platform}")),
            "{archive}: {content}"
        );
        for licence in ["LICENSE", "THIRD-PARTY-LICENSES"] {
            assert!(unpacked.join(licence).exists(), "{archive} has no {licence}");
        }
        for installed in [
            "man/man1/transom.1",
            "man/man1/transom-check.1",
            "bash-completion/completions/transom",
            "zsh/site-functions/_transom",
            "fish/vendor_completions.d/transom.fish",
        ] {
            assert_eq!(
                unpacked.join("share").join(installed).exists(),
                platform.starts_with("linux"),
                "{archive}: {installed}"
            );
        }
    }
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let at = |text: &str| workflow.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(
        at(".ci/krew-archives") < at("sha256sum -- transom*"),
        "the archives have no checksums"
    );
}

#[test]
fn the_manifest_for_krew_has_what_krew_requires_when_a_release_fills_it() {
    let mut text = fs::read_to_string(root().join(".ci/krew.yaml")).unwrap();
    let base = "https://example.com/transom";
    for (name, value) in [
        ("VERSION", "0.1.0"),
        ("BASE_URL", base),
        ("SHA256_LINUX_AMD64", &"a".repeat(64)),
        ("SHA256_LINUX_ARM64", &"b".repeat(64)),
        ("SHA256_WINDOWS_AMD64", &"c".repeat(64)),
    ] {
        let placeholder = format!("${{{name}}}");
        assert!(text.contains(&placeholder), "{name}");
        text = text.replace(&placeholder, value);
    }
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert!(!text.contains("${"), "{text}");
    let parsed = parse(text.into_bytes());
    let plugin: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
    // As krew's internal/index/validation checks it.
    assert_eq!(
        plugin["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(
        (&plugin["kind"], &plugin["metadata"]["name"]),
        (&json!("Plugin"), &json!("transom"))
    );
    let spec = &plugin["spec"];
    assert_eq!(spec["version"], "v0.1.0");
    let short = spec["shortDescription"].as_str().unwrap();
    assert!(
        (1..=50).contains(&short.len()) && !short.ends_with('.'),
        "{short}"
    );
    let mut systems = Vec::new();
    for platform in spec["platforms"].as_array().unwrap() {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (labels["os"].as_str().unwrap(), labels["arch"].as_str().unwrap());
        systems.push(format!("{os}/{arch}"));
        let uri = platform["uri"].as_str().unwrap();
        assert!(
            uri.starts_with(base) && uri.contains(&format!("_0.1.0_{os}_{arch}.")),
            "{uri}"
        );
        assert!(
            [".tar.gz", ".zip"].iter().any(|suffix| uri.ends_with(suffix)),
            "krew unpacks nothing else: {uri}"
        );
        let digest = platform["sha256"].as_str().unwrap();
        assert!(
            digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
            "{digest}"
        );
        let bin = if os == "windows" {
            "transom.exe"
        } else {
            "bin/transom"
        };
        assert_eq!(platform["bin"], bin);
    }
    assert_eq!(systems, ["linux/amd64", "linux/arm64", "windows/amd64"]);
    the_archives_of_a_release_are_those_of(spec);
    let placeholders = fs::read_to_string(root().join("docs/contributing/release.md")).unwrap();
    assert!(
        placeholders.contains(".ci/krew.yaml"),
        "the release page does not say how to fill it"
    );
}
