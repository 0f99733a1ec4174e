//! Arguments that several commands share. Each is declared once, so that its spelling and meaning are the
//! same everywhere. The connection flags are declared next to the client.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::builder::{EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command, ValueEnum};
use serde::Serialize;

use crate::check::files::EMPTY_PATTERN;
use crate::model::cluster::severity::Severity;
use crate::model::objects::label_selector::{LabelExpression, LabelOperator, LabelSelector};
use crate::model::syntax::dns::is_label;
use crate::model::syntax::string_enum::string_enum;
pub use crate::model::syntax::suggest::{date, nearest};
use crate::model::windows::os::Os;
use crate::registration::BY_DEFAULT;
use crate::render::write_json;
use crate::rules::documentation::DocumentationUrl;
use crate::rules::{self, Rule};

/// The formats of one command; the first is the default.
pub trait FormatList: ValueEnum + fmt::Debug + Copy + PartialEq + Send + Sync + 'static {}

impl<F: ValueEnum + fmt::Debug + Copy + PartialEq + Send + Sync + 'static> FormatList for F {}

/// The formats of a command that has a text and its report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}

/// The destination and form of the output.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs<F: FormatList> {
    /// The output format; =FILE writes it to a file instead of standard output. Repeatable
    #[arg(long, short, value_name = "FORMAT[=FILE]", value_parser = TargetParser::<F>(PhantomData))]
    output: Vec<OutputTarget<F>>,
}

/// One output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputTarget<F> {
    pub format: F,
    /// Its file; standard output if unset.
    pub file: Option<PathBuf>,
}

impl<F: FormatList> OutputArgs<F> {
    /// The outputs, in the order of the arguments.
    ///
    /// # Errors
    /// If two of them have the same destination.
    pub fn targets(&self) -> anyhow::Result<Vec<OutputTarget<F>>> {
        if self.output.is_empty() {
            let format = F::value_variants()
                .first()
                .context("the command has no output format")?;
            return Ok(vec![OutputTarget {
                format: *format,
                file: None,
            }]);
        }
        for (index, target) in self.output.iter().enumerate() {
            let mut others = self.output.iter().skip(index + 1);
            if others.any(|other| other.file == target.file) {
                match &target.file {
                    Some(file) => bail!(
                        "two outputs go to {} (-o): give each its own file",
                        file.display()
                    ),
                    None => bail!(
                        "two outputs go to standard output (-o): give one a file, as in -o json=report.json"
                    ),
                }
            }
        }
        Ok(self.output.clone())
    }

    /// Writes every output. A closed standard output is not an error.
    ///
    /// # Errors
    /// If a file cannot be written; the error names it.
    pub fn write(&self, mut print: impl FnMut(F, &mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        for target in self.targets()? {
            target.write(|out| print(target.format, out))?;
        }
        Ok(())
    }
}

impl OutputArgs<ReportFormat> {
    /// Writes a report to every output.
    ///
    /// # Errors
    /// If a file cannot be written; the error names it.
    pub fn report(
        &self,
        json: &impl Serialize,
        mut text: impl FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.write(|format, out| match format {
            ReportFormat::Text => text(out),
            ReportFormat::Json => write_json(json, out),
        })
    }
}

impl<F> OutputTarget<F> {
    /// The width of the terminal that it goes to, in characters; `COLUMNS` takes precedence.
    pub fn terminal_width(&self) -> Option<usize> {
        if self.file.is_some() || !io::stdout().is_terminal() {
            return None;
        }
        let columns = std::env::var("COLUMNS").ok();
        let columns = columns.and_then(|columns| columns.parse().ok());
        columns.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
    }
}

impl<F: FormatList> OutputTarget<F> {
    /// Opens the file without a change, so that a long command does not fail at its end.
    ///
    /// # Errors
    /// If the file cannot be written; the error names it.
    pub fn check_writable(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let is_new = !file.exists();
        let opened = File::options().append(true).create(true).open(file);
        opened.with_context(|| format!("cannot write the output to {}", file.display()))?;
        if is_new {
            // The command may end before it writes anything.
            drop(std::fs::remove_file(file));
        }
        Ok(())
    }

    /// Writes this output.
    ///
    /// # Errors
    /// If the file cannot be written; the error names it.
    pub fn write(&self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let written = if let Some(file) = &self.file {
            File::create(file).and_then(|file| {
                let mut out = BufWriter::new(anstream::StripStream::new(file));
                print(&mut out)?;
                out.flush()
            })
        } else {
            let mut out = BufWriter::new(anstream::stdout().lock());
            print(&mut out).and_then(|()| out.flush())
        };
        if let (Err(error), None) = (&written, &self.file)
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return Ok(());
        }
        let to = self.file.as_deref().unwrap_or(Path::new("standard output"));
        written.with_context(|| format!("cannot write the output to {}", to.display()))
    }
}

/// Parses `FORMAT[=FILE]`.
#[derive(Clone)]
struct TargetParser<F>(PhantomData<F>);

impl<F: FormatList> TypedValueParser for TargetParser<F> {
    type Value = OutputTarget<F>;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let text = value.to_string_lossy();
        let (format, file) = match text.split_once('=') {
            Some((format, file)) => (format, Some(file)),
            None => (&*text, None),
        };
        let parsed = EnumValueParser::<F>::new().parse_ref(command, arg, OsStr::new(format));
        let format = parsed.map_err(|mut error| {
            // Of the format alone until here.
            error.insert(
                ContextKind::InvalidValue,
                ContextValue::String(text.clone().into_owned()),
            );
            error
        })?;
        if file == Some("") {
            let what = format!("{text:?} names no file: write it as in -o {text}report or leave the = out");
            return Err(clap::Error::raw(ErrorKind::ValueValidation, format!("{what}\n")).with_cmd(command));
        }
        Ok(OutputTarget {
            format,
            file: file.map(PathBuf::from),
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            F::value_variants().iter().filter_map(F::to_possible_value),
        ))
    }
}

string_enum! {
    /// When a command exits with status 1: all values of `--fail-on`. Each command accepts those that apply to
    /// it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum FailOn {
        /// Nothing.
        Never = "never",
        /// Something is denied.
        Deny = "deny",
        /// Something is denied, or would be if its policy had mode Enforce.
        WouldDeny = "would-deny",
        /// There is an open finding of severity error.
        Error = "error",
        /// There is an open finding of severity warning or above.
        Warning = "warning",
        /// There is an open finding of any severity.
        Advice = "advice",
        /// Something is changed, or would be, or a condition above is met.
        Patch = "patch",
        /// Transom did not answer a request, or a condition above is met.
        Unanswered = "unanswered",
        /// A workload cannot move unchanged, or that is unknown.
        Blocked = "blocked",
    }
}

impl FailOn {
    /// Whether one of the open findings, counted by severity, has a severity that ends in status 1.
    pub fn is_open_in(self, open: &[usize; Severity::ALL.len()]) -> bool {
        let least = match self {
            FailOn::Error => Severity::Error,
            FailOn::Warning => Severity::Warning,
            FailOn::Advice => Severity::Advice,
            _ => return false,
        };
        let is_met = |severity: &Severity| *severity >= least && open[*severity as usize] > 0;
        Severity::ALL.iter().any(is_met)
    }

    /// Parses one of these values.
    pub fn among<const N: usize>(values: [FailOn; N]) -> impl TypedValueParser<Value = FailOn> {
        one_of(values, FailOn::as_str)
    }
}

/// Files and folders to read.
#[derive(Args, Clone, Debug)]
pub struct PathArgs {
    /// Files and folders; - is standard input
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A file or folder, as in kubectl apply -f. Repeatable
    #[arg(long, short, value_name = "PATH")]
    filename: Vec<PathBuf>,
}

impl PathArgs {
    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.paths.iter().chain(&self.filename)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// All of them.
    ///
    /// # Errors
    /// If there are none.
    pub fn required(&self) -> anyhow::Result<Vec<&PathBuf>> {
        if self.is_empty() {
            bail!("nothing to read: name files or folders, or - for standard input (see --help)");
        }
        Ok(self.all().collect())
    }
}

/// Which namespaces.
#[derive(Args, Clone, Debug)]
pub struct NamespaceArgs {
    /// Only objects in this namespace. Repeatable
    #[arg(long, short, value_name = "NAME", value_parser = namespace)]
    pub namespace: Vec<String>,
    /// Objects in all namespaces (the default)
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl NamespaceArgs {
    /// Whether objects of this namespace are selected; objects without a namespace always are.
    pub fn selects(&self, namespace: &str) -> bool {
        let NamespaceArgs {
            namespace: names,
            all_namespaces: _,
        } = self;
        names.is_empty() || namespace.is_empty() || names.iter().any(|name| name == namespace)
    }
}

/// Which objects, by their labels.
#[derive(Args, Clone, Debug)]
pub struct SelectorArgs {
    /// Only objects with these labels, as in team=shop,tier!=test,!legacy
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    selector: Option<LabelSelector>,
}

impl SelectorArgs {
    /// Whether an object with these labels is selected.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .as_ref()
            .is_none_or(|selector| selector.selects(labels))
    }

    /// The same; the labels are read only if objects are selected by them.
    pub fn selects_by(&self, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        self.is_everything() || self.selects(&labels())
    }

    /// Whether every object is selected.
    pub fn is_everything(&self) -> bool {
        self.selector.is_none()
    }

    /// The selector, as on the command line.
    pub fn text(&self) -> Option<String> {
        let part = |expression: &LabelExpression| {
            let (key, values) = (&expression.key, expression.values.join(","));
            match expression.operator {
                LabelOperator::In => format!("{key}={values}"),
                LabelOperator::NotIn => format!("{key}!={values}"),
                LabelOperator::Exists => key.clone(),
                LabelOperator::DoesNotExist => format!("!{key}"),
            }
        };
        let expressions = &self.selector.as_ref()?.match_expressions;
        Some(expressions.iter().map(part).collect::<Vec<String>>().join(","))
    }
}

/// Which policies.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    /// Use the WindowsPodPolicy objects of this file and no others
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// Which namespaces admission never sees.
#[derive(Args, Clone, Debug)]
pub struct ExcludedNamespacesArgs {
    /// Namespaces that the webhooks exclude, instead of the default ones; an empty value excludes none. kube-system,
    /// kube-node-lease, kube-public and Transom's own are always excluded
    #[arg(
        long,
        env = "TRANSOM_EXCLUDE_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        default_values_t = BY_DEFAULT.map(str::to_owned)
    )]
    pub exclude_namespace: Vec<String>,
}

/// How much is listed.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListLimitArgs {
    /// List at most this many rows in each table or group of the text output; 0 lists all
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = rows)]
    limit: usize,
}

impl ListLimitArgs {
    /// The number of rows.
    pub fn rows(self) -> usize {
        if self.limit == 0 { usize::MAX } else { self.limit }
    }
}

/// Parses a number of rows.
fn rows(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "write a whole number; 0 lists all".to_owned())
}

/// Parses the name of a namespace.
///
/// # Errors
/// A message with the nearest name that Kubernetes accepts.
pub fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) && text.len() <= 63 && !text.contains(|c: char| c.is_ascii_uppercase()) {
        return Ok(text.to_owned());
    }
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '-',
    };
    let near: String = text.trim().chars().map(plain).take(63).collect();
    let near = near.trim_matches('-');
    Err(if near.is_empty() {
        "a namespace is named with lower-case letters, digits and -, as in web-shop".to_owned()
    } else {
        format!("a namespace is named with lower-case letters, digits and -; did you mean {near}?")
    })
}

/// Parses `key=value`, `key!=value`, `key` and `!key`, separated by commas, as kubectl does.
///
/// # Errors
/// The accepted format.
pub fn selector(text: &str) -> Result<LabelSelector, String> {
    let expression = |part: &str| {
        let (key, operator, value) = if let Some((key, value)) = part.split_once("!=") {
            (key, LabelOperator::NotIn, Some(value))
        } else if let Some((key, value)) = part.split_once('=') {
            (key, LabelOperator::In, Some(value.trim_start_matches('=')))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, LabelOperator::DoesNotExist, None)
        } else {
            (part, LabelOperator::Exists, None)
        };
        let key = key.trim();
        if key.is_empty() || key.contains([' ', '(', ')', '!', '=']) {
            return Err("write labels as in team=windows,tier!=test,!legacy".to_owned());
        }
        Ok(LabelExpression {
            key: key.to_owned(),
            operator,
            values: value.map(|value| value.trim().to_owned()).into_iter().collect(),
        })
    };
    let expressions: Result<Vec<_>, String> = text.split(',').map(str::trim).map(expression).collect();
    Ok(LabelSelector {
        match_labels: BTreeMap::new(),
        match_expressions: expressions?,
    })
}

/// Rules by their IDs, their names, or the beginning of their IDs, as in TSM2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSelector(pub Vec<&'static str>);

/// Parses the ID of a rule, its name, or the beginning of IDs.
///
/// # Errors
/// There is no such rule; with the nearest name.
pub fn rules(text: &str) -> Result<RuleSelector, String> {
    if let Some(rule) = rules::find(text) {
        return Ok(RuleSelector(vec![rule.id]));
    }
    let upper = text.to_ascii_uppercase();
    let of_prefix = rules::catalogue().filter(|rule| upper.starts_with("TSM") && rule.id.starts_with(&upper));
    let ids: Vec<&'static str> = of_prefix.map(|rule| rule.id).collect();
    if !ids.is_empty() {
        return Ok(RuleSelector(ids));
    }
    Err(match rules::nearest(text) {
        Some(near) => format!("there is no such rule; did you mean {near}?"),
        None => "there is no such rule; transom rules lists them".to_owned(),
    })
}

/// Where the documentation of rules is published.
#[derive(Args, Clone, Debug)]
pub struct DocumentationArgs {
    /// The URL where docs/ is published: SARIF and the HTML page then link to the documentation of each rule
    #[arg(
        long,
        env = "TRANSOM_DOCUMENTATION_BASE_URL",
        value_name = "URL",
        value_parser = DocumentationUrl::parse
    )]
    pub documentation_base_url: Option<DocumentationUrl>,
}

/// Which rules a command looks at.
#[derive(Args, Clone, Debug)]
pub struct RuleArgs {
    /// Only these rules, by ID, by name, or by the beginning of IDs, as in TSM2; separated by commas
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rules)]
    select: Vec<RuleSelector>,
    /// Not these rules; separated by commas
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rules)]
    ignore: Vec<RuleSelector>,
}

impl RuleArgs {
    /// Whether a rule is selected.
    pub fn selects(&self, id: &str) -> bool {
        let is_in = |list: &[RuleSelector]| list.iter().any(|rules| rules.0.contains(&id));
        (self.select.is_empty() || is_in(&self.select)) && !is_in(&self.ignore)
    }

    /// The rules that are selected, in the order of the catalogue.
    pub fn selected(&self) -> impl Iterator<Item = &'static Rule> {
        rules::catalogue().filter(|rule| self.selects(rule.id))
    }

    /// Whether every rule is selected.
    pub fn is_everything(&self) -> bool {
        self.select.is_empty() && self.ignore.is_empty()
    }
}

/// Parses the name of one of these values.
pub fn one_of<T, const N: usize>(
    values: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(values.map(name)).try_map(move |word| {
        let value = values.into_iter().find(|value| name(*value) == word);
        value.ok_or("there is no such value")
    })
}

/// Parses an operating system.
pub fn os() -> impl TypedValueParser<Value = Os> {
    one_of([Os::Windows, Os::Linux], Os::label)
}

/// Parses a pattern of files to exclude.
///
/// # Errors
/// It is empty: that would exclude everything.
pub fn glob(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(EMPTY_PATTERN.to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        output: OutputArgs<ReportFormat>,
        #[arg(long, value_parser = FailOn::among([FailOn::Never, FailOn::Deny]), default_value = "deny")]
        fail_on: FailOn,
    }

    fn parse(words: &[&str]) -> Result<Line, String> {
        let words = ["transom"].iter().chain(words);
        Line::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn outputs_are_formats_with_files_and_the_first_format_is_the_default() {
        let to = |format, file: Option<&str>| OutputTarget {
            format,
            file: file.map(PathBuf::from),
        };
        let targets = |words: &[&str]| parse(words).unwrap().output.targets().map_err(|e| e.to_string());
        assert_eq!(targets(&[]), Ok(vec![to(ReportFormat::Text, None)]));
        assert_eq!(
            targets(&["-o", "json=a=b.json", "-otext"]),
            Ok(vec![
                to(ReportFormat::Json, Some("a=b.json")),
                to(ReportFormat::Text, None)
            ])
        );
        assert!(
            targets(&["-o", "json", "-o", "text"])
                .unwrap_err()
                .contains("standard output")
        );
        assert!(
            targets(&["-o", "json=a", "-o", "text=a"])
                .unwrap_err()
                .contains("go to a (-o)")
        );
        let error = parse(&["-o", "jsn=a"]).unwrap_err();
        assert!(
            error.contains("possible values: text, json") && error.contains("'json'"),
            "{error}"
        );
        assert!(parse(&["-o", "json="]).unwrap_err().contains("names no file"));
    }

    #[test]
    fn an_open_finding_matches_its_severity_and_those_below() {
        let mut open = [0; Severity::ALL.len()];
        open[Severity::Warning as usize] = 1;
        assert!(FailOn::Advice.is_open_in(&open) && FailOn::Warning.is_open_in(&open));
        assert!(!FailOn::Error.is_open_in(&open) && !FailOn::Deny.is_open_in(&open));
        assert!(!FailOn::Advice.is_open_in(&[0; Severity::ALL.len()]));
    }

    #[test]
    fn a_command_takes_only_its_own_words_of_what_to_fail_on() {
        assert_eq!(parse(&[]).unwrap().fail_on, FailOn::Deny);
        assert_eq!(parse(&["--fail-on", "never"]).unwrap().fail_on, FailOn::Never);
        let error = parse(&["--fail-on", "advice"]).unwrap_err();
        assert!(error.contains("possible values: never, deny"), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_answered_with_the_nearest_that_can() {
        assert_eq!(namespace("web-shop"), Ok("web-shop".to_owned()));
        assert!(
            namespace("Web_Shop")
                .unwrap_err()
                .contains("did you mean web-shop?")
        );
        assert!(namespace("__").unwrap_err().contains("as in web-shop"));
        assert!(glob("").unwrap_err().contains("the pattern is empty"));
    }

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let read = |text| {
            let each = |e: LabelExpression| format!("{} {} {}", e.key, e.operator, e.values.join("|"));
            selector(text).map(|s| {
                let all: Vec<String> = s.match_expressions.into_iter().map(each).collect();
                all.join("; ")
            })
        };
        assert_eq!(
            read("team=a, tier!=b,c==d,e,!f").as_deref(),
            Ok("team In a; tier NotIn b; c In d; e Exists ; f DoesNotExist ")
        );
        for bad in ["", "=a", "a in (b)", "a=b,"] {
            assert!(selector(bad).is_err(), "{bad}");
        }
    }
}
