//! Messages: a finding as one line, a denial as a list, and warnings within the API server's limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::engine::Evaluation;
use crate::model::cluster::policy::{Action, PlacementField};
use crate::model::cluster::severity::Class;
use crate::model::objects::object::Object;
use crate::model::objects::requester::qualified;
use crate::model::objects::workload::Kind;
use crate::model::syntax::json::Escaped;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::{OneLine, cut, cut_middle, one_line};
use crate::rules::documentation::DocumentationUrl;
use crate::rules::{Finding, POD_SECURITY};

/// The longest warning, in characters. The API server truncates at 256 if there are many.
const WARNING: usize = 250;
/// All warnings together, in characters. The API server truncates beyond 4,096.
const WARNINGS: usize = 4000;
/// The longest denial message, in bytes, so that it fits into headers and events.
const MESSAGE: usize = 64 * 1024;
/// The maximum number of groups of findings in a message.
const GROUPS: usize = 10;
/// The maximum number of links to the documentation of rules.
const LINKS: usize = 3;
/// The reserved length for the end of a line about more findings, in characters.
const MORE: usize = 60;
/// The maximum length of an object's name in a message, in bytes.
const LONGEST_NAME: usize = 100;
/// The maximum number of causes of a denial.
const CAUSES: usize = 200;

/// The findings about fields that another webhook added, and the text for them.
#[derive(Debug, Default)]
pub struct AddedFields {
    /// Indexes into the findings, ascending.
    pub findings: Vec<usize>,
    /// The text that is added to each.
    pub words: String,
}

impl AddedFields {
    /// The findings of an evaluation that are shown, each with the text that is added to its message.
    fn shown<'s>(
        &'s self,
        evaluation: &'s Evaluation,
        is_shown: fn(&Finding) -> bool,
    ) -> impl Iterator<Item = FindingText<'s>> {
        (evaluation.findings.iter().enumerate())
            .filter(move |(_, finding)| is_shown(finding))
            .map(|(index, finding)| FindingText {
                finding,
                added: match self.findings.binary_search(&index) {
                    Ok(_) => &self.words,
                    Err(_) => "",
                },
            })
    }
}

/// The text of a finding: message, remedy and rule.
struct FindingText<'s> {
    finding: &'s Finding,
    added: &'s str,
}

impl fmt::Display for FindingText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FindingText { finding, added } = self;
        let Finding {
            message,
            remedy,
            rule,
            ..
        } = finding;
        // What its author wrote is in it.
        write!(
            OneLine(f),
            "{message}{added}; {remedy} [{} {}]",
            rule.id,
            rule.name
        )
    }
}

/// The findings of one line: the same rule with the same message.
struct FindingGroup<'s> {
    finding: &'s Finding,
    added: &'s str,
    findings: usize,
    /// Whether one of them denies.
    denies: bool,
    places: Vec<ContainerPlaces>,
    /// How many findings are at paths that the line does not list.
    elsewhere: usize,
}

/// The same field of several containers.
struct ContainerPlaces {
    /// The path before the container's name, or the whole path if it is not in a container.
    before: String,
    names: Vec<String>,
    /// How many containers the line does not list.
    more: usize,
    after: String,
}

/// How many paths, and containers of each, a line lists.
#[derive(Clone, Copy)]
struct PlaceLimits {
    places: usize,
    containers: usize,
}

/// The limits of a denial.
const DENIAL: PlaceLimits = PlaceLimits {
    places: 4,
    containers: 8,
};
/// The limits of a warning.
const WARNED: PlaceLimits = PlaceLimits {
    places: 1,
    containers: 3,
};

/// The findings by rule: those that must be read before the rest, then those that deny, otherwise in their order.
fn groups<'s>(findings: impl Iterator<Item = FindingText<'s>>, most: PlaceLimits) -> Vec<FindingGroup<'s>> {
    let mut groups: Vec<FindingGroup<'s>> = Vec::new();
    let mut known: BTreeMap<(&str, &str, &str, bool), usize> = BTreeMap::new();
    for FindingText { finding, added } in findings {
        let denies = finding.action == Action::Deny;
        let key = (
            finding.rule.id,
            &*finding.message,
            &*finding.remedy,
            added.is_empty(),
        );
        let index = *known.entry(key).or_insert_with(|| {
            groups.push(FindingGroup {
                finding,
                added,
                findings: 0,
                denies: false,
                places: Vec::new(),
                elsewhere: 0,
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(index) {
            group.findings += 1;
            group.denies |= denies;
            group.add_place(&finding.path, most);
        }
    }
    groups.sort_by_key(|group| (!group.finding.is_first(), !group.denies));
    groups
}

impl FindingGroup<'_> {
    fn add_place(&mut self, path: &Path, most: PlaceLimits) {
        let text = path.named();
        let (before, name, after) = by_container(&text);
        let is_known = |place: &ContainerPlaces| place.before == before && place.after == after;
        let known = self.places.iter().position(is_known);
        if let Some(place) = known.and_then(|at| self.places.get_mut(at)) {
            match name {
                Some(name) if place.names.len() < most.containers => place.names.push(name.to_owned()),
                _ => place.more += 1,
            }
        } else if self.places.len() < most.places {
            self.places.push(ContainerPlaces {
                before: before.to_owned(),
                names: name.map(str::to_owned).into_iter().collect(),
                more: 0,
                after: after.to_owned(),
            });
        } else {
            self.elsewhere += 1;
        }
    }

    /// The remedy, without the sentence that the message has once for all findings.
    fn remedy(&self) -> &str {
        let remedy = &*self.finding.remedy;
        remedy.strip_suffix(POD_SECURITY).unwrap_or(remedy)
    }

    fn mentions_pod_security(&self) -> bool {
        self.finding.remedy.ends_with(POD_SECURITY)
    }
}

/// Splits a path around the name of its container: `spec.containers[`, `web`, `].image`.
fn by_container(path: &str) -> (&str, Option<&str>, &str) {
    /// The end of `containers`, `initContainers` and `ephemeralContainers`.
    const LIST: &str = "ontainers[";
    let parts = path.find(LIST).map(|at| at + LIST.len()).and_then(|start| {
        let (before, rest) = path.split_at_checked(start)?;
        let (name, after) = rest.split_at_checked(rest.find(']')?)?;
        Some((before, Some(name), after))
    });
    parts.unwrap_or((path, None, ""))
}

impl fmt::Display for FindingGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What its author wrote is in it.
        let f = &mut OneLine(f);
        for (index, place) in self.places.iter().enumerate() {
            let ContainerPlaces {
                before,
                names,
                more,
                after,
            } = place;
            write!(
                f,
                "{}{before}{}",
                if index > 0 { ", " } else { "" },
                names.join(", ")
            )?;
            if *more > 0 && !names.is_empty() {
                write!(f, " and {more} more")?;
            }
            f.write_str(after)?;
        }
        if self.elsewhere > 0 {
            write!(f, " and {} more", self.elsewhere)?;
        }
        let Finding { message, rule, .. } = self.finding;
        let (added, remedy) = (self.added, self.remedy());
        write!(f, ": {message}{added}; {remedy} [{} {}]", rule.id, rule.name)
    }
}

/// The name of an object in messages: `Deployment shop/web`.
struct ObjectName<'s>(&'s Object<'s>);

impl fmt::Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Object {
            kind,
            meta,
            namespace,
            ..
        } = self.0;
        let name = match meta.display_name() {
            "" => "(no name)",
            name => name,
        };
        let name = cut(name, LONGEST_NAME);
        let f = &mut OneLine(f);
        if namespace.is_empty() {
            write!(f, "{kind} {name}")
        } else {
            write!(f, "{kind} {namespace}/{name}")
        }
    }
}

/// The denial of an object, with every open finding above advice.
#[derive(Debug)]
pub struct DenialMessage<'j> {
    pub subject: &'j Object<'j>,
    pub evaluation: &'j Evaluation,
    /// The findings about fields that another webhook added.
    pub added: AddedFields,
    /// Whether the object is stored already.
    pub is_update: bool,
    /// Where the rules are documented.
    pub documentation: Option<&'j DocumentationUrl>,
    /// Whether its owner is ignored because the requester is not known as the controller of that owner.
    pub distrusts_owner: bool,
}

impl DenialMessage<'_> {
    fn shown(&self) -> impl Iterator<Item = FindingText<'_>> {
        // Whoever changes a template anyway need not rely on placement for what the rest depends on.
        let is_shown = |finding: &Finding| finding.is_open() || finding.is_first();
        let shown = self.added.shown(self.evaluation, is_shown);
        shown.filter(|text| text.finding.action >= Action::Warn)
    }

    /// Writes the message that the user sees.
    ///
    /// # Errors
    /// None: writing to a string cannot fail.
    pub fn write_message(&self, out: &mut Escaped<'_>) -> fmt::Result {
        let kind = self.subject.kind;
        let groups = groups(self.shown(), DENIAL);
        let count: usize = groups.iter().map(|group| group.findings).sum();
        let problems = if count == 1 { "problem" } else { "problems" };
        write!(
            out,
            "{count} {problems} with {} for Windows:",
            ObjectName(self.subject)
        )?;
        let mut reported = 0;
        for group in groups.iter().take(GROUPS) {
            let must_be_resolved = group.denies || group.finding.is_first();
            let mild = if must_be_resolved { "" } else { "(warning) " };
            if !out.write_within(MESSAGE, format_args!("\n{mild}{group}")) {
                break;
            }
            reported += group.findings;
        }
        if reported < count {
            write!(out, "\nand {} more; run transom check", count - reported)?;
        }
        let names_os = groups
            .iter()
            .any(|group| group.finding.rule.placed_by == Some(PlacementField::OsName));
        if !names_os
            && groups
                .iter()
                .take(GROUPS)
                .any(FindingGroup::mentions_pod_security)
        {
            write!(
                out,
                "\nIf Pod Security requires seccompProfile or capabilities here, set spec.os.name: windows"
            )?;
        }
        if self.is_update && kind.has_immutable_template() {
            write!(
                out,
                "\nthe template of a stored {kind} cannot be changed: delete it and create it again"
            )?;
        }
        if let Some(documentation) = self.documentation {
            write_links(&groups, documentation, out)?;
        }
        match self.subject.creator_kind() {
            Some(owner) if self.distrusts_owner => write!(
                out,
                "\nits {owner} owner is ignored: the requester is not known as the controller of \
                 {owner}s; if it is that controller, add its user name to cluster.controllers of the chart's values, with the \
                 kind {}",
                qualified(owner)
            ),
            _ => Ok(()),
        }
    }

    /// Writes the findings as causes, for machines: the items of a JSON array.
    ///
    /// # Errors
    /// None: writing to a string cannot fail.
    pub fn write_causes(&self, out: &mut String) -> fmt::Result {
        for (index, text) in self.shown().take(CAUSES).enumerate() {
            let reason = match text.finding.class {
                Class::Api | Class::Ignored | Class::Admit => "FieldValueForbidden",
                _ => "FieldValueInvalid",
            };
            let comma = if index > 0 { "," } else { "" };
            write!(out, "{comma}{{\"reason\":\"{reason}\",\"message\":\"")?;
            write!(Escaped::new(out), "{text}")?;
            out.push_str("\",\"field\":\"");
            write!(OneLine(Escaped::new(out)), "{}", text.finding.path)?;
            out.push_str("\"}");
        }
        Ok(())
    }
}

/// Writes where the first rules of a denial are documented.
fn write_links(
    groups: &[FindingGroup<'_>],
    documentation: &DocumentationUrl,
    out: &mut Escaped<'_>,
) -> fmt::Result {
    let mut linked: Vec<&str> = Vec::new();
    for group in groups {
        let rule = group.finding.rule;
        if linked.len() == LINKS || linked.contains(&rule.id) {
            continue;
        }
        let before = if linked.is_empty() { "\nSee" } else { "" };
        write!(out, "{before} {}", documentation.of_rule(rule))?;
        linked.push(rule.id);
    }
    Ok(())
}

/// The warnings for an admitted object: errors first, within the API server's limits, and how many did not fit. Each
/// names the object: kubectl prints the warnings of a file without the objects that they are about.
pub fn warnings(subject: &Object<'_>, evaluation: &Evaluation, added: &AddedFields) -> Vec<String> {
    let warned = added
        .shown(evaluation, Finding::is_open)
        .filter(|text| text.finding.action == Action::Warn);
    let groups = groups(warned, WARNED);
    let named = ObjectName(subject);
    let mut names_pod_security = false;
    let lines = groups.iter().map(|group| {
        let once = group.mentions_pod_security() && !std::mem::replace(&mut names_pod_security, true);
        let line = format!("transom: {named}: {group}");
        match line.split_once(" [TSM").filter(|_| once) {
            Some((text, rule)) => (format!("{text}{POD_SECURITY} [TSM{rule}"), group.findings),
            None => (line, group.findings),
        }
    });
    fit(lines, &named)
}

/// The warning that lists the removed fields.
pub fn removed(subject: &Object<'_>, evaluation: &Evaluation) -> Option<String> {
    if evaluation.removed.is_empty() {
        return None;
    }
    let paths: Vec<String> = evaluation.removed.iter().map(Path::named).collect();
    let named = ObjectName(subject);
    let text = if subject.kind == Kind::Pod {
        format!(
            "transom: removed from {named} fields that Windows ignores: {}",
            paths.join(", ")
        )
    } else {
        format!(
            "transom: the pods of {named} will lose fields that Windows ignores: {}",
            paths.join(", ")
        )
    };
    let mut fitted = fit(std::iter::once((text, 1)), &named);
    fitted.pop()
}

/// Limits the lines; each comes with its number of findings.
fn fit(lines: impl Iterator<Item = (String, usize)>, named: &dyn fmt::Display) -> Vec<String> {
    let (mut fitted, mut used, mut more) = (Vec::new(), 0, 0_usize);
    for (line, findings) in lines {
        let line = shorten(&one_line(&line)).into_owned();
        let length = line.chars().count();
        if used + length > WARNINGS || fitted.len() == GROUPS {
            more += findings;
            continue;
        }
        used += length;
        fitted.push(line);
    }
    if more > 0 {
        let line = format!("transom: {named}: and {more} more; run transom check");
        fitted.push(cut_middle(&line, WARNING, MORE).into_owned());
    }
    fitted
}

/// Shortens a warning to its limit. If it ends with the rule's name, the middle is cut, because users look up that
/// name.
fn shorten(line: &str) -> Cow<'_, str> {
    let rule = line
        .rfind(" [TSM")
        .and_then(|at| line.get(at..))
        .unwrap_or_default();
    cut_middle(line, WARNING, rule.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(lines: impl Iterator<Item = String>) -> Vec<String> {
        fit(lines.map(|line| (line, 1)), &"Pod a/b")
    }

    #[test]
    fn warnings_stay_within_what_the_api_server_passes_on() {
        let fitted = fitted((0..100).map(|i| format!("{i}\t{}", "x".repeat(300))));
        assert!(
            fitted
                .iter()
                .all(|line| line.chars().count() <= WARNING && !line.contains('\t'))
        );
        assert!(fitted.iter().map(|line| line.chars().count()).sum::<usize>() <= WARNINGS + 60);
        let last = fitted.last().map(String::as_str);
        assert_eq!(last, Some("transom: Pod a/b: and 90 more; run transom check"));
    }

    #[test]
    fn a_warning_that_is_cut_keeps_the_name_of_its_rule() {
        let fitted = fitted(std::iter::once(format!(
            "{} [TSM204 run-as-user]",
            "x".repeat(300)
        )));
        assert!(fitted[0].ends_with("x… [TSM204 run-as-user]"), "{fitted:?}");
        assert_eq!(fitted[0].chars().count(), WARNING);
    }

    #[test]
    fn a_path_is_parted_around_its_container() {
        for (path, parts) in [
            (
                "spec.containers[web].image",
                ("spec.containers[", Some("web"), "].image"),
            ),
            ("spec.initContainers[a]", ("spec.initContainers[", Some("a"), "]")),
            ("spec.nodeSelector[x]", ("spec.nodeSelector[x]", None, "")),
        ] {
            assert_eq!(by_container(path), parts);
        }
    }
}
