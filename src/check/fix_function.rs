//! The settings of `transom fix` as a KRM function: the `functionConfig` of a ResourceList.

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::baseline::unknown_rule;
use super::config::{CheckConfig, ConfigOs};
use crate::api::{API_VERSION, FieldStep, read_document};
use crate::manifest::{self, Document, NodeStep};
use crate::model::os::Os;
use crate::rules;

/// The kind of the settings.
const KIND: &str = "Fix";

/// The settings. Arguments of the command line replace them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FixFunction {
    /// Whether to place the pods, as with `--placement`.
    pub placement: bool,
    /// The IDs of the only rules to fix, as with `--rules`; empty: all.
    pub rules: Vec<&'static str>,
    /// The operating system of the pods, as with `--os`.
    pub os: Option<Os>,
    /// The fields of `.transom.yaml`, instead of the file. Its paths lead from the current folder.
    pub config: Option<CheckConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenFunction {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata", default)]
    _metadata: Option<IgnoredAny>,
    #[serde(default)]
    spec: FunctionSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FunctionSpec {
    placement: bool,
    rules: Vec<String>,
    os: Option<ConfigOs>,
    config: Option<CheckConfig>,
}

impl FixFunction {
    /// The settings in a text; none if it is no ResourceList with a `functionConfig`.
    ///
    /// # Errors
    /// Every problem, each with its line.
    pub fn of_text(text: &[u8]) -> Result<Self, Vec<String>> {
        const FIELD: &[u8] = b"functionConfig";
        if memmem::find(text, FIELD).is_none() {
            return Ok(FixFunction::default());
        }
        let parsed = manifest::parse(text.to_vec());
        let Some(config) = &parsed.function_config else {
            return Ok(FixFunction::default());
        };
        let problems: Vec<String> = (parsed.warnings_of(config))
            .map(|warning| format!("{}: functionConfig: {}", warning.position.line, warning.message))
            .collect();
        if problems.is_empty() {
            FixFunction::read(config)
        } else {
            Err(problems)
        }
    }

    /// Reads the settings. An object of another kind without settings, as Kustomize requires one, has none.
    ///
    /// # Errors
    /// Every problem, each with its line.
    fn read(document: &Document) -> Result<Self, Vec<String>> {
        let value: Value = serde_json::from_str(document.json()).unwrap_or_default();
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let group = |version: &str| version.split('/').next().map(str::to_owned);
        let is_ours = text("kind") == KIND && group(text("apiVersion")) == group(API_VERSION);
        let problem = |path: &[FieldStep], message: &str| {
            let steps: Vec<NodeStep<'_>> = path.iter().map(FieldStep::step).collect();
            format!("{}: functionConfig: {message}", document.locate(&steps).line)
        };
        let refuse = |field: &str, message: &str| {
            let message = format!("the settings of transom fix have {message}");
            Err(vec![problem(&[FieldStep::Key(field.to_owned())], &message)])
        };
        let version = text("apiVersion");
        if !is_ours {
            let is_set = |field: &&str| value.get(*field).is_some_and(|value| !value.is_null());
            return match ["spec", "data"].into_iter().find(is_set) {
                None => Ok(FixFunction::default()),
                Some(field) => {
                    let message = format!(
                        "the kind {KIND} and the apiVersion {API_VERSION}, not {} and {version}",
                        text("kind")
                    );
                    refuse(field, &message)
                }
            };
        }
        if version != API_VERSION {
            return refuse(
                "apiVersion",
                &format!("the apiVersion {API_VERSION}, not {version}"),
            );
        }
        let written = read_document::<WrittenFunction>(document).map_err(|errors| {
            let errors = errors.into_iter();
            errors
                .map(|error| format!("{}: functionConfig: {}", error.line, error.message))
                .collect::<Vec<_>>()
        })?;
        written.spec.settings(&problem)
    }
}

impl FunctionSpec {
    /// The settings. `problem` adds the line of a field to a message.
    fn settings(self, problem: &dyn Fn(&[FieldStep], &str) -> String) -> Result<FixFunction, Vec<String>> {
        let key = |field: &str| FieldStep::Key(field.to_owned());
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for (index, name) in self.rules.iter().enumerate() {
            if let Some(rule) = rules::find(name) {
                rules.push(rule.id);
                continue;
            }
            let path = [key("spec"), key("rules"), FieldStep::Index(index)];
            let message = format!("spec.rules[{index}]: {}", unknown_rule(name));
            problems.push(problem(&path, &message));
        }
        for (path, message) in self.config.iter().flat_map(CheckConfig::problems) {
            let path = [vec![key("spec"), key("config")], path].concat();
            problems.push(problem(&path, &format!("spec.config.{message}")));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(FixFunction {
            placement: self.placement,
            rules,
            os: self.os.map(ConfigOs::os),
            config: self.config,
        })
    }
}
