//! The policies among the inputs, for repositories that contain both manifests and policies.

use std::collections::BTreeMap;

use super::{DocumentRole, Manifests, UnreadableInput, role};
use crate::api::{read_node_policy, read_policy};
use crate::engine::policy_set::StoredPolicy;

impl Manifests {
    /// Whether there is a WindowsNodePolicy among the inputs.
    pub fn has_node_policy(&self) -> bool {
        let mut documents = self.documents.iter();
        documents.any(|(_, document)| matches!(role(document), Ok(DocumentRole::NodePolicy)))
    }

    /// Reads every policy among the inputs; an invalid one is an error of the input. With `count`, two
    /// policies with the same name are also an error, because a cluster cannot have both.
    pub fn policies(&mut self, count: bool) -> Vec<StoredPolicy> {
        let mut found: Vec<StoredPolicy> = Vec::new();
        let mut places: BTreeMap<String, String> = BTreeMap::new();
        let mut errors = Vec::new();
        for (source, document) in &self.documents {
            let role = role(document);
            if !matches!(role, Ok(DocumentRole::Policy | DocumentRole::NodePolicy)) {
                continue;
            }
            let Some(source) = self.sources.get(*source).map(|source| &source.name) else {
                continue;
            };
            let unreadable = |line, message| UnreadableInput {
                source: source.clone(),
                line,
                message,
            };
            if matches!(role, Ok(DocumentRole::NodePolicy)) {
                let problems = read_node_policy(document).err().into_iter().flatten();
                errors.extend(problems.map(|it| unreadable(it.line, it.message)));
                continue;
            }
            let line = document.start().line;
            match read_policy(document) {
                Err(problems) => {
                    errors.extend(problems.into_iter().map(|it| unreadable(it.line, it.message)));
                }
                Ok(policy) => {
                    let name = policy.policy.name.clone();
                    match places.insert(name.clone(), format!("{source}:{line}")) {
                        Some(first) if count => errors.push(unreadable(
                            line,
                            format!(
                                "there is another WindowsPodPolicy \"{name}\" in {first}, and a cluster has only one of each \
                                 name; select one with --policy"
                            ),
                        )),
                        _ => found.push(policy),
                    }
                }
            }
        }
        self.errors.extend(errors);
        found
    }
}
