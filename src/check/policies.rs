//! The policies among the inputs. `plan`, whose input is a cluster, and tests of policies apply them. `check` and `fix` only
//! validate them, and name them: what is checked must not decide how it is checked.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CheckNote, DocumentRole, Manifests, NoteLevel, UnreadableInput, role};
use crate::api::{read_node_policy, read_policy};
use crate::engine::policy_set::StoredPolicy;
use crate::model::text::{shell_word, shown};

/// A policy among the inputs, and where it is.
struct FoundPolicy {
    source: String,
    line: usize,
    policy: StoredPolicy,
}

impl Manifests {
    /// Whether there is a WindowsNodePolicy among the inputs.
    pub fn has_node_policy(&self) -> bool {
        let mut documents = self.documents.iter();
        documents.any(|(_, document)| matches!(role(document), Ok(DocumentRole::NodePolicy)))
    }

    /// Reads every policy after the first `known` documents; an invalid one is an error of the input. With `apply`, two
    /// policies with the same name are also an error, because a cluster cannot have both.
    pub fn policies_after(&mut self, known: usize, apply: bool) -> Vec<StoredPolicy> {
        let mut places: BTreeMap<String, String> = BTreeMap::new();
        let mut policies = Vec::new();
        for FoundPolicy { source, line, policy } in self.find_policies(known) {
            let name = policy.policy.name.clone();
            match places.insert(name.clone(), format!("{source}:{line}")) {
                Some(first) if apply => self.errors.push(UnreadableInput {
                    source,
                    line,
                    message: format!(
                        "there is another WindowsPodPolicy \"{name}\" in {first}, and a cluster has only one of each \
                         name; select one with --policy"
                    ),
                }),
                _ => policies.push(policy),
            }
        }
        policies
    }

    /// Validates every policy among the inputs of a command, as in `transom check`, and notes those that do not apply: all
    /// except those in the file `applied`.
    pub fn note_policies(&mut self, command: &str, applied: Option<&Path>) {
        let mut names: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
        for FoundPolicy { source, line, policy } in self.find_policies(0) {
            let of_source = names.entry(source).or_insert_with(|| (line, Vec::new()));
            of_source.1.push(policy.policy.name);
        }
        let real = |path: &Path| path.canonicalize().ok();
        let applied_file = applied.and_then(real);
        for (source, (line, names)) in names {
            if applied_file.is_some() && real(Path::new(&source)) == applied_file {
                continue;
            }
            let why = applied.map_or(String::new(), |file| {
                format!(
                    ", because --policy or the configuration names {}",
                    shown(&file.display().to_string())
                )
            });
            let list = names.iter().map(|name| format!("\"{}\"", shown(name)));
            let list = list.collect::<Vec<_>>().join(", ");
            let (noun, verb) = if names.len() == 1 {
                ("policy", "does")
            } else {
                ("policies", "do")
            };
            let file = if source == "-" {
                "FILE".to_owned()
            } else {
                shell_word(&source)
            };
            self.notes.push(CheckNote {
                source,
                line,
                column: 0,
                level: NoteLevel::Note,
                message: format!(
                    "the {noun} {list} {verb} not apply{why}; to apply: {command} --policy {file} PATHS"
                ),
            });
        }
    }

    /// The valid policies after the first `known` documents; records an error for each other one.
    fn find_policies(&mut self, known: usize) -> Vec<FoundPolicy> {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for (source, document) in self.documents.iter().skip(known) {
            let Some(source) = self.sources.get(*source).map(|source| &source.name) else {
                continue;
            };
            let problems = match role(document) {
                Ok(DocumentRole::NodePolicy) => read_node_policy(document).err(),
                Ok(DocumentRole::Policy) => match read_policy(document) {
                    Ok(policy) => {
                        found.push(FoundPolicy {
                            source: source.clone(),
                            line: document.start().line,
                            policy,
                        });
                        None
                    }
                    Err(problems) => Some(problems),
                },
                _ => None,
            };
            errors.extend(problems.into_iter().flatten().map(|problem| UnreadableInput {
                source: source.clone(),
                line: problem.line,
                message: problem.message,
            }));
        }
        self.errors.extend(errors);
        found
    }
}
