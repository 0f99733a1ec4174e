//! `transom fix`: changes manifests so that Windows runs them, as a diff, in place, or as a filter.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::civil::Date;
use serde::Serialize;

use super::cluster::ClusterArgs;
use super::is_quiet;
use super::options::{NamespaceArgs, OutputArgs, PathArgs, PolicyArgs, SelectorArgs, date};
use crate::check::files::{Excludes, policies, read_except};
use crate::check::{FixScope, Manifests, Scope, SourceRole, UnreadableInput};
use crate::engine::policy_set::PolicySet;
use crate::fix::kustomize::{ObjectPatch, component};
use crate::fix::{FixedInputs, FixedObject, diff, fix, write};
use crate::model::policy::Policy;
use crate::process::today;
use crate::render::write_json;
use crate::rules::{find, nearest};

/// Fix manifests: remove fields that Windows ignores, migrate deprecated labels and spellings
///
/// Reads files, folders and standard input, as check does. Prints a unified diff, or with --write changes the files. Only
/// the lines of an edit change: comments, anchors, order, quotes, indentation and line ends stay. An edited text is read
/// again and must have exactly the planned values, else the object stays as it is. What is not fixed is listed on
/// standard error with the reason.
///
/// With -, the fixed text of standard input goes to standard output, and other paths only describe the cluster and the
/// policies. So it works as Helm's post-renderer and as a KRM function of Kustomize (a ResourceList in and out).
///
/// Exit status: 0 nothing to change, or everything was written; 1 the diff is not empty, or an object could not be
/// edited; 2 bad usage, or input that cannot be read or written. With - and without --diff: 0 or 2.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom fix manifests/
  transom fix --write --placement manifests/web.yaml
  helm template web ./chart | transom fix - | kubectl apply -f -
  transom fix -o kustomize=windows/kustomization.yaml manifests/")]
pub struct FixArgs {
    #[command(flatten)]
    paths: PathArgs,
    #[command(flatten)]
    output: OutputArgs<FixFormat>,
    /// Print what would change as a unified diff (the default for files)
    #[arg(long, conflicts_with = "write")]
    diff: bool,
    /// Change the files
    #[arg(long)]
    write: bool,
    /// Also add os, nodeSelector and tolerations, and the build if it is certain
    #[arg(long)]
    placement: bool,
    /// Fix only findings of these rules, by id or name
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule)]
    rules: Vec<&'static str>,
    /// The pods to fix, by operating system; pods of unknown operating system are treated as Linux pods
    #[arg(
        long = "for",
        value_name = "OS",
        value_enum,
        value_delimiter = ',',
        default_value = "windows"
    )]
    of: Vec<FixOs>,
    /// Exclude files and folders by path, by the part of it below the folder, or by name; * matches anything.
    /// Repeatable
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// The day to check for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FixFormat {
    /// The diff, or the fixed text of standard input
    Text,
    /// Schema transom.dev/fix/v1: each object with its JSON patch
    Json,
    /// A Kustomize component with the patches
    Kustomize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FixOs {
    Windows,
    Linux,
}

/// The id of a rule, by its id or name.
fn rule(text: &str) -> Result<&'static str, String> {
    find(text).map(|rule| rule.id).ok_or_else(|| match nearest(text) {
        Some(near) => format!("there is no such rule; did you mean {near}?"),
        None => "there is no such rule; transom rules lists them".to_owned(),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FixReport<'r> {
    schema: &'static str,
    summary: FixSummary,
    objects: &'r [FixedObject],
    errors: Vec<FixReportError<'r>>,
}

#[derive(Serialize, Default)]
struct FixSummary {
    /// Objects that were changed, or would be.
    changed: usize,
    /// Objects that could not be edited.
    refused: usize,
    fixed: usize,
    left: usize,
}

#[derive(Serialize)]
struct FixReportError<'r> {
    source: &'r str,
    line: usize,
    message: &'r str,
}

impl FixSummary {
    fn of(objects: &[FixedObject]) -> Self {
        let mut summary = FixSummary::default();
        for object in objects {
            summary.changed += usize::from(!object.patch.is_empty());
            summary.refused += usize::from(object.refused.is_some());
            summary.fixed += object.fixed.len();
            summary.left += object.left.len();
        }
        summary
    }
}

pub fn run(args: &FixArgs) -> anyhow::Result<ExitCode> {
    let FixArgs {
        paths,
        output,
        diff: shows_diff,
        write,
        placement,
        rules,
        of,
        exclude,
        policy,
        namespaces,
        selector,
        today: day,
        cluster,
    } = args;
    let targets = output.targets()?;
    let paths = paths.required()?;
    let has_stdin = paths.iter().any(|path| path.as_os_str() == "-");
    if has_stdin && *write {
        bail!(
            "--write cannot change standard input (-): leave it out to print the fixed text, or name the file"
        );
    }
    let of_file = policies(policy.policy.as_deref(), Policy::standalone())?;
    let mut facts = cluster.facts(day.unwrap_or_else(today));
    of_file.declare(&mut facts);
    let mut policies = of_file.set;
    let mut manifests = Manifests::new(true).within(Scope {
        namespace: namespaces.namespace.first().cloned(),
        excluded: Vec::new(),
    });
    read(&paths, exclude, &mut manifests);
    let among_the_inputs = manifests.policies(policy.policy.is_none());
    if policy.policy.is_none() {
        policies = PolicySet::new(among_the_inputs, Policy::standalone());
    }
    manifests.add_policies(&policies);
    let scope = FixScope {
        placement: *placement,
        windows: of.contains(&FixOs::Windows),
        linux: of.contains(&FixOs::Linux),
        rules: (!rules.is_empty()).then(|| rules.clone()),
    };
    let fixed = fix(&manifests, &facts, &policies, &scope, |checked| {
        (!has_stdin || checked.source == "-")
            && namespaces.selects(&checked.namespace)
            && (selector.is_everything() || selector.selects(&checked.labels()))
    });
    let mut errors = fixed.errors.clone();
    if *write {
        errors.extend(write_files(&manifests, &fixed.texts));
    }
    let is_stream = has_stdin && !*shows_diff;
    // An object that cannot be evaluated stays as it is; a text that cannot be parsed is not printed.
    let is_broken = is_stream && !manifests.errors().is_empty();
    for target in &targets {
        target.write(|out| match target.format {
            FixFormat::Text if is_broken => Ok(()),
            FixFormat::Text if is_stream => out.write_all(stdin_text(&manifests, &fixed)),
            FixFormat::Text if *write => {
                let mut written = fixed.texts.keys();
                written.try_for_each(|name| writeln!(out, "fixed {name}"))
            }
            FixFormat::Text => print_diffs(&manifests, &fixed, out),
            FixFormat::Json => print_json(&fixed, &errors, out),
            FixFormat::Kustomize => write!(out, "{}", component(&patches(&fixed.objects))),
        })?;
    }
    report(&fixed.objects, &errors)?;
    let is_refused = fixed.objects.iter().any(|object| object.refused.is_some());
    let has_diff = !*write && !fixed.texts.is_empty();
    let fails = if is_stream { is_broken } else { !errors.is_empty() };
    Ok(if fails {
        ExitCode::from(2)
    } else if !is_stream && (is_refused || has_diff) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

fn read(paths: &[&PathBuf], exclude: &[String], manifests: &mut Manifests) {
    let excludes = Excludes {
        patterns: exclude,
        base: None,
    };
    for path in paths {
        if read_except(path, &excludes, SourceRole::Named, manifests) == 0 && path.is_dir() {
            manifests.add_error(UnreadableInput {
                source: path.display().to_string(),
                line: 0,
                message: "there is no .yaml, .yml or .json file in this folder".to_owned(),
            });
        }
    }
}

/// Writes the changed files; returns those that could not be written.
fn write_files(manifests: &Manifests, texts: &BTreeMap<String, Vec<u8>>) -> Vec<UnreadableInput> {
    let read = manifests.texts();
    let mut errors = Vec::new();
    for (name, new) in texts {
        let old = read.get(name.as_str()).copied().unwrap_or_default();
        if let Err(error) = write::replace(Path::new(name), old, new) {
            errors.push(UnreadableInput {
                source: name.clone(),
                line: 0,
                message: error.to_string(),
            });
        }
    }
    errors
}

/// The fixed text of standard input.
fn stdin_text<'f>(manifests: &'f Manifests, fixed: &'f FixedInputs) -> &'f [u8] {
    let read = || manifests.texts().get("-").copied();
    fixed
        .texts
        .get("-")
        .map(Vec::as_slice)
        .or_else(read)
        .unwrap_or_default()
}

fn print_diffs(manifests: &Manifests, fixed: &FixedInputs, out: &mut dyn Write) -> io::Result<()> {
    let read = manifests.texts();
    for (name, new) in &fixed.texts {
        let old = read.get(name.as_str()).copied().unwrap_or_default();
        let name = if name == "-" { "stdin" } else { name };
        out.write_all(&diff::unified(name, old, new))?;
    }
    Ok(())
}

fn print_json(fixed: &FixedInputs, errors: &[UnreadableInput], out: &mut dyn Write) -> io::Result<()> {
    let report = FixReport {
        schema: "transom.dev/fix/v1",
        summary: FixSummary::of(&fixed.objects),
        objects: &fixed.objects,
        errors: (errors.iter())
            .map(|error| FixReportError {
                source: &error.source,
                line: error.line,
                message: &error.message,
            })
            .collect(),
    };
    write_json(&report, out)
}

fn patches(objects: &[FixedObject]) -> Vec<ObjectPatch> {
    let changed = objects.iter().filter(|object| !object.patch.is_empty());
    changed
        .map(|object| ObjectPatch {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: if object.names_namespace {
                object.namespace.clone()
            } else {
                String::new()
            },
            name: object.name.clone(),
            patch: object.patch.clone(),
        })
        .collect()
}

/// Writes the errors, what was fixed, and what was not, to standard error.
fn report(objects: &[FixedObject], errors: &[UnreadableInput]) -> io::Result<()> {
    let mut out = io::BufWriter::new(anstream::stderr().lock());
    for error in errors {
        match error.line {
            0 => writeln!(out, "error: {}: {}", error.source, error.message)?,
            line => writeln!(out, "error: {}:{line}: {}", error.source, error.message)?,
        }
    }
    if is_quiet() {
        return out.flush();
    }
    for object in objects {
        let FixedObject { source, line, .. } = object;
        writeln!(out, "{} ({source}:{line})", object.title())?;
        if let Some(reason) = &object.refused {
            writeln!(out, "  not changed: {reason}")?;
        }
        for fixed in &object.fixed {
            writeln!(out, "  fixed {} {}: {}", fixed.id, fixed.rule, fixed.path)?;
        }
        for left in object.left.iter().filter(|_| object.refused.is_none()) {
            let at = left.line;
            writeln!(
                out,
                "  left  {} {} (line {at}): {}: {}",
                left.id, left.rule, left.path, left.reason
            )?;
        }
    }
    let FixSummary {
        changed,
        refused,
        fixed,
        left,
    } = FixSummary::of(objects);
    let refused = match refused {
        0 => String::new(),
        refused => format!(", {refused} not changed"),
    };
    let objects = if changed == 1 { "object" } else { "objects" };
    let findings = if fixed == 1 { "finding" } else { "findings" };
    writeln!(
        out,
        "{changed} {objects} changed{refused}; {fixed} {findings} fixed, {left} left"
    )?;
    out.flush()
}
