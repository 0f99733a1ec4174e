//! `scan --since`: the earlier report, from its file.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::process::files::{self, Accept};
use crate::scan::changes::EarlierReport;

/// Reads the report of an earlier scan that was limited in the same way.
///
/// # Errors
/// If the file cannot be read, is no report of a scan, or is one of another version or of other objects.
pub(super) fn read(file: &Path, limited_to: &[String]) -> anyhow::Result<EarlierReport> {
    let name = file.display();
    let json = files::read(file, Accept::RegularOrPipe, files::MANIFEST_BYTES)
        .with_context(|| format!("cannot read the earlier report {name} (--since)"))?;
    let earlier = EarlierReport::parse(&json)
        .with_context(|| format!("cannot compare with the earlier report {name} (--since)"))?;
    if earlier.limited_to() != limited_to {
        bail!(
            "cannot compare with the earlier report {name} (--since): it is of {}, and this scan is of {}; use the same \
             --namespace and --selector",
            objects(earlier.limited_to()),
            objects(limited_to)
        );
    }
    Ok(earlier)
}

/// The objects of a scan, in words.
fn objects(limited_to: &[String]) -> String {
    if limited_to.is_empty() {
        return "the whole cluster".to_owned();
    }
    format!("the objects with {}", limited_to.join(", "))
}
