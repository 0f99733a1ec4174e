//! `transom fix`: changes manifests so that Windows runs them, as a diff, in place, or as a filter.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::image_evidence::{note_names_only, note_of};
use super::manifest_inputs::{ManifestArgs, ManifestGroup, ReadOptions};
use super::options::{OutputArgs, RuleArgs};
use super::{exit_status, is_quiet};
use crate::check::{CheckNote, FixScope, SourceRole, UnreadableInput};
use crate::fix::{FixedInputs, FixedObject, diff, fix, write};
use crate::model::syntax::report_schema::of_report;
use crate::model::syntax::text::{count, one_line};
use crate::process::files::{MANIFEST_BYTES, read_all};
use crate::render::{unknown_os_remedy, write_json};

/// Fix manifests: remove fields that Windows ignores, migrate deprecated labels and spellings
///
/// Reads files, folders and standard input, as check does. Prints a unified diff, or with --write changes the files. Only
/// the lines of an edit change: comments, anchors, order, quotes, indentation and line endings stay. An edited text is read
/// again and must have exactly the planned values, else the object stays as it is. What is not fixed is listed on
/// standard error with the reason.
///
/// With -, the fixed text of standard input goes to standard output, and other paths only describe the cluster. So it works
/// as Helm's post-renderer.
///
/// Settings come from the nearest file .transom.yaml in the folder of each path or above it; arguments replace them.
///
/// Exit status: 0 nothing to change, or everything was written; 1 the diff is not empty, or an object could not be
/// edited; 2 bad usage, or input that cannot be read or written. With - and without --diff: 0, or 2 if nothing can be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom fix manifests/
  transom fix --write --placement manifests/web.yaml
  helm template web ./chart | transom fix - | kubectl apply -f -")]
pub struct FixArgs {
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
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    inputs: ManifestArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FixFormat {
    /// The diff, or the fixed text of standard input
    Text,
    /// Schema transom.dev/fix/v1: each object with its JSON patch
    Json,
}

/// The schema of the report.
const SCHEMA: &str = "transom.dev/fix/v1";

/// What was changed in manifests, or would be, and what is left.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom fix -o json")]
struct FixReport<'r> {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The totals.
    summary: FixSummary,
    /// The objects in which something was found, in the order of the input.
    objects: &'r [&'r FixedObject],
    /// Notes about the inputs and about suppressions.
    notes: &'r [&'r CheckNote],
    /// The parts of the input that could not be read or written.
    errors: &'r [&'r UnreadableInput],
}

/// Counts of objects and findings.
#[derive(Clone, Copy, Serialize, JsonSchema, Default)]
struct FixSummary {
    /// Objects that were changed, or would be.
    changed: usize,
    /// Objects that could not be edited.
    failed: usize,
    /// Findings that the changes resolve.
    fixed: usize,
    /// Findings that are left, of the rules that may be fixed.
    remaining: usize,
    /// Findings that are left because --select and --ignore exclude their rules.
    unselected: usize,
}

/// The JSON schema of the report.
pub fn schema() -> Value {
    of_report::<FixReport<'_>>()
}

impl FixSummary {
    fn of(objects: &[&FixedObject], unselected: usize) -> Self {
        let mut summary = FixSummary {
            unselected,
            ..FixSummary::default()
        };
        for object in objects {
            summary.changed += usize::from(!object.patch.is_empty());
            summary.failed += usize::from(object.error.is_some());
            summary.fixed += object.fixed.len();
            summary.remaining += object.remaining.len();
        }
        summary
    }
}

/// The inputs with the same configuration, and their fix.
struct FixGroup {
    inputs: ManifestGroup,
    fixed: FixedInputs,
    /// The number of objects whose pods are of unknown operating system.
    unknown: usize,
}

/// Notes policies and configurations that use what registries report: fixes follow the names of images.
fn note_names_of(groups: &[FixGroup]) {
    note_names_only(groups.iter().map(|group| &group.inputs.policies), None);
    let configured = groups.iter().filter(|group| group.inputs.config.registry);
    let files = configured.filter_map(|group| group.inputs.file.as_ref());
    let files = files.map(|file| file.display().to_string());
    note_of(files.collect(), "registry: true", None);
}

pub fn run(args: &FixArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    let has_stdin = args.inputs.has_stdin();
    if has_stdin && args.write {
        bail!(
            "--write cannot change standard input (-): leave it out to print the fixed text, or name the file"
        );
    }
    let groups = fix_groups(args, has_stdin)?;
    note_names_of(&groups);
    let errors: Vec<&UnreadableInput> = groups.iter().flat_map(|group| &group.fixed.errors).collect();
    let notes: Vec<&CheckNote> = groups.iter().flat_map(|group| &group.fixed.notes).collect();
    let objects: Vec<&FixedObject> = groups.iter().flat_map(|group| &group.fixed.objects).collect();
    let unselected = groups.iter().map(|group| group.fixed.unselected).sum();
    let summary = FixSummary::of(&objects, unselected);
    let is_stream = has_stdin && !args.diff;
    // What cannot be evaluated, and a document that cannot be read, stays as it is. A text of which nothing can be read is
    // not printed, and nothing is if another input cannot be read.
    let cannot_be_read = |group: &FixGroup| {
        let manifests = &group.inputs.manifests;
        let mut errors = manifests.errors().iter();
        errors.any(|error| error.source != "-" || !manifests.has_documents_of("-"))
    };
    let is_broken = is_stream && groups.iter().any(cannot_be_read);
    for target in &targets {
        target.write(|out| match target.format {
            FixFormat::Text if is_broken => Ok(()),
            FixFormat::Text if is_stream => {
                (groups.iter()).try_for_each(|group| out.write_all(stdin_text(group)))
            }
            FixFormat::Text if args.write => {
                let mut written = groups.iter().flat_map(|group| group.fixed.texts.keys());
                written.try_for_each(|name| writeln!(out, "fixed {name}"))
            }
            FixFormat::Text => groups.iter().try_for_each(|group| print_diffs(group, out)),
            FixFormat::Json => print_json(&objects, summary, (&errors, &notes), out),
        })?;
    }
    let unknown = groups.iter().map(|group| group.unknown).sum();
    match report(&objects, summary, (&errors, &notes), unknown) {
        // The reader of standard error has seen enough: the exit status stays the same.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    args.inputs.require_namespaces(|| {
        groups
            .iter()
            .flat_map(|group| group.fixed.namespaces.clone())
            .collect()
    })?;
    let is_refused = objects.iter().any(|object| object.error.is_some());
    let has_diff = !args.write && groups.iter().any(|group| !group.fixed.texts.is_empty());
    let is_incomplete = if is_stream { is_broken } else { !errors.is_empty() };
    let fails = !is_stream && (is_refused || has_diff);
    Ok(exit_status(is_incomplete, fails))
}

/// Reads the inputs, fixes them, and with `--write` writes them.
fn fix_groups(args: &FixArgs, has_stdin: bool) -> anyhow::Result<Vec<FixGroup>> {
    let stdin = has_stdin
        .then(|| read_all(io::stdin().lock(), MANIFEST_BYTES))
        .transpose()
        .context("cannot read standard input")?;
    let scope = scope(args);
    let groups = args.inputs.read(ReadOptions {
        command: "transom fix",
        keep_text: true,
        role: SourceRole::Named,
        once: true,
        excluded: Vec::new(),
        baseline: None,
        stdin,
    })?;
    let fix_group = |inputs: ManifestGroup| {
        let ManifestGroup {
            manifests,
            facts,
            policies,
            ..
        } = &inputs;
        let unknown = Cell::new(0);
        let mut fixed = fix(manifests, facts, policies, &scope, |checked| {
            let is_selected = (!has_stdin || checked.source == "-") && args.inputs.selects(checked);
            unknown.set(unknown.get() + usize::from(is_selected && checked.has_unknown_os()));
            is_selected
        });
        if args.write {
            write_files(&inputs, &mut fixed);
        }
        FixGroup {
            inputs,
            fixed,
            unknown: unknown.get(),
        }
    };
    Ok(groups.into_iter().map(fix_group).collect())
}

/// What may be fixed.
fn scope(args: &FixArgs) -> FixScope {
    FixScope {
        placement: args.placement,
        rules: (!args.rules.is_everything()).then(|| args.rules.selected().map(|rule| rule.id).collect()),
    }
}

/// Writes the changed files; what could not be written is an error, and is not fixed.
fn write_files(inputs: &ManifestGroup, fixed: &mut FixedInputs) {
    let read = inputs.manifests.texts();
    let mut failed = Vec::new();
    for (name, new) in &fixed.texts {
        let old = read.get(name.as_str()).copied().unwrap_or_default();
        if let Err(error) = write::replace(Path::new(name), old, &new.bytes) {
            failed.push((name.clone(), error.to_string()));
        }
    }
    for (source, message) in failed {
        fixed.not_written(&source, &message);
        fixed.errors.push(UnreadableInput::new(source, 0, message));
    }
}

/// The fixed text of standard input.
fn stdin_text(group: &FixGroup) -> &[u8] {
    let fixed = group.fixed.texts.get("-").map(|text| text.bytes.as_slice());
    let read = || group.inputs.manifests.texts().get("-").copied();
    fixed.or_else(read).unwrap_or_default()
}

fn print_diffs(group: &FixGroup, out: &mut dyn Write) -> io::Result<()> {
    let read = group.inputs.manifests.texts();
    for (name, new) in &group.fixed.texts {
        let old = read.get(name.as_str()).copied().unwrap_or_default();
        let name = if name == "-" { "stdin" } else { name };
        out.write_all(&diff::unified(name, old, &new.replaced))?;
    }
    Ok(())
}

fn print_json(
    objects: &[&FixedObject],
    summary: FixSummary,
    (errors, notes): (&[&UnreadableInput], &[&CheckNote]),
    out: &mut dyn Write,
) -> io::Result<()> {
    let report = FixReport {
        schema: SCHEMA,
        summary,
        objects,
        notes,
        errors,
    };
    write_json(&report, out)
}

/// Writes the errors, the notes, what was fixed, what was not, and how many objects have pods of unknown operating system,
/// to standard error.
fn report(
    objects: &[&FixedObject],
    summary: FixSummary,
    (errors, notes): (&[&UnreadableInput], &[&CheckNote]),
    unknown: usize,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(anstream::stderr().lock());
    for error in errors {
        writeln!(out, "error: {error}")?;
    }
    if is_quiet() {
        return out.flush();
    }
    for note in notes {
        writeln!(out, "{}: {}", note.level.as_str(), one_line(&note.to_string()))?;
    }
    for object in objects {
        report_object(object, &mut out)?;
    }
    let FixSummary {
        changed,
        failed,
        fixed,
        remaining,
        unselected,
    } = summary;
    let failed = match failed {
        0 => String::new(),
        failed => format!(", {failed} not changed"),
    };
    let (changed, fixed) = (count(changed, "object"), count(fixed, "finding"));
    let others = match unselected {
        0 => String::new(),
        others => format!(", {others} of rules that are not selected"),
    };
    writeln!(
        out,
        "{changed} changed{failed}; {fixed} fixed, {remaining} left{others}"
    )?;
    if unknown > 0 {
        let unknown = count(unknown, "object");
        writeln!(
            out,
            "{unknown} of unknown operating system: {}",
            unknown_os_remedy("fix")
        )?;
    }
    out.flush()
}

fn report_object(object: &FixedObject, out: &mut dyn Write) -> io::Result<()> {
    let FixedObject { source, line, .. } = object;
    writeln!(out, "{} ({source}:{line})", object.title())?;
    if let Some(reason) = &object.error {
        writeln!(out, "  not changed: {reason}")?;
    }
    for fixed in &object.fixed {
        write!(out, "  fixed {} {}: {}", fixed.id, fixed.rule, fixed.path)?;
        if let Some(loses) = fixed.loses {
            write!(out, " (Windows ignores it: the pod loses {loses})")?;
        }
        writeln!(out)?;
    }
    for change in &object.changes {
        writeln!(out, "  also  {}: {}", change.path, change.reason)?;
    }
    for finding in object.remaining.iter().filter(|_| object.error.is_none()) {
        let at = finding.line;
        writeln!(
            out,
            "  left  {} {} (line {at}): {}: {}",
            finding.id, finding.rule, finding.path, finding.reason
        )?;
    }
    Ok(())
}
