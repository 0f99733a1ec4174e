//! The configuration file of `check` and `fix`, `.transom.yaml`: its fields, where it is found, and how it is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::document_file::{self, DocumentFileError};
use super::files::EMPTY_PATTERN;
use super::unknown_rule;
use crate::api::{ClusterConfigSpec, FieldStep, RuleSpec};
use crate::manifest::NodeStep;
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, MOST_AGE_DAYS, Policy};
use crate::model::nodes::node::major_minor;
use crate::model::windows::os::Os;
use crate::process::files::absolute;
use crate::rules;

/// The name of the configuration file.
pub const CONFIG_FILE: &str = ".transom.yaml";

/// Settings of `transom check` and `transom fix` for a folder and everything below it. Paths are relative to the folder of the file.
/// Arguments of the command line replace fields.
// The comments of the fields are the descriptions that editors show.
#[derive(Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "Configuration of transom check and transom fix (.transom.yaml)")]
pub struct CheckConfig {
    /// A file of WindowsPodPolicy objects, as with --policy.
    pub policy: Option<PathBuf>,
    /// The files and folders to check if the command line names none.
    pub paths: Vec<PathBuf>,
    /// Files and folders to exclude, by their path below the folder of this file, or by name; * matches anything, as
    /// with --exclude.
    #[schemars(inner(length(min = 1)))]
    pub exclude: Vec<String>,
    /// The Kubernetes version of the cluster, as with --kubernetes-version.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Files and folders that describe the cluster, such as the output of kubectl get nodes,runtimeclasses,namespaces -o
    /// yaml. Their objects are not checked.
    pub facts: Vec<PathBuf>,
    /// What ends in exit status 1, as with --fail-on.
    pub fail_on: Option<ConfigFailOn>,
    /// For which operating system the pods are that do not say so themselves, as with --os: by file or folder below the
    /// folder of this file, where * matches anything. The longest entry that matches applies.
    pub os: BTreeMap<String, ConfigOs>,
    /// Rules, and what their findings do. An entry replaces that of the policy.
    #[schemars(schema_with = "rule_actions")]
    pub rules: Vec<RuleSpec>,
    /// Whether to look up images in their registries, as with --registry.
    pub registry: bool,
    /// Facts about the cluster that its API does not show, as in the file of --cluster-config.
    pub cluster: ClusterConfigSpec,
}

/// What ends in exit status 1.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFailOn {
    /// Nothing.
    Never,
    /// An object that would be denied.
    Deny,
    /// That, or an open finding of severity error.
    Error,
    /// That, or an open finding of severity warning.
    Warning,
    /// That, or any open finding.
    Advice,
}

/// The operating system of pods.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum ConfigOs {
    /// Windows.
    Windows,
    /// Linux.
    Linux,
}

impl ConfigOs {
    /// As the model names it.
    pub fn os(self) -> Os {
        match self {
            ConfigOs::Windows => Os::Windows,
            ConfigOs::Linux => Os::Linux,
        }
    }
}

/// The minor version of a Kubernetes release: 36 for 1.36.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KubernetesVersion(pub u32);

impl<'de> Deserialize<'de> for KubernetesVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // YAML reads 1.30 without quotes as the number 1.3.
        let Value::String(text) = Value::deserialize(deserializer)? else {
            return Err(D::Error::custom("write the version in quotes, as in \"1.36\""));
        };
        match major_minor(&text) {
            Some((1, minor)) => {
                Facts::known_minor(minor).map_err(D::Error::custom)?;
                Ok(KubernetesVersion(minor))
            }
            _ => Err(D::Error::custom("write the version as in \"1.36\"")),
        }
    }
}

impl JsonSchema for KubernetesVersion {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KubernetesVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": r"^v?1\.[0-9]+([.+-].*)?$"})
    }
}

/// The name of a rule, each with its summary, its action, and for one rule an age.
fn rule_actions(_: &mut SchemaGenerator) -> Schema {
    let rule = |rule: &rules::Rule| {
        let description = format!("{}: {} ({})", rule.id, rule.summary, rule.severity);
        json!({"const": rule.name, "description": description})
    };
    let names: Vec<Value> = rules::catalogue().map(rule).collect();
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["name"],
            "properties": {
                "name": {"oneOf": names},
                "action": {"enum": Action::ALL.map(Action::as_str)},
                "parameters": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {"maxAgeDays": {
                        "description": format!("For {}: how many days old the Windows base of an image may be.", rules::IMAGE_BASE_OLD.name),
                        "type": "integer", "minimum": 1, "maximum": MOST_AGE_DAYS,
                    }},
                },
            },
        },
    })
}

/// The nearest configuration file: in the folder of a path (of standard input, the current folder), or above it.
pub fn find_config(path: &Path) -> Option<PathBuf> {
    let start = if path.as_os_str() == "-" {
        Path::new(".")
    } else {
        path
    };
    let start = absolute(start).ok()?;
    let folder = if start.is_dir() {
        Some(start.as_path())
    } else {
        start.parent()
    };
    let found = folder?
        .ancestors()
        .map(|folder| folder.join(CONFIG_FILE))
        .find(|file| file.is_file())?;
    // Shown as a relative path where that is shorter.
    let current = std::env::current_dir().ok();
    let relative = current.and_then(|current| found.strip_prefix(current).ok().map(Path::to_owned));
    Some(relative.unwrap_or(found))
}

impl CheckConfig {
    /// Reads a configuration file; its paths then lead from the current folder.
    ///
    /// # Errors
    /// Every problem of the file, one line each.
    pub fn read(file: &Path) -> Result<Self, DocumentFileError> {
        let mut read = document_file::read::<CheckConfig>(file, "configuration file")?;
        let problems = read.content.problems();
        for (path, message) in problems {
            let path: Vec<NodeStep<'_>> = path.iter().map(FieldStep::step).collect();
            read.problem(&path, &message);
        }
        let mut config = read.finish()?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let paths = config
            .policy
            .iter_mut()
            .chain(&mut config.paths)
            .chain(&mut config.facts);
        for path in paths {
            *path = folder.join(&*path);
        }
        Ok(config)
    }

    /// The entries that cannot be used, with their paths.
    pub(super) fn problems(&self) -> Vec<(Vec<FieldStep>, String)> {
        let mut problems = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let (field, message) = if rule_id(&rule.name).is_none() {
                ("name", unknown_rule(&rule.name))
            } else if self.rules.iter().take(index).any(|other| other.name == rule.name) {
                ("name", format!("the rule {} is named twice", rule.name))
            } else if let Some((field, problem)) = rule.problem() {
                (field, problem)
            } else {
                continue;
            };
            let path = vec![FieldStep::Key("rules".to_owned()), FieldStep::Index(index)];
            problems.push((path, format!("rules[{index}].{field}: {message}")));
        }
        for (index, _) in (self.exclude.iter().enumerate()).filter(|(_, pattern)| pattern.is_empty()) {
            let path = vec![FieldStep::Key("exclude".to_owned()), FieldStep::Index(index)];
            problems.push((path, format!("exclude[{index}]: {EMPTY_PATTERN}")));
        }
        for pattern in self.os.keys().filter(|pattern| pattern.is_empty()) {
            let path = vec![FieldStep::Key("os".to_owned()), FieldStep::Key(pattern.clone())];
            problems.push((path, format!("os: {EMPTY_PATTERN}")));
        }
        for problem in self.cluster.compile().err().into_iter().flatten() {
            let path = [&[FieldStep::Key("cluster".to_owned())], &problem.path[..]].concat();
            problems.push((path, format!("cluster.{}", problem.message)));
        }
        problems
    }

    /// What it states about the cluster.
    pub fn cluster_config(&self) -> ClusterConfig {
        self.cluster.compile().unwrap_or_default()
    }

    /// The IDs of the rules whose actions it sets.
    pub fn rule_ids(&self) -> Vec<&'static str> {
        (self.rules.iter())
            .filter_map(|rule| rule_id(&rule.name))
            .collect()
    }

    /// Sets the actions of its rules in a policy.
    pub fn change(&self, policy: &mut Policy) {
        for rule in &self.rules {
            if let Some(id) = rule_id(&rule.name) {
                policy.actions.extend(rule.action.map(|action| (id, action)));
            }
            policy.base_max_age_days = rule.parameters.max_age_days.unwrap_or(policy.base_max_age_days);
        }
    }

    /// The JSON schema of the file.
    pub fn schema() -> Value {
        schemars::schema_for!(CheckConfig).to_value()
    }
}

fn rule_id(name: &str) -> Option<&'static str> {
    let rule = rules::find(name)?;
    (rule.name == name).then_some(rule.id)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &str) -> Result<CheckConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONFIG_FILE);
        fs::write(&file, text).unwrap();
        let prefix = format!("{}:", file.display());
        CheckConfig::read(&file).map_err(|error| error.to_string().replace(&prefix, ""))
    }

    #[test]
    fn an_empty_file_changes_nothing_and_every_field_is_read() {
        for empty in ["", "# nothing\n", "---\n", "{}\n"] {
            assert_eq!(read(empty), Ok(CheckConfig::default()), "{empty:?}");
        }
        let config = read(
            "policy: policy.yaml\npaths: [manifests]\nexclude: ['charts/*']\nkubernetesVersion: \"1.30\"\n\
             os: {\"*\": linux, web/win: windows}\nfacts: [nodes.yaml]\nfailOn: warning\nregistry: true\nrules: [{name: run-as-user, action: Warn}]\n",
        )
        .unwrap();
        assert!(config.policy.as_deref().unwrap().is_absolute());
        assert!(config.paths[0].is_absolute() && config.facts[0].ends_with("nodes.yaml"));
        assert_eq!(config.kubernetes_version, Some(KubernetesVersion(30)));
        assert_eq!(config.fail_on, Some(ConfigFailOn::Warning));
        assert!(config.registry);
        assert_eq!(config.os.get("web/win"), Some(&ConfigOs::Windows));
        let mut policy = Policy::standalone();
        config.change(&mut policy);
        assert_eq!(policy.actions.get("TSM204"), Some(&Action::Warn));
    }

    #[test]
    fn every_problem_has_its_line_and_the_nearest_name() {
        for (text, problems) in [
            ("polcy: a\n", "1: unknown field \"polcy\"; did you mean policy?"),
            (
                "paths: [a]\nfailOn: warn\n",
                "2: failOn: unknown value \"warn\"; use one of never, deny, error, warning, advice",
            ),
            (
                "rules:\n- {name: run-as-usr, action: Warn}\n- {name: host-pid, action: warn}\n",
                "3: rules[1].action: unknown value \"warn\"; did you mean Warn?",
            ),
            (
                "rules:\n- {name: TSM204, action: Warn}\n- {name: run-as-usr, action: Warn}\n",
                "2: rules[0].name: there is no rule \"TSM204\"; did you mean run-as-user?\n3: rules[1].name: there is no rule \
                 \"run-as-usr\"; did you mean run-as-user?",
            ),
            (
                "rules:\n- {name: host-pid, parameters: {maxAgeDays: 3}}\n- {name: run-as-user}\n- {name: image-base-old, parameters: {maxAgeDays: 0}}\n",
                "2: rules[0].parameters: only the rule image-base-old has the parameter maxAgeDays\n3: rules[1].action: set action, or \
                 parameters.maxAgeDays for image-base-old\n4: rules[2].parameters.maxAgeDays: write a number from 1 to 3650",
            ),
            (
                "rules:\n- {name: host-pid, action: Warn}\n- {name: host-pid, action: Deny}\n",
                "3: rules[1].name: the rule host-pid is named twice",
            ),
            (
                "exclude:\n- vendor\n- ''\n",
                "3: exclude[1]: the pattern is empty; write a path or a name, as in charts/*, or remove it",
            ),
            (
                "kubernetesVersion: 1.30\n",
                "1: kubernetesVersion: write the version in quotes, as in \"1.36\"",
            ),
            (
                "kubernetesVersion: latest\n",
                "1: kubernetesVersion: write the version as in \"1.36\"",
            ),
            (
                "paths: manifests\n",
                "1: paths: expected a list, found the text \"manifests\"",
            ),
            (
                "- a\n",
                "1: this is not a map of fields, as in policy: policy.yaml",
            ),
            (
                "paths: []\n---\nfacts: []\n",
                "3: there is a second document; the file has only one",
            ),
        ] {
            let expected = format!("the configuration file cannot be used:\n{problems}");
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn the_nearest_file_upwards_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("team/web");
        fs::create_dir_all(&below).unwrap();
        fs::write(folder.path().join(CONFIG_FILE), "").unwrap();
        fs::write(below.join("a.yaml"), "").unwrap();
        assert_eq!(
            find_config(&below.join("a.yaml")),
            Some(folder.path().join(CONFIG_FILE))
        );
        fs::write(folder.path().join("team").join(CONFIG_FILE), "").unwrap();
        assert_eq!(
            find_config(&below),
            Some(folder.path().join("team").join(CONFIG_FILE))
        );
        assert_eq!(find_config(folder.path()), Some(folder.path().join(CONFIG_FILE)));
        // team is no folder above shop.
        let shop = folder.path().join("shop");
        fs::create_dir(&shop).unwrap();
        let real = folder.path().canonicalize().unwrap();
        for path in ["a.yaml", "."] {
            assert_eq!(
                find_config(&folder.path().join("team/../shop").join(path)),
                Some(real.join(CONFIG_FILE))
            );
        }
    }
}
