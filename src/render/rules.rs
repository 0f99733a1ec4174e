//! The rule catalogue: as a list, as the explanation of one rule, as JSON and as Markdown.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::model::cluster::facts::Runtime;
use crate::model::cluster::severity::Severity;
use crate::model::objects::workload::Kind;
use crate::model::syntax::report_schema::of_report;
use crate::model::syntax::text::wrap;
use crate::model::windows::os::Verdict;
use crate::rules::{AsksForNothing, Builds, Check, FAMILIES, Family, Rule, catalogue};

/// The catalogue as a list: one line per rule, by family.
pub fn rules_text(is_listed: impl Fn(&Rule) -> bool) -> String {
    let mut out = String::new();
    for family in FAMILIES {
        let mut rules = family.rules.iter().filter(|rule| is_listed(rule)).peekable();
        if rules.peek().is_none() {
            continue;
        }
        let _ = writeln!(out, "{}", family.title);
        for rule in rules {
            let _ = writeln!(
                out,
                "  {}  {:7}  {:36}  {}",
                rule.id,
                rule.severity.as_str(),
                rule.name,
                rule.summary
            );
            if let Some(others) = other_severities(rule) {
                let _ = writeln!(out, "{:9}{others}", "");
            }
        }
        out.push('\n');
    }
    let listed = || catalogue().filter(|rule| is_listed(rule));
    let count = |severity| listed().filter(|rule| rule.severity == severity).count();
    let _ = writeln!(
        out,
        "{} rules: {} errors, {} warnings, {} advice. transom explain NAME shows more.",
        listed().count(),
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Advice)
    );
    out
}

/// The catalogue of rules.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Report of transom rules -o json")]
struct RulesReport {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// Every rule, by family.
    rules: Vec<RuleEntry>,
}

/// A rule.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Rule")]
struct RuleEntry {
    /// Its id, as in `TSM204`.
    id: &'static str,
    /// Its name, as in `run-as-user`.
    rule: &'static str,
    /// The group of rules that it belongs to.
    family: &'static str,
    /// The highest severity of its findings.
    severity: Severity,
    /// When the severity is lower; empty if it is always the same.
    severities: &'static str,
    /// Which component rejects the object or fails, and when, without Transom.
    class: &'static str,
    /// The releases of Kubernetes for which it reports findings.
    kubernetes: String,
    /// What is wrong, in one line.
    summary: &'static str,
    /// What is wrong, and why.
    description: &'static str,
    /// What to do.
    remedy: &'static str,
    /// Further sources.
    references: &'static [&'static str],
    /// The values of its field that request nothing which Windows lacks.
    asks_for_nothing: Vec<ValueEntry>,
    /// What the pod does not have if Windows ignores another value; empty if the rule reports no ignored field as an
    /// error.
    loses: &'static str,
    /// Whether findings of an ignored field follow `validation.ignoredFields`.
    tolerable: bool,
    /// Whether `validation.ignoredFields: Remove` removes the field.
    removable: bool,
    /// The version of Transom in which it appeared, as in `0.1`.
    since: String,
}

/// A value that requests nothing which Windows lacks. If the API server rejects the field, its finding is an error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ValueThatAsksForNothing")]
struct ValueEntry {
    /// The value as in a manifest.
    value: &'static str,
    /// The pods that lose nothing.
    pods: &'static str,
    /// The severity of its finding.
    severity: Severity,
    /// Why nothing is lost.
    because: &'static str,
    /// Where that is defined.
    source: &'static str,
}

impl ValueEntry {
    fn of(row: &AsksForNothing) -> Self {
        ValueEntry {
            value: row.value,
            pods: row.pods.as_str(),
            severity: row.severity(),
            because: row.because,
            source: row.source,
        }
    }
}

/// The schema of the catalogue.
const SCHEMA: &str = "transom.dev/rules/v1";

/// The JSON schema of the catalogue for machines.
pub fn rules_schema() -> Value {
    of_report::<RulesReport>()
}

/// The catalogue for machines.
pub fn rules_json(is_listed: impl Fn(&Rule) -> bool) -> impl Serialize {
    let rules = (FAMILIES.iter()).flat_map(|family| family.rules.iter().map(move |rule| (family, rule)));
    let rules = rules
        .filter(|(_, rule)| is_listed(rule))
        .map(|(family, rule)| RuleEntry::of(family.title, rule));
    RulesReport {
        schema: SCHEMA,
        rules: rules.collect(),
    }
}

impl RuleEntry {
    fn of(family: &'static str, rule: &'static Rule) -> Self {
        RuleEntry {
            id: rule.id,
            rule: rule.name,
            family,
            severity: rule.severity,
            severities: rule.severities,
            class: rule.class.as_str(),
            kubernetes: releases(&rule.kubernetes),
            summary: rule.summary,
            description: rule.docs,
            remedy: rule.remedy,
            references: rule.see,
            asks_for_nothing: rule.asks_for_nothing.iter().map(ValueEntry::of).collect(),
            loses: rule.loses,
            tolerable: rule.tolerable,
            removable: rule.removable,
            since: rule.since.to_string(),
        }
    }
}

/// The explanation of one rule.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom explain -o json")]
struct ExplainReport {
    /// The name and the version of this schema.
    #[schemars(extend("const" = EXPLAIN_SCHEMA))]
    schema: &'static str,
    /// The rule.
    #[serde(flatten)]
    rule: RuleEntry,
    /// Manifests in which it reports a finding.
    bad: &'static [&'static str],
    /// Manifests in which it reports none.
    good: &'static [&'static str],
}

/// The schema of the explanation of a rule.
const EXPLAIN_SCHEMA: &str = "transom.dev/explain/v1";

/// The JSON schema of the explanation for machines.
pub fn explain_schema() -> Value {
    of_report::<ExplainReport>()
}

/// One rule with all its details, for machines.
pub fn explain_json(rule: &'static Rule) -> impl Serialize {
    let of_rule = |family: &&Family| family.rules.iter().any(|one| one.id == rule.id);
    let family = FAMILIES.iter().find(of_rule);
    ExplainReport {
        schema: EXPLAIN_SCHEMA,
        rule: RuleEntry::of(family.map_or("", |family| family.title), rule),
        bad: rule.bad,
        good: rule.good,
    }
}

/// One rule with all its details.
pub fn explain(rule: &Rule) -> String {
    let mut out = format!(
        "{} {} ({})\n\n{}.\n\n{}\n\nWhat to do: {}.\n\n",
        rule.id,
        rule.name,
        severities(rule),
        upper(rule.summary),
        wrap(rule.docs, 100),
        rule.remedy
    );
    for (what, value) in properties(rule) {
        let _ = writeln!(out, "{what:12} {value}");
    }
    if !rule.asks_for_nothing.is_empty() {
        let _ = write!(out, "\n{VALUES}:\n");
    }
    for row in rule.asks_for_nothing {
        let (severity, pods) = (row.severity(), row.pods.as_str());
        let _ = writeln!(out, "  {} ({severity}, {pods})", row.value);
        let why = wrap(&format!("{}; {}", row.because, row.source), 96);
        let _ = write!(out, "{}", indent(&why));
    }
    let mut examples = |title: &str, list: &[&str]| {
        for example in list {
            let _ = write!(out, "\n{title}:\n{}", indent(example));
        }
    };
    examples("It reports", rule.bad);
    examples("It does not report", rule.good);
    if !rule.see.is_empty() {
        out.push_str("\nSee:\n");
    }
    for source in rule.see {
        let _ = writeln!(out, "  {source}");
    }
    out
}

/// `docs/reference/rules.md`.
pub fn rules_markdown() -> String {
    let mut out = String::from(
        "# Rules\n\n\
         Every rule of the catalogue. This page is generated: `transom generate rules-doc`.\n\n\
         `error`: will not run, or runs without something that it requests; denied unless the policy sets another action. \
         `warning`: runs, but not as written, or will probably end on the wrong node. `advice`: best practice, shown by \
         `transom check` and in audit annotations only. A policy sets the action of each rule by its name.\n\n\
         What is not checked, and why: [coverage.md](coverage.md#limits-that-transom-does-not-check).\n",
    );
    for family in FAMILIES {
        let _ = write!(
            out,
            "\n## {}\n\n| id | rule | severity | what is wrong |\n|---|---|---|---|\n",
            family.title
        );
        for rule in family.rules {
            let _ = writeln!(
                out,
                "| {} | [{}](#{}) | {} | {} |",
                rule.id,
                rule.name,
                rule.anchor(),
                rule.severity,
                rule.summary.replace('|', "\\|")
            );
        }
        family.rules.iter().for_each(|rule| section(rule, &mut out));
    }
    out
}

/// The section of a rule in the page.
fn section(rule: &Rule, out: &mut String) {
    let _ = write!(
        out,
        "\n<a id=\"{}\"></a>\n\n### {}\n\n{} · {}\n\n{}.\n\n{}\n\n**What to do**: {}.\n\n",
        rule.anchor(),
        rule.name,
        rule.id,
        severities(rule),
        upper(rule.summary),
        rule.docs,
        rule.remedy
    );
    for (what, value) in properties(rule) {
        let _ = writeln!(out, "- {what}: {value}");
    }
    if !rule.asks_for_nothing.is_empty() {
        let _ = write!(
            out,
            "\n{VALUES}:\n\n| value | pods | severity | why | source |\n|---|---|---|---|---|\n"
        );
    }
    for row in rule.asks_for_nothing {
        let (severity, pods) = (row.severity(), row.pods.as_str());
        let AsksForNothing { value, because, .. } = row;
        let _ = writeln!(
            out,
            "| `{value}` | {pods} | {severity} | {because} | {} |",
            linked(row.source)
        );
    }
    for example in rule.bad.iter().take(1) {
        let _ = write!(out, "\n```yaml\n{}\n```\n", example.trim());
    }
    let sources: Vec<String> = rule.see.iter().map(|source| linked(source)).collect();
    let _ = writeln!(out, "\nSee {}.", sources.join(", "));
}

/// Introduces the table of a rule.
const VALUES: &str =
    "These values request nothing, and are an error only if the API server rejects the field";

/// A source in Markdown.
fn linked(source: &str) -> String {
    if source.starts_with("http") {
        format!("<{source}>")
    } else {
        format!("`{source}`")
    }
}

/// The severities that findings of a rule can have.
fn severities(rule: &Rule) -> &'static str {
    match rule.severities {
        "" => rule.severity.as_str(),
        severities => severities,
    }
}

/// When findings of a rule have another severity than the one that heads it.
fn other_severities(rule: &Rule) -> Option<&'static str> {
    let others = rule.severities.strip_prefix(rule.severity.as_str());
    let others = others.map_or(rule.severities, |others| others.trim_start_matches("; "));
    (!others.is_empty()).then_some(others)
}

fn properties(rule: &Rule) -> Vec<(&'static str, String)> {
    let mut list = vec![
        ("class", rule.class.as_str().to_owned()),
        ("Kubernetes", releases(&rule.kubernetes)),
    ];
    if let Builds::Below(build) = rule.builds {
        list.push(("builds", format!("below 10.0.{build}")));
    }
    if let Some(runtime) = rule.runtime {
        let name = if runtime == Runtime::Docker {
            "Docker"
        } else {
            "containerd"
        };
        list.push(("runtime", name.to_owned()));
    }
    let names = |kinds: &[Kind]| {
        kinds
            .iter()
            .map(|kind| kind.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let applies_to = match rule.check {
        Check::Pod(_) => "pods and pod templates".to_owned(),
        Check::PodAnd(kinds, _) => format!("pods and pod templates, {}", names(kinds)),
        Check::Object(kinds, _) => names(kinds),
    };
    list.push(("applies to", applies_to));
    if rule.verdicts != [Verdict::Windows] {
        let names: Vec<&str> = rule.verdicts.iter().map(|verdict| verdict.as_str()).collect();
        list.push(("verdicts", names.join(", ")));
    }
    if !rule.loses.is_empty() {
        list.push(("loses", rule.loses.to_owned()));
    }
    if rule.tolerable {
        list.push((
            "ignored",
            "findings of an ignored field follow validation.ignoredFields".to_owned(),
        ));
    }
    if rule.removable {
        let mut removal = "removes the field, if the policy has validation.ignoredFields: Remove".to_owned();
        if rule.required_by_restricted {
            removal += ", and Pod Security cannot require it: the pod gets spec.os.name: windows, or its namespace enforces \
                        another profile than restricted";
        }
        list.push(("removal", removal));
    }
    list
}

fn releases(range: &RangeInclusive<u32>) -> String {
    match (*range.start(), *range.end()) {
        (0, Rule::STILL) => "every release".to_owned(),
        (start, Rule::STILL) => format!("1.{start} and later"),
        (0, end) => format!("1.{end} and earlier"),
        (start, end) => format!("1.{start} to 1.{end}"),
    }
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}

fn indent(text: &str) -> String {
    text.trim().lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "    {line}");
        out
    })
}
