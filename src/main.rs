//! The `transom` program: arguments in, exit status out.

use std::process::ExitCode;

use clap::Parser as _;
use transom::cli::{Cli, run};

fn main() -> ExitCode {
    // One provider for the whole process; a second installation only ever finds the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            anstream::eprintln!("transom: {error:#}");
            ExitCode::from(2)
        }
    }
}
