//! The policies among the inputs. `plan`, whose input is a cluster, and tests of policies apply them. `check` and `fix` only
//! validate them, and name them: what is checked must not decide how it is checked.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CheckNote, Manifests, NoteLevel, UnreadableInput};
use crate::api::{NODE_POLICY, NODE_POOL, read_node_policy, read_node_pool, read_policy};
use crate::engine::policy_set::StoredPolicy;
use crate::model::syntax::text::{shell_word, shown};

/// A policy among the inputs, and where it is.
struct FoundPolicy {
    source: String,
    line: usize,
    policy: StoredPolicy,
}

/// Whether there is a WindowsNodePolicy or WindowsNodePool among the inputs.
pub fn has_node_resource(manifests: &Manifests) -> bool {
    let mut documents = manifests.policy_documents(0);
    documents.any(|document| matches!(document.kind, NODE_POLICY | NODE_POOL))
}

/// Reads every policy after the first `known` documents; an invalid one is an error of the input. With `apply`, two
/// policies with the same name are also an error, because a cluster cannot have both.
pub fn read_policies_after(manifests: &mut Manifests, known: usize, apply: bool) -> Vec<StoredPolicy> {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    let mut policies = Vec::new();
    for FoundPolicy { source, line, policy } in find_policies(manifests, known) {
        let name = policy.policy.name.clone();
        match places.insert(name.clone(), format!("{source}:{line}")) {
            Some(first) if apply => {
                let message = format!(
                    "there is another WindowsPodPolicy \"{name}\" in {first}, and a cluster has only one of each \
                     name; select one with --policy"
                );
                manifests.add_error(UnreadableInput::new(source, line, message));
            }
            _ => policies.push(policy),
        }
    }
    policies
}

/// Validates every policy among the inputs of a command, as in `transom check`, and notes those that do not apply: all
/// except those in the file `applied`.
pub fn note_policies(manifests: &mut Manifests, command: &str, applied: Option<&Path>) {
    let mut names: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for FoundPolicy { source, line, policy } in find_policies(manifests, 0) {
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
        let message =
            format!("the {noun} {list} {verb} not apply{why}; to apply: {command} --policy {file} PATHS");
        let note = CheckNote::new(source, (line, 0), NoteLevel::Note, message);
        manifests.add_note(note);
    }
}

/// The valid policies after the first `known` documents; records an error for each other one.
fn find_policies(manifests: &mut Manifests, known: usize) -> Vec<FoundPolicy> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for document in manifests.policy_documents(known) {
        let content = document.content;
        let problems = match document.kind {
            NODE_POLICY => read_node_policy(content).err(),
            NODE_POOL => read_node_pool(content).err(),
            _ => match read_policy(content) {
                Ok(policy) => {
                    found.push(FoundPolicy {
                        source: document.source.to_owned(),
                        line: content.start().line,
                        policy,
                    });
                    None
                }
                Err(problems) => Some(problems),
            },
        };
        let problems = problems.into_iter().flatten();
        errors.extend(
            problems.map(|problem| UnreadableInput::new(document.source, problem.line, problem.message)),
        );
    }
    for error in errors {
        manifests.add_error(error);
    }
    found
}
