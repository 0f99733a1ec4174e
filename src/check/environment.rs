//! The environment of the checks of this program: all cores, paths of files, and WindowsNodePools.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use transom_core::check::{CheckEnvironment, CheckJob, CheckSettings};

use crate::api::read_node_pool;
use crate::manifest::Document;
use crate::model::nodes::node::Host;
use crate::process::files::absolute;

/// The environment of a program.
struct ProgramEnvironment;

impl CheckEnvironment for ProgramEnvironment {
    fn threads(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get)
    }

    fn run(&self, jobs: Vec<CheckJob<'_>>) {
        thread::scope(|scope| {
            let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
            for thread in threads {
                if let Err(panic) = thread.join() {
                    resume_unwind(panic);
                }
            }
        });
    }

    fn read_node_pool(&self, document: &Document) -> Option<Host> {
        read_node_pool(document).ok()
    }

    fn relative_path(&self, source: &str, folder: &Path) -> Option<PathBuf> {
        let path = absolute(Path::new(source)).ok()?;
        Some(path.strip_prefix(absolute(folder).ok()?).ok()?.to_owned())
    }
}

/// The default settings of a check by this program.
pub fn settings() -> CheckSettings {
    CheckSettings {
        environment: &ProgramEnvironment,
        ..CheckSettings::default()
    }
}
