//! Helm's own engine, in a Python process beside the test: `tests/chart/engine.py` speaks to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use serde_json::{Map, Value, json};
use transom::manifest::Document;

use crate::support::skipped::skipped;

/// The registry of the image, where a test names none.
pub const REGISTRY: &str = "mirror.example.com";

/// An engine for the chart. Requests wait for one another.
pub struct Engine {
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// Ends with its standard input.
    _python: Child,
}

/// The Python that has Helm's engine, or why there is none.
fn python() -> Result<String, String> {
    let named = std::env::var("TRANSOM_HELM_PYTHON").ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import helm_python"]).output();
    match found {
        Ok(output) if output.status.success() => Ok(python),
        _ => Err(match named {
            Some(named) => format!("$TRANSOM_HELM_PYTHON ({named}) cannot import helm_python"),
            None => "python3 cannot import helm_python".to_owned(),
        }),
    }
}

/// The name under which Python runs: Helm takes its field manager from it, and the `helm` that people have is called so.
/// It stays beside the real one, by which Python finds its packages.
fn as_helm(python: &str) -> Result<String, String> {
    let found = Command::new(python)
        .args(["-c", "import os, sys; print(os.path.dirname(sys.executable))"])
        .output()
        .map_err(|error| error.to_string())?;
    let folder = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(format!("{folder}/helm"))
}

/// The chart refuses its own placeholder: values that name no registry get one.
fn with_an_image(mut request: Value) -> Value {
    let global = request.pointer("/values/global/imageRegistry");
    let is_global = global.and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let Some(values) = request.get_mut("values").and_then(Value::as_object_mut) else {
        return request;
    };
    // What is there and is no map is what the test is about.
    if let Some(image) = values.entry("image").or_insert(json!({})).as_object_mut()
        && !is_global
    {
        image.entry("registry").or_insert(json!(REGISTRY));
    }
    request
}

/// Says that something is not proved because Helm's engine is missing.
pub fn skipped_without_helm(what: &str, missing: &str) {
    skipped(format!(
        "SKIPPED: {what}: {missing}. To get Helm's engine:\n\
         SKIPPED:   python3 -m venv target/helm && target/helm/bin/pip install helm-python-sdk==0.2.2\n\
         SKIPPED:   export TRANSOM_HELM_PYTHON=$PWD/target/helm/bin/python"
    ));
}

/// The engine that the tests share; `None`, said once, where there is none.
pub fn engine() -> Option<&'static Engine> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    match ENGINE.get_or_init(Engine::start) {
        Ok(engine) => Some(engine),
        Err(missing) => {
            skipped_without_helm("the chart", missing);
            None
        }
    }
}

impl Engine {
    fn start() -> Result<Self, String> {
        Self::of(&super::generated::chart())
    }

    /// An engine for a chart in another folder.
    pub fn of(chart: &Path) -> Result<Self, String> {
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/engine.py");
        let python = python()?;
        let mut python = Command::new(&python)
            .arg0(as_helm(&python)?)
            .arg(driver)
            .arg(chart)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let stdin = python.stdin.take().unwrap();
        let stdout = BufReader::new(python.stdout.take().unwrap());
        Ok(Engine {
            pipes: Mutex::new((stdin, stdout)),
            _python: python,
        })
    }

    /// What the engine answers, or what it says is wrong.
    pub fn request(&self, what: &str, arguments: Value) -> Result<Value, String> {
        let mut request = with_an_image(arguments);
        request["do"] = json!(what);
        let mut pipes = self.pipes.lock().unwrap();
        writeln!(pipes.0, "{request}").unwrap();
        let mut line = String::new();
        pipes.1.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("the engine ended at {request}; its words are above"));
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["ok"].clone()),
        }
    }

    /// The objects that the chart makes of these values, and the notes.
    pub fn render(&self, values: &Value) -> Result<Rendered, String> {
        self.render_as("transom", "transom-system", values)
    }

    pub fn render_as(&self, name: &str, namespace: &str, values: &Value) -> Result<Rendered, String> {
        let request = json!({"values": values, "name": name, "namespace": namespace});
        let files: Map<String, Value> = match self.request("render", request)? {
            Value::Object(files) => files,
            other => panic!("{other}"),
        };
        let mut rendered = Rendered::default();
        for (file, text) in files {
            let text = text.as_str().unwrap();
            if file.ends_with("NOTES.txt") {
                text.clone_into(&mut rendered.notes);
            } else if Path::new(&file).extension().is_some_and(|it| it == "yaml") {
                // Alerts have templates of Prometheus, which Transom takes for a chart that was not rendered.
                let text = text.replace("{{", "\u{27e6}");
                let parsed = transom::manifest::parse(text.as_bytes().to_vec());
                let errors: Vec<_> = parsed.errors.iter().map(|error| &error.message).collect();
                assert!(errors.is_empty(), "{file}: {errors:?}\n{text}");
                let objects = parsed.documents.iter().map(Document::json);
                let objects = objects
                    .map(|json| serde_json::from_str::<Value>(&json.replace('\u{27e6}', "{{")).unwrap());
                rendered.objects.extend(objects.filter(Value::is_object));
            }
        }
        Ok(rendered)
    }
}

/// What came out of the templates.
#[derive(Default, Debug)]
pub struct Rendered {
    pub objects: Vec<Value>,
    pub notes: String,
}

impl Rendered {
    /// The only object of a kind with this name.
    #[track_caller]
    pub fn object(&self, kind: &str, name: &str) -> &Value {
        let mut found = self
            .objects
            .iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        let first = found
            .next()
            .unwrap_or_else(|| panic!("there is no {kind} {name}"));
        assert!(found.next().is_none(), "there are two {kind} {name}");
        first
    }

    /// The names of all objects of a kind.
    pub fn names(&self, kind: &str) -> Vec<&str> {
        let of_kind = self.objects.iter().filter(|object| object["kind"] == kind);
        of_kind
            .filter_map(|object| object["metadata"]["name"].as_str())
            .collect()
    }

    /// All of them, as kubectl takes them.
    pub fn list(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects}).to_string()
    }
}
