//! Manifests are read as `kubectl` reads them: odd inputs, each with the JSON that `kubectl` makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use transom::manifest::parse;

use crate::support::control_plane::programs_or_skip;

/// An input, and what `kubectl annotate --local -o json` prints for it, without the annotation: an object, or a list of
/// several.
#[derive(Deserialize)]
struct Case {
    name: String,
    yaml: String,
    json: Value,
}

impl Case {
    fn objects(&self) -> &[Value] {
        match &self.json {
            Value::Array(objects) => objects,
            object => std::slice::from_ref(object),
        }
    }
}

fn cases() -> Vec<Case> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/cases.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The same value for 1 and 1.0: kubectl writes numbers of 64 bits.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.iter().map(with_floats).collect(),
        Value::Object(fields) => (fields.iter())
            .map(|(key, value)| (key.clone(), with_floats(value)))
            .collect(),
        other => other.clone(),
    }
}

#[test]
fn odd_manifests_are_read_as_kubectl_reads_them() {
    let cases = cases();
    assert!(cases.len() >= 100);
    for case in &cases {
        let Case { name, yaml, .. } = case;
        let parsed = parse(yaml.clone().into_bytes());
        assert_eq!(parsed.errors, [], "{name}: {yaml}");
        let read: Vec<Value> = (parsed.documents.iter())
            .map(|document| with_floats(&serde_json::from_str(document.json()).unwrap()))
            .collect();
        let expected: Vec<Value> = case.objects().iter().map(with_floats).collect();
        assert_eq!(read, expected, "{name}: {yaml}");
    }
}

/// The JSON of the cases is what the installed `kubectl` prints.
#[test]
fn kubectl_reads_the_odd_manifests_as_recorded() {
    let Some(programs) = programs_or_skip("how kubectl reads manifests") else {
        return;
    };
    let cases = cases();
    let folder = tempfile::tempdir().unwrap();
    for (number, case) in cases.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number:03}.yaml")), &case.yaml).unwrap();
    }
    let output = Command::new(programs.join("kubectl"))
        .args(["annotate", "--local", "a=b", "-o", "json", "-f"])
        .arg(folder.path())
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let printed: Vec<Value> = printed.map(Result::unwrap).collect();
    let recorded = cases
        .iter()
        .flat_map(|case| case.objects().iter().map(move |object| (&case.name, object)));
    let recorded: Vec<(&String, &Value)> = recorded.collect();
    assert_eq!(printed.len(), recorded.len());
    for ((name, recorded), mut object) in recorded.into_iter().zip(printed) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations").unwrap();
        assert_eq!(object, *recorded, "{name}");
    }
}

/// The variable with a folder of manifests to compare with `kubectl`: those of public repositories, for example.
const FOLDER: &str = "TRANSOM_KUBECTL_MANIFESTS";

/// The YAML files below a folder.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            files_below(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
}

/// An object without the annotation, and without metadata that were added for it. Whole numbers stay whole: a large one that
/// lost its last digits is another one.
fn without_annotation(mut object: Value) -> Value {
    fn normal(value: &mut Value) {
        match value {
            Value::Number(number) if !number.is_i64() && !number.is_u64() => {
                // As Go does with a float that is a whole number.
                let float = number.as_f64().unwrap_or_default();
                if float.fract() == 0.0 && float.abs() < 9e15 {
                    *value = serde_json::from_str(&format!("{float:.0}")).unwrap();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(normal),
            Value::Object(fields) => fields.values_mut().for_each(normal),
            _ => {}
        }
    }
    normal(&mut object);
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    if let Some(fields) = object.as_object_mut() {
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(ANNOTATION);
                // kubectl writes the annotations again, as texts.
                for annotation in annotations.values_mut().filter(|annotation| annotation.is_null()) {
                    *annotation = "".into();
                }
            }
            if metadata.get("annotations").is_some_and(is_empty) {
                metadata.remove("annotations");
            }
        }
        if fields.get("metadata").is_some_and(is_empty) {
            fields.remove("metadata");
        }
    }
    object
}

const ANNOTATION: &str = "transom.dev/read-by";

/// How one file is read twice.
#[derive(Default)]
struct Comparison {
    files: usize,
    /// Files of which `kubectl` refuses a part, such as values of charts: only what it prints is compared.
    refused: usize,
    /// Files that are refused here because they are templates: `kubectl` reads the braces as text.
    templates: usize,
    objects: usize,
    differences: Vec<String>,
}

impl Comparison {
    fn file(&mut self, kubectl: &Path, file: &Path) {
        let output = Command::new(kubectl)
            .args([
                "annotate",
                "--local",
                "--overwrite",
                "--show-managed-fields",
                "-o",
                "json",
                "-f",
            ])
            .arg(file)
            .arg(format!("{ANNOTATION}=kubectl"))
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        let is_read = output.status.success();
        let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let printed: Vec<Value> = printed.map_while(Result::ok).map(without_annotation).collect();
        let parsed = parse(std::fs::read(file).unwrap());
        let read = parsed.documents.iter().map(|document| {
            let mut object: Value = serde_json::from_str(document.json()).unwrap();
            // An item of a typed list need not name its type.
            let of_list = document.list_kind().and_then(|kind| kind.strip_suffix("List"));
            if let (Some(fields), Some(kind)) =
                (object.as_object_mut(), of_list.filter(|kind| !kind.is_empty()))
            {
                fields.entry("kind").or_insert_with(|| kind.into());
                if let Some(version) = document.list_api_version() {
                    fields.entry("apiVersion").or_insert_with(|| version.into());
                }
            }
            without_annotation(object)
        });
        let mut read = read.collect::<Vec<Value>>().into_iter();
        self.files += 1;
        self.objects += printed.len();
        self.refused += usize::from(!is_read);
        let name = file.display();
        if let Some(error) = parsed.errors.first().filter(|_| is_read) {
            if error.message.contains("a template that was not rendered") {
                self.templates += 1;
            } else {
                self.differences.push(format!("{name}: refused: {error}"));
            }
            return;
        }
        for theirs in &printed {
            // What kubectl refuses need not be refused here.
            let ours = if is_read {
                read.next()
            } else {
                read.find(|ours| ours == theirs)
            };
            if ours.as_ref() != Some(theirs) {
                let ours = ours.unwrap_or_default();
                self.differences
                    .push(format!("{name}: reads {ours}\n  kubectl {theirs}"));
                return;
            }
        }
        if let Some(ours) = read.next().filter(|_| is_read) {
            self.differences
                .push(format!("{name}: kubectl does not read {ours}"));
        }
    }
}

/// Opt-in, because the manifests are not in this repository.
#[test]
fn a_folder_of_manifests_is_read_as_kubectl_reads_it() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        eprintln!("not compared with kubectl: {FOLDER} names no folder of manifests");
        return;
    };
    let kubectl = programs_or_skip("how kubectl reads a folder").map(|programs| programs.join("kubectl"));
    let kubectl = kubectl.unwrap_or_else(|| "kubectl".into());
    let mut files = Vec::new();
    files_below(&folder, &mut files);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts: Vec<Comparison> = std::thread::scope(|scope| {
        let compare = |part: &[PathBuf]| {
            let mut comparison = Comparison::default();
            for file in part {
                comparison.file(&kubectl, file);
            }
            comparison
        };
        let parts = files.chunks(files.len().div_ceil(threads).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || compare(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&Comparison) -> usize| parts.iter().map(of).sum::<usize>();
    let differences: Vec<&String> = parts.iter().flat_map(|part| &part.differences).collect();
    eprintln!(
        "{} files, {} of them refused by kubectl in part or as a whole, {} here as templates; {} objects; {} differences",
        sum(|part| part.files),
        sum(|part| part.refused),
        sum(|part| part.templates),
        sum(|part| part.objects),
        differences.len()
    );
    for difference in &differences {
        eprintln!("{difference:.2000}");
    }
    assert!(!files.is_empty() && differences.is_empty());
}
