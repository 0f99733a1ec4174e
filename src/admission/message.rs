//! Words: a finding as one line, a denial as a list, warnings within what the API server passes on.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

use crate::engine::Inspection;
use crate::model::json::Escaped;
use crate::model::path::Path;
use crate::model::policy::Action;
use crate::model::severity::Class;
use crate::model::subject::Subject;
use crate::model::text::{OneLine, cut, cut_middle, one_line};
use crate::model::workload::Kind;
use crate::rules::{Finding, POD_SECURITY};

/// The longest warning, in characters. The API server cuts at 256 when there are many.
const WARNING: usize = 250;
/// All warnings together, in characters. Beyond 4,096 the API server cuts.
const WARNINGS: usize = 4000;
/// The longest denial message, in bytes. A person reads no more, and a header or an event holds no more.
const MESSAGE: usize = 64 * 1024;
/// The most groups of findings that a person is shown.
const GROUPS: usize = 10;
/// The end of a line about more findings that is never cut, in characters.
const MORE: usize = 60;
/// How much of an object's name is shown, in bytes.
const LONGEST_NAME: usize = 100;
/// The most causes of a denial.
const CAUSES: usize = 200;

/// Which findings are of fields that another webhook added, and the words for it.
#[derive(Debug, Default)]
pub struct Added {
    /// Indexes into the findings, ascending.
    pub findings: Vec<usize>,
    /// What is said of each.
    pub words: String,
}

impl Added {
    /// The open findings of an inspection, each with what is added to its message.
    fn open<'s>(&'s self, inspection: &'s Inspection) -> impl Iterator<Item = Told<'s>> {
        (inspection.findings.iter().enumerate())
            .filter(|(_, finding)| finding.is_open())
            .map(|(index, finding)| Told {
                finding,
                added: match self.findings.binary_search(&index) {
                    Ok(_) => &self.words,
                    Err(_) => "",
                },
            })
    }
}

/// A finding in words: what, what to do, and what it is called.
struct Told<'s> {
    finding: &'s Finding,
    added: &'s str,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { finding, added } = self;
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

/// The findings that one line is about: one rule says the same of each.
struct Group<'s> {
    finding: &'s Finding,
    added: &'s str,
    /// How many findings.
    findings: usize,
    /// Whether one of them denies.
    denies: bool,
    places: Vec<Place>,
    /// How many findings are at places that are not named.
    elsewhere: usize,
}

/// The same field of several containers.
struct Place {
    /// What is before the container's name, or the whole path of what is in no container.
    before: String,
    names: Vec<String>,
    /// How many containers are not named.
    more: usize,
    after: String,
}

/// How many places, and containers of each, a line names.
#[derive(Clone, Copy)]
struct Most {
    places: usize,
    containers: usize,
}

/// What a denial names.
const DENIAL: Most = Most {
    places: 4,
    containers: 8,
};
/// What a warning has room for.
const WARNED: Most = Most {
    places: 1,
    containers: 3,
};

/// The findings by rule, those that deny first, else in their order.
fn groups<'s>(told: impl Iterator<Item = Told<'s>>, most: Most) -> Vec<Group<'s>> {
    let mut groups: Vec<Group<'s>> = Vec::new();
    let mut known: HashMap<(&str, &str, &str, bool), usize> = HashMap::new();
    for Told { finding, added } in told {
        let denies = finding.action == Action::Deny;
        let key = (
            finding.rule.id,
            &*finding.message,
            &*finding.remedy,
            added.is_empty(),
        );
        let index = *known.entry(key).or_insert_with(|| {
            groups.push(Group {
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
    groups.sort_by_key(|group| !group.denies);
    groups
}

impl Group<'_> {
    fn add_place(&mut self, path: &Path, most: Most) {
        let text = path.named();
        let (before, name, after) = by_container(&text);
        let is_known = |place: &Place| place.before == before && place.after == after;
        let known = self.places.iter().position(is_known);
        if let Some(place) = known.and_then(|at| self.places.get_mut(at)) {
            match name {
                Some(name) if place.names.len() < most.containers => place.names.push(name.to_owned()),
                _ => place.more += 1,
            }
        } else if self.places.len() < most.places {
            self.places.push(Place {
                before: before.to_owned(),
                names: name.map(str::to_owned).into_iter().collect(),
                more: 0,
                after: after.to_owned(),
            });
        } else {
            self.elsewhere += 1;
        }
    }

    /// What to do, without what is said once for all findings.
    fn remedy(&self) -> &str {
        let remedy = &*self.finding.remedy;
        remedy.strip_suffix(POD_SECURITY).unwrap_or(remedy)
    }

    fn mentions_pod_security(&self) -> bool {
        self.finding.remedy.ends_with(POD_SECURITY)
    }
}

/// A path by name around its container: `spec.containers[`, `web`, `].image`.
fn by_container(path: &str) -> (&str, Option<&str>, &str) {
    const LISTS: [&str; 3] = ["containers[", "initContainers[", "ephemeralContainers["];
    let find = |list: &str| path.find(list).map(|at| at + list.len());
    let parts = LISTS.into_iter().find_map(find).and_then(|start| {
        let (before, rest) = path.split_at_checked(start)?;
        let (name, after) = rest.split_at_checked(rest.find(']')?)?;
        Some((before, Some(name), after))
    });
    parts.unwrap_or((path, None, ""))
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What its author wrote is in it.
        let f = &mut OneLine(f);
        for (index, place) in self.places.iter().enumerate() {
            let Place {
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

/// An object as a person calls it: `Deployment shop/web`.
struct Named<'s>(&'s Subject<'s>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject {
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

/// The refusal of an object, with every open finding that is more than advice.
#[derive(Debug)]
pub struct Refusal<'j> {
    /// The object.
    pub subject: &'j Subject<'j>,
    /// What was found in it.
    pub inspection: &'j Inspection,
    /// What of it another webhook added.
    pub added: Added,
    /// Whether the object is stored already.
    pub is_update: bool,
    /// Whether it is judged as its author's because the requester is not known as the controller of its owner.
    pub distrusts_owner: bool,
}

impl Refusal<'_> {
    fn shown(&self) -> impl Iterator<Item = Told<'_>> {
        let open = self.added.open(self.inspection);
        open.filter(|told| told.finding.action >= Action::Warn)
    }

    /// Writes the message that the user sees.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn write_message(&self, out: &mut Escaped<'_>) -> fmt::Result {
        let kind = self.subject.kind;
        let groups = groups(self.shown(), DENIAL);
        let count: usize = groups.iter().map(|group| group.findings).sum();
        let problems = if count == 1 { "problem" } else { "problems" };
        write!(
            out,
            "{count} {problems} with {} for Windows:",
            Named(self.subject)
        )?;
        let mut said = 0;
        for group in groups.iter().take(GROUPS) {
            let mild = if group.denies { "" } else { "(warning) " };
            if !out.write_within(MESSAGE, format_args!("\n{mild}{group}")) {
                break;
            }
            said += group.findings;
        }
        if said < count {
            write!(out, "\nand {} more; run transom check", count - said)?;
        }
        if groups.iter().take(GROUPS).any(Group::mentions_pod_security) {
            write!(
                out,
                "\nwith spec.os.name: windows, Pod Security does not ask for these fields"
            )?;
        }
        if self.is_update && kind.has_immutable_template() {
            write!(
                out,
                "\nthe template of a stored {kind} cannot be changed: delete it and create it again"
            )?;
        }
        match self.subject.owner_kind() {
            Some(owner) if self.distrusts_owner => write!(
                out,
                "\nthat it belongs to a {owner} counts for nothing: the requester is not known as the controller of \
                 {owner}s; if it is that, add its user name to spec.controllerUsernames of the WindowsPodPolicy"
            ),
            _ => Ok(()),
        }
    }

    /// Writes the findings as causes, for machines: the items of a JSON array.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn write_causes(&self, out: &mut String) -> fmt::Result {
        for (index, told) in self.shown().take(CAUSES).enumerate() {
            let reason = match told.finding.class {
                Class::Api | Class::Ignored | Class::Admit => "FieldValueForbidden",
                _ => "FieldValueInvalid",
            };
            let comma = if index > 0 { "," } else { "" };
            write!(out, "{comma}{{\"reason\":\"{reason}\",\"message\":\"")?;
            write!(Escaped::new(out), "{told}")?;
            out.push_str("\",\"field\":\"");
            write!(OneLine(Escaped::new(out)), "{}", told.finding.path)?;
            out.push_str("\"}");
        }
        Ok(())
    }
}

/// The warnings of an object that passes: errors first, within the API server's limits, and how many did not fit. Each
/// names the object: kubectl shows the warnings of a file without saying which object they are about.
pub fn warnings(subject: &Subject<'_>, inspection: &Inspection, added: &Added) -> Vec<String> {
    let warned = added
        .open(inspection)
        .filter(|told| told.finding.action == Action::Warn);
    let groups = groups(warned, WARNED);
    let named = Named(subject);
    let mut says_pod_security = false;
    let lines = groups.iter().map(|group| {
        let once = group.mentions_pod_security() && !std::mem::replace(&mut says_pod_security, true);
        let line = format!("transom: {named}: {group}");
        match line.split_once(" [TSM").filter(|_| once) {
            Some((text, rule)) => (format!("{text}{POD_SECURITY} [TSM{rule}"), group.findings),
            None => (line, group.findings),
        }
    });
    fit(lines, &named)
}

/// What repair took out, as a warning.
pub fn repaired(subject: &Subject<'_>, inspection: &Inspection) -> Option<String> {
    if inspection.repaired.is_empty() {
        return None;
    }
    let paths: Vec<String> = inspection.repaired.iter().map(Path::named).collect();
    let named = Named(subject);
    let text = if subject.kind == Kind::Pod {
        format!(
            "transom: took out of {named} what Windows ignores: {}",
            paths.join(", ")
        )
    } else {
        format!(
            "transom: the pods of {named} will lose what Windows ignores: {}",
            paths.join(", ")
        )
    };
    let mut fitted = fit(std::iter::once((text, 1)), &named);
    fitted.pop()
}

/// Lines with how many findings each is about, within the limits.
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

/// Cuts a warning to its limit, out of the middle where it ends with the rule's name: that is what a user looks up.
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
