//! The command line: parses arguments and returns the exit status. Each subcommand has its own file.

mod audit_log;
mod check;
mod cluster;
mod completion;
mod crds;
mod demo;
mod drain;
mod fix;
mod generate;
mod help;
mod image;
mod image_evidence;
mod knowledge;
mod manifest_inputs;
pub(crate) mod options;
mod plan;
mod preflight;
mod probe;
mod progress;
mod registry;
mod rules;
mod scan;
mod serve;
mod test;
mod uninstall;
mod version;

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::ColorChoice;
use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::model::syntax::text::one_line;

/// Admission webhook and policy controller for Windows pods on Kubernetes.
#[derive(Parser, Debug)]
#[command(name = "transom", version, propagate_version = true, max_term_width = 100)]
#[command(about = "Run and operate Transom, the admission webhook and policy controller for Windows pods")]
#[command(help_template = help::template())]
#[command(after_help = "Examples:
  transom check manifests/
  transom scan --assume mode=Enforce
  transom explain run-as-user

Exit status:
  0  the command succeeded, and found nothing that it fails on (--fail-on)
  1  it found something that it fails on
  2  it could not do what was asked: bad usage, or input or a cluster that could not be read")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print no progress and no hints on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    /// When to color the output
    #[arg(long, value_name = "WHEN", value_parser = color(), default_value = "auto", global = true)]
    color: ColorChoice,
}

/// Parses when to color the output.
fn color() -> impl TypedValueParser<Value = ColorChoice> {
    let auto = PossibleValue::new("auto").help("On a terminal");
    PossibleValuesParser::new([auto, "always".into(), "never".into()]).map(|word| match &*word {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    })
}

/// Whether to omit progress and hints; set once, before a command runs.
static QUIET: AtomicBool = AtomicBool::new(false);

fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Demo(demo::DemoArgs),
    Check(Box<check::CheckArgs>),
    Fix(fix::FixArgs),
    Test(test::TestArgs),
    Scan(scan::ScanArgs),
    Image(Box<image::ImageCommandArgs>),
    Plan(plan::PlanArgs),
    Drain(Box<drain::DrainArgs>),
    AuditLog(audit_log::AuditLogArgs),
    Preflight(preflight::PreflightArgs),
    Knowledge(knowledge::KnowledgeCommandArgs),
    Probe(probe::ProbeArgs),
    Rules(rules::RulesArgs),
    Explain(rules::ExplainArgs),
    Generate(generate::GenerateArgs),
    Crds(crds::CrdsCommandArgs),
    Uninstall(uninstall::UninstallArgs),
    Version(version::VersionArgs),
    Completion(completion::CompletionArgs),
}

/// Runs the command.
///
/// # Errors
/// Why it could not be completed, as a message for people; the exit status is then 2.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli {
        command,
        quiet,
        color,
    } = cli;
    QUIET.store(quiet, Ordering::Relaxed);
    color.write_global();
    match command {
        Command::Serve(args) => serve::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Fix(args) => fix::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::AuditLog(args) => audit_log::run(args),
        Command::Preflight(args) => preflight::run(&args),
        Command::Knowledge(args) => knowledge::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Rules(args) => rules::list(&args),
        Command::Explain(args) => rules::explain(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Version(args) => version::run(&args),
        Command::Completion(args) => completion::run(&args),
    }
}

/// The remedy after the name of a resource that this account may not read.
const READ_RIGHTS: &str = "grant this account read access to it (get, list)";

/// The exit status that commands share (docs/reference/cli/README.md): 2 if a part of the input or of the cluster could
/// not be read, whatever else was found; otherwise 1 if the command found what it fails on; otherwise 0.
fn exit_status(is_incomplete: bool, fails: bool) -> ExitCode {
    match (is_incomplete, fails) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Writes what could not be read, one line each.
fn write_errors(errors: &[String]) {
    for error in errors {
        warn_line(format_args!("error: {}", one_line(error)));
    }
}

/// Writes a line to standard output. A closed one is not an error; unlike `println!`, a full disk is no panic.
fn print_line(line: impl fmt::Display) -> anyhow::Result<()> {
    match writeln!(anstream::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error; that it cannot be written is no reason to end a command.
fn warn_line(line: impl fmt::Display) {
    drop(writeln!(anstream::stderr(), "{line}"));
}

/// Runs a short command that calls the API server, on this thread.
fn block_on<T>(asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the thread of the client")?;
    runtime.block_on(asking)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The verbs that a description may start with.
    const VERBS: [&str; 19] = [
        "Apply",
        "Check",
        "Drain",
        "Explain",
        "Fix",
        "Generate",
        "Inspect",
        "List",
        "Manage",
        "Plan",
        "Print",
        "Read",
        "Run",
        "Scan",
        "Serve",
        "Show",
        "Uninstall",
        "Validate",
        "Write",
    ];

    #[test]
    fn incomplete_input_outweighs_what_was_found() {
        for (is_incomplete, fails, expected) in [
            (false, false, ExitCode::SUCCESS),
            (false, true, ExitCode::from(1)),
            (true, false, ExitCode::from(2)),
            (true, true, ExitCode::from(2)),
        ] {
            assert_eq!(
                exit_status(is_incomplete, fails),
                expected,
                "{is_incomplete} {fails}"
            );
        }
    }

    fn each(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, clap::Command)) {
        visit(path, command.clone());
        for below in command.get_subcommands().filter(|it| it.get_name() != "help") {
            each(below, &format!("{path} {}", below.get_name()), visit);
        }
    }

    #[test]
    fn every_help_fits_100_columns_starts_with_a_verb_and_has_examples_that_parse() {
        let mut root = Cli::command().term_width(100);
        root.build();
        let mut seen = 0;
        each(&root, "transom", &mut |path, mut command| {
            seen += 1;
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let verb = about.split_whitespace().next().unwrap_or_default();
            assert!(
                VERBS.contains(&verb),
                "{path} does not start with a verb: {about:?}"
            );
            for help in [command.render_long_help(), command.render_help()] {
                let help = help.to_string();
                for line in help.lines() {
                    assert!(line.chars().count() <= 100, "{path}: {line}");
                }
                let (described, examples) = help
                    .split_once("\nExamples:\n")
                    .unwrap_or_else(|| panic!("{path} has no examples"));
                assert!(!described.contains(".md"), "{path} names a page:\n{described}");
                let mut commands = examples.lines().filter(|line| line.contains("transom"));
                assert!(
                    commands.any(|line| line.contains(path)),
                    "no example of {path}:\n{examples}"
                );
            }
        });
        assert!(seen >= 18, "{seen} commands");
    }

    /// A heading of flattened arguments applies to all arguments that follow in the struct.
    #[test]
    fn an_option_is_below_the_heading_that_it_belongs_to() {
        let mut root = Cli::command();
        root.build();
        each(&root, "transom", &mut |path, command| {
            for argument in command.get_arguments() {
                let expected = match argument.get_id().as_str() {
                    "output" | "fail_on" | "today" | "policy" | "namespace" | "selector" | "limit"
                    | "quiet" | "yes" | "dry_run" => None,
                    "registry" | "offline" => Some("Registries"),
                    "identity" | "reports" | "probe_namespace" => Some("In a cluster"),
                    "name" => Some("Names in the cluster"),
                    "kubeconfig" | "context" => Some("Cluster to talk to"),
                    "runtime" => Some("Cluster"),
                    _ => continue,
                };
                assert_eq!(argument.get_help_heading(), expected, "{path} {argument}");
            }
        });
    }

    #[test]
    fn an_option_has_one_letter_and_one_meaning_in_every_command() {
        let mut root = Cli::command();
        root.build();
        let mut letters: std::collections::BTreeMap<char, String> = std::collections::BTreeMap::new();
        each(&root, "transom", &mut |path, command| {
            for argument in command.get_arguments() {
                let (Some(short), Some(long)) = (argument.get_short(), argument.get_long()) else {
                    continue;
                };
                let known = letters.entry(short).or_insert_with(|| long.to_owned());
                assert_eq!(known, long, "-{short} in {path}");
            }
        });
        let letter = |long: &str| {
            letters
                .iter()
                .find(|(_, known)| *known == long)
                .map(|(short, _)| *short)
        };
        for (long, short) in [
            ("output", 'o'),
            ("namespace", 'n'),
            ("all-namespaces", 'A'),
            ("selector", 'l'),
            ("filename", 'f'),
            ("quiet", 'q'),
        ] {
            assert_eq!(letter(long), Some(short), "--{long}");
        }
    }
}
