//! `transom knowledge`: lists the known faults and dates of support, and checks a file with newer ones. The flag of the other
//! commands that names such a file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Once};

use clap::{Args, Subcommand};

use super::options::{OutputArgs, ReportFormat};
use super::{print_line, warn_line};
use crate::check::read_knowledge;
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::{Knowledge, KnowledgeFile, KnownFault};
use crate::model::syntax::text::{count, one_line};
use crate::process::files::Accept;
use crate::process::today;

/// Newer rows of known faults and dates of support.
#[derive(Args, Clone, Debug)]
pub struct KnowledgeArgs {
    /// A file with newer known faults and dates of support, as YAML or JSON (transom knowledge list -o json prints the form).
    /// It adds rows, or replaces a row by its id and a newer date. If it cannot be used, the rows of this version apply
    #[arg(long, env = "TRANSOM_KNOWLEDGE", value_name = "FILE")]
    pub knowledge: Option<PathBuf>,
}

impl KnowledgeArgs {
    /// The rows to use. Why the file cannot be used is printed once.
    pub fn load(&self) -> Arc<Knowledge> {
        static NOTED: Once = Once::new();
        let known = Knowledge::built_in();
        let Some(file) = &self.knowledge else { return known };
        match read_knowledge(file, Accept::RegularOrPipe) {
            Ok(read) => Arc::new(known.with(read)),
            Err(error) => {
                NOTED.call_once(|| {
                    let error = error.to_string();
                    warn_line(format_args!(
                        "warning: {}; the rows of this version apply",
                        one_line(&error)
                    ));
                });
                known
            }
        }
    }

    /// Sets the rows to use, if a file is named.
    pub fn apply(&self, facts: &mut Facts) {
        if self.knowledge.is_some() {
            facts.knowledge = self.load();
        }
    }
}

/// Show the known faults of Windows nodes and the dates of their support, and check a file with newer ones
///
/// The rows are compiled in. With --knowledge, several commands use a file with newer rows.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom knowledge list
  transom knowledge list -o json=knowledge.json
  transom knowledge check knowledge.json")]
pub struct KnowledgeCommandArgs {
    #[command(subcommand)]
    what: KnowledgeCommand,
}

#[derive(Subcommand, Debug)]
enum KnowledgeCommand {
    List(ListArgs),
    Check(CheckFileArgs),
}

/// List the rows: known faults, support of platforms, changes of Kubernetes releases
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom knowledge list
  transom knowledge list --knowledge knowledge.json
  transom knowledge list -o json=knowledge.json")]
struct ListArgs {
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
}

/// Check a file with newer rows: its form, and the examples of each fault
///
/// Exit status: 0 if the file can be used; 2 if not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom knowledge check knowledge.json")]
struct CheckFileArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(args: &KnowledgeCommandArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        KnowledgeCommand::List(ListArgs { knowledge, output }) => {
            let known = knowledge.load();
            output.report(&known.to_file(), |out| write_list(&known, out))?;
        }
        KnowledgeCommand::Check(CheckFileArgs { file }) => {
            let read = read_knowledge(file, Accept::RegularOrPipe)?;
            print_line(format_args!("{}", checked(read)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a valid file brings.
fn checked(file: KnowledgeFile) -> String {
    let rows = file.rows();
    let all = Knowledge::built_in().with(file);
    let used = all.sources.last().map_or(0, |source| source.rows);
    let unused = match rows - used {
        0 => String::new(),
        unused => format!("; {} not newer than this version has", count(unused, "row")),
    };
    format!("valid: {used} of {} used{unused}", count(rows, "row"))
}

fn write_list(known: &Knowledge, out: &mut dyn Write) -> io::Result<()> {
    for line in known.report(today()).lines() {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\nknown faults:")?;
    for fault in &known.faults {
        write_fault(fault, out)?;
    }
    writeln!(out, "\nsupport of platforms:")?;
    for row in &known.support {
        let releases = match (row.first_minor, row.last_minor) {
            (Some(first), _) => format!(", from Kubernetes 1.{first}"),
            (None, Some(last)) => format!(", up to Kubernetes 1.{last}"),
            (None, None) => String::new(),
        };
        let day = |what, day| format!(", {what} {day}");
        let ends = row.ends.map(|on| day("ends", on)).unwrap_or_default();
        let removed = row
            .images_removed
            .map(|on| day("images removed", on))
            .unwrap_or_default();
        let differs = row
            .differs
            .as_ref()
            .map_or_else(String::new, |differs| format!(": {differs}"));
        writeln!(
            out,
            "  {}{releases}{ends}{removed}{differs} [{}]",
            row.id, row.source
        )?;
    }
    writeln!(out, "\nchanges of Kubernetes releases:")?;
    for row in &known.changes {
        writeln!(
            out,
            "  {} (1.{}): {} [{}]",
            row.id, row.minor, row.change, row.source
        )?;
    }
    for row in &known.containerd {
        writeln!(
            out,
            "  {}: maintenance ends {} [{}]",
            row.id, row.ends, row.source
        )?;
    }
    write_vendors(known, out)
}

/// What vendors support and publish for Windows.
fn write_vendors(known: &Knowledge, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nstorage drivers:")?;
    for row in &known.drivers {
        let of = if row.volumes.is_some() {
            ", some volumes"
        } else {
            ""
        };
        writeln!(
            out,
            "  {} ({}{of}): {}; {} [{}]",
            row.id,
            row.drivers.join(", "),
            row.windows,
            row.remedy,
            row.source
        )?;
    }
    writeln!(out, "\ninjectors:")?;
    for row in &known.injectors {
        let mut keys: Vec<&str> = row.signs.iter().flatten().map(|sign| sign.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let windows = match &row.windows {
            None => "adds Linux containers to every pod".to_owned(),
            Some(windows) => match &windows.since {
                Some(since) => format!("knows Windows since {since}"),
                None => "knows Windows".to_owned(),
            },
        };
        writeln!(
            out,
            "  {} ({}): {windows} [{}]",
            row.id,
            keys.join(", "),
            row.source
        )?;
    }
    writeln!(out, "\nimages of mcr.microsoft.com:")?;
    for row in &known.images {
        let last = row
            .last_build
            .map_or_else(String::new, |day| format!(", not built since {day}"));
        writeln!(
            out,
            "  {} ({}): {} on {}{last} [{}]",
            row.id,
            row.repositories.join(", "),
            [&row.tags[..], &row.shared].concat().join(", "),
            row.bases.join(", "),
            row.source
        )?;
    }
    Ok(())
}

fn write_fault(fault: &KnownFault, out: &mut dyn Write) -> io::Result<()> {
    let kind = match (fault.is_visible(), fault.is_certain) {
        (false, _) => "no node shows it",
        (true, true) => "certain",
        (true, false) => "possible",
    };
    let component = fault.component.to_string();
    let mut notes = vec![component.as_str(), kind];
    notes.extend(fault.cves.iter().map(String::as_str));
    writeln!(out, "  {} ({}): {}", fault.id, notes.join(", "), fault.symptom)?;
    let mut texts = vec![fault.remedy.as_str()];
    texts.extend(fault.unconfirmed.as_deref());
    writeln!(out, "    {} [{}]", texts.join("; "), fault.sources.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_how_many_rows_are_used() {
        let known = Knowledge::built_in();
        let rows = known.to_file().rows();
        assert_eq!(
            checked(known.to_file()),
            format!("valid: 0 of {rows} rows used; {rows} rows not newer than this version has")
        );
        let mut one = known.to_file();
        (one.support, one.changes, one.containerd) = (Vec::new(), Vec::new(), Vec::new());
        (one.drivers, one.injectors, one.images) = (Vec::new(), Vec::new(), Vec::new());
        one.faults.truncate(1);
        one.faults[0].id = "new".to_owned();
        assert_eq!(checked(one), "valid: 1 of 1 row used");
    }

    #[test]
    fn the_list_names_every_row() {
        let known = Knowledge::built_in();
        let mut out = Vec::new();
        write_list(&known, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let file = known.to_file();
        let ids = (file.faults.iter().map(|row| &row.id)).chain(file.support.iter().map(|row| &row.id));
        let vendors =
            (file.drivers.iter().map(|row| &row.id)).chain(file.injectors.iter().map(|row| &row.id));
        let ids = ids.chain(vendors).chain(file.images.iter().map(|row| &row.id));
        for id in ids.chain(file.changes.iter().map(|row| &row.id)) {
            assert!(text.contains(&format!("  {id}")), "{id}: {text}");
        }
    }
}
