//! What a long command shows on a terminal while it runs.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::cli::is_quiet;

/// A line on standard error, where that is a terminal.
pub struct Progress(ProgressBar);

/// A bar of this length, or a line if there is none. indicatif draws on standard error, and draws nothing if that is not a
/// terminal.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    if is_quiet() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        Progress(bar(None, "{spinner} {msg}, {elapsed}"))
    }

    /// Shows this text on the line.
    pub fn show(&self, text: &str) {
        self.0.set_message(text.to_owned());
        self.0.tick();
    }

    /// Writes to standard output without the line.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    /// Shows which objects are read.
    pub fn list(&self, resource: &str, objects: usize, left: Option<u64>) {
        let objects = HumanCount(objects as u64);
        self.show(&match left {
            Some(left) => format!(
                "reading {resource}: {objects} objects, {} left of these",
                HumanCount(left)
            ),
            None => format!("reading {resource}: {objects} objects"),
        });
    }

    /// Removes the line from the terminal.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }

    /// Shows the line again after [`Progress::end`].
    pub fn begin(&self) {
        self.0.reset();
    }
}
