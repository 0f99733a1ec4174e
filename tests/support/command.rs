//! Runs the program in a folder of files, as a person and a CI system do.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::skipped::skipped;

/// What one run said.
#[derive(Debug)]
pub struct CommandRun {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl CommandRun {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// The program under test: the one built with the tests, or the one that `TRANSOM_BIN` names, such as a
/// release build.
pub fn program() -> PathBuf {
    let Some(named) = std::env::var_os("TRANSOM_BIN") else {
        return env!("CARGO_BIN_EXE_transom").into();
    };
    // As an absolute path: programs are started in other folders.
    fs::canonicalize(&named).unwrap_or_else(|error| panic!("TRANSOM_BIN: {}: {error}", named.display()))
}

/// The search path of a shell that finds the program under test first.
pub fn path_with_program() -> String {
    let program = program();
    // Otherwise the shell would run another program, or none.
    assert_eq!(program.file_stem().unwrap(), "transom");
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", program.parent().unwrap().display())
}

/// The output of the program, which must succeed.
#[track_caller]
pub fn printed(arguments: &[&str]) -> String {
    let run = transom(Path::new("."), arguments);
    assert_eq!(run.status, 0, "{}", run.err);
    run.out
}

/// Runs the program in a folder.
pub fn transom(folder: &Path, arguments: &[&str]) -> CommandRun {
    transom_with(folder, arguments, "")
}

/// The same, with this on its standard input.
pub fn transom_with(folder: &Path, arguments: &[&str], input: impl AsRef<[u8]>) -> CommandRun {
    transom_in(folder, &[], arguments, input)
}

/// The same, with these variables of the environment.
pub fn transom_in(
    folder: &Path,
    variables: &[(&str, &Path)],
    arguments: &[&str],
    input: impl AsRef<[u8]>,
) -> CommandRun {
    let mut child = Command::new(program())
        .args(arguments)
        .current_dir(folder)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A run that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let output = child.wait_with_output().unwrap();
    CommandRun {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The exit status of the program if the readers of its standard output and standard error have closed them.
pub fn status_unread(folder: &Path, arguments: &[&str]) -> i32 {
    let mut child = Command::new(program())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    child.wait().unwrap().code().unwrap()
}

/// A folder with these files.
pub fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// A pod that Windows cannot run, and that no placement fixes: one error, run-as-user, on line 11.
pub fn bad_pod(metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n  os: {{name: windows}}\n  nodeSelector:\n    \
         kubernetes.io/os: windows\n    node.kubernetes.io/windows-build: 10.0.20348\n  containers:\n  - name: web\n    \
         securityContext: {{runAsUser: 1000, windowsOptions: {{runAsUserName: ContainerUser}}}}\n    \
         image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n    resources: {{limits: {{memory: 1Gi}}}}\n"
    )
}

/// Compares a generated text with its file, or writes it if `TRANSOM_BLESS=1` asks for that.
/// `test` names the test, as in `offline docs::`.
#[track_caller]
pub fn is_up_to_date(path: impl AsRef<Path>, generated: &str, test: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join(&path);
    if std::env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, generated).unwrap();
        return;
    }
    let shown = file.strip_prefix(root).unwrap_or(&file).display();
    assert!(
        fs::read_to_string(&file).unwrap_or_default() == generated,
        "{shown} is not up to date; TRANSOM_BLESS=1 cargo test --test {test} writes it again"
    );
}

/// A fenced block of a page: its language, its text, and the line of prose before it.
pub struct PageBlock {
    pub language: String,
    pub text: String,
    pub before: String,
}

/// The fenced blocks of a page of the documentation.
pub fn page_blocks(page: &str) -> Vec<PageBlock> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let (mut blocks, mut before) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(PageBlock {
                language: language.to_owned(),
                text: inside.join("\n") + "\n",
                before: before.clone(),
            });
        } else if !line.is_empty() {
            line.clone_into(&mut before);
        }
    }
    blocks
}

/// The Markdown files in a folder and its subfolders, by their paths below the root.
pub fn markdown_in(folder: &str) -> Vec<String> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            pages.extend(markdown_in(&path));
        } else if Path::new(&path).extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// Holds a SARIF log against the schema of OASIS, whose text is not part of the repository: `TRANSOM_SARIF_SCHEMA` names
/// the file, and `.ci/run` sets it.
#[track_caller]
pub fn assert_valid_sarif(log: &Value) {
    let Some(schema) = std::env::var_os("TRANSOM_SARIF_SCHEMA") else {
        skipped("SKIPPED: SARIF is not validated: TRANSOM_SARIF_SCHEMA names no schema");
        return;
    };
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    assert!(schema["title"].as_str().unwrap().contains("2.1.0"));
    assert_valid("Draft7Validator", &schema, &[log]);
}

/// Holds what a command printed with `-o json` against its schema in `docs/reference/schemas`. A field that the schema does
/// not describe is an error here; programs that read reports must ignore it.
#[track_caller]
pub fn assert_valid_reports(command: &str, reports: &[&Value]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join(format!("docs/reference/schemas/{command}.schema.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut schema = serde_json::from_str(&text).unwrap();
    refuse_unknown(&mut schema);
    assert_valid("Draft202012Validator", &schema, reports);
}

/// Makes every object of a schema refuse fields that it does not describe.
fn refuse_unknown(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(refuse_unknown),
        Value::Object(object) => {
            if object.contains_key("properties") {
                object.entry("additionalProperties").or_insert(false.into());
            }
            object.values_mut().for_each(refuse_unknown);
        }
        _ => {}
    }
}

/// Holds documents against a JSON schema, with Python's jsonschema (`TRANSOM_SARIF_PYTHON`, else `python3`).
#[track_caller]
fn assert_valid(validator: &str, schema: &Value, documents: &[&Value]) {
    const SCRIPT: &str = "import json, sys\ntry:\n  import jsonschema\nexcept ImportError:\n  sys.exit(3)\n\
                          validator = getattr(jsonschema, sys.argv[1])\ngiven = json.load(sys.stdin)\n\
                          validator.check_schema(given['schema'])\nvalidator = validator(given['schema'])\n\
                          for document in given['documents']:\n  for error in validator.iter_errors(document):\n    \
                          print(error.json_path, error.message[:300])\n";
    let python = std::env::var_os("TRANSOM_SARIF_PYTHON").unwrap_or_else(|| "python3".into());
    let started = Command::new(python)
        .args(["-c", SCRIPT, validator])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        skipped("SKIPPED: reports are not validated: there is no Python");
        return;
    };
    let given = json!({"schema": schema, "documents": documents}).to_string();
    let _ = child.stdin.take().unwrap().write_all(given.as_bytes());
    let output = child.wait_with_output().unwrap();
    if output.status.code() == Some(3) {
        skipped("SKIPPED: reports are not validated: Python has no jsonschema");
        return;
    }
    let message = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", message(&output.stderr));
    assert_eq!(message(&output.stdout), "", "{documents:#?}");
}

/// The test cases of a JUnit file as another program reads them: suite, case, and the results with their messages. `None`
/// without Python.
pub fn junit_cases(folder: &Path, file: &str) -> Option<String> {
    const SCRIPT: &str = "import sys, xml.etree.ElementTree as e\nfor s in e.parse(sys.argv[1]).getroot():\n  for c in \
                          s:\n    print(s.get('name'), c.get('name'), [(f.tag, f.get('message')) for f in c])";
    let reader = Command::new("python3")
        .args(["-c", SCRIPT, file])
        .current_dir(folder)
        .output();
    let Ok(read) = reader else {
        skipped("SKIPPED: JUnit's XML is not read by another program: there is no python3");
        return None;
    };
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    Some(String::from_utf8(read.stdout).unwrap())
}
