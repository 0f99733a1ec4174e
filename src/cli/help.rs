//! The list of commands in `transom --help`, by job.

use std::fmt::Write as _;

use clap::Subcommand as _;
use clap::builder::Styles;

use super::Command;
use crate::model::syntax::text::wrap;

/// The commands by what people come to do; each is in one row.
const JOBS: [(&str, &[&str]); 5] = [
    (
        "Write manifests",
        &["check", "fix", "test", "image", "rules", "explain"],
    ),
    ("Look at a cluster", &["preflight", "scan", "audit-log", "probe"]),
    ("Upgrade Windows nodes", &["plan", "drain", "knowledge"]),
    (
        "Install and run",
        &["demo", "generate", "crds", "serve", "uninstall"],
    ),
    ("Know this program", &["version", "completion"]),
];

/// The columns of a line, and those before the description of a command.
const WIDTH: usize = 100;
const INDENT: usize = 14;

/// The template of the help of the program. clap has no headings for subcommands.
pub fn template() -> String {
    let styles = Styles::styled();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let program = Command::augment_subcommands(clap::Command::new("transom"));
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (job, commands) in JOBS {
        let _ = write!(template, "\n{heading}{job}:{heading:#}");
        for name in commands {
            let about = program.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let about = wrap(&about, WIDTH - INDENT).replace('\n', &format!("\n{:INDENT$}", ""));
            let _ = write!(template, "\n  {literal}{name:10}{literal:#}  {about}");
        }
        template.push('\n');
    }
    let _ = write!(
        template,
        "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    template
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_listed_once() {
        let program = Cli::command();
        let mut commands: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = JOBS.iter().flat_map(|(_, commands)| *commands).copied().collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, commands);
    }
}
