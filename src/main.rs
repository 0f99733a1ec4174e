//! The `transom` program: arguments in, exit status out.

// A full disk or a closed pipe would be a panic.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser as _;
use transom::cli::{Cli, run};
use transom::process::panic_writer;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // One provider for the whole process; a second installation only ever finds the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse()) {
        Ok(status) => status,
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            panic_writer::write_line(format!("error: {error:#}\n"));
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
