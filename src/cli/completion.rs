//! `transom completion`: completion scripts for shells.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::Cli;

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(transom completion bash)
  transom completion zsh > \"${fpath[1]}/_transom\"
  transom completion powershell | Out-String | Invoke-Expression")]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "transom", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
