//! Tests that are skipped because this machine lacks something.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Mutex;

/// Reports skipped tests on the terminal, because the test harness would capture the output. Prints each
/// message once.
pub fn skipped(text: impl Into<String>) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = text.into();
    let mut reported = REPORTED.lock().unwrap();
    if !reported.contains(&text) {
        let _ = writeln!(std::io::stderr(), "{text}");
        reported.insert(text);
    }
}
