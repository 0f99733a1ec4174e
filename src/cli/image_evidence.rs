//! Which policies use what registries report, and the note of commands that evaluate images by their names under such
//! policies.

use super::{is_quiet, warn_line};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::policy::ImageEvidence;
use crate::model::syntax::text::{list, one_line};

/// The policies as `--registry` evaluates them: those that know images by their names use what registries report.
pub(super) fn with_registries(policies: &PolicySet) -> PolicySet {
    policies.with(|policy| {
        if policy.image_evidence == ImageEvidence::Names {
            policy.image_evidence = ImageEvidence::Registry;
        }
    })
}

/// Writes the note to standard error, once for all policies. `remedy` follows it, as in `add --registry`.
pub(super) fn note_names_only<'p>(policies: impl IntoIterator<Item = &'p PolicySet>, remedy: Option<&str>) {
    let names = policies.into_iter().flat_map(PolicySet::using_registries);
    note_of(
        names.map(|name| format!("policy {name}")).collect(),
        "evidence.imageEvidence: Registry",
        remedy,
    );
}

/// The same for what has this setting: the names of policies, or of configuration files.
pub(super) fn note_of(mut users: Vec<String>, setting: &str, remedy: Option<&str>) {
    users.sort();
    users.dedup();
    if !users.is_empty() && !is_quiet() {
        warn_line(format_args!("note: {}", one_line(&text(&users, setting, remedy))));
    }
}

fn text(users: &[String], setting: &str, remedy: Option<&str>) -> String {
    const MOST: usize = 4;
    let (use_, remedy) = (
        if users.len() == 1 { "uses" } else { "use" },
        remedy.map_or_else(String::new, |remedy| format!("; {remedy}")),
    );
    format!(
        "{} {use_} what registries report ({setting}), which this command did not look up: images are evaluated \
         by their names{remedy}",
        list(users, MOST)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_names_the_policies_and_the_cure() {
        let users = ["policy bank".to_owned(), "policy shop".to_owned()];
        assert_eq!(
            text(&users, "evidence.imageEvidence: Registry", Some("add --registry")),
            "policy bank, policy shop use what registries report (evidence.imageEvidence: Registry), which this command did not \
             look up: images are evaluated by their names; add --registry"
        );
        assert!(
            text(&users[1..], "registry: true", None)
                .starts_with("policy shop uses what registries report (registry: true)")
        );
    }
}
