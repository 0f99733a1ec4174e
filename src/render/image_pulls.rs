//! What new nodes pull: as text for people, and as what pulls it ahead of the workloads.

mod objects;

use std::io::{self, Write};

pub use self::objects::{pull_daemon_sets, pull_jobs, pull_list};
use super::table::TextTable;
use super::text::BOLD;
use crate::model::syntax::text::{count, list, one_line, size_text};
use crate::plan::{ImagePull, ImagePulls, PoolPulls, PullTotal};

/// How many workloads of an image are named.
const WORKLOADS: usize = 3;

/// Writes what a new node of each pool pulls. `width`: the width of the terminal, if it is one.
///
/// # Errors
/// The errors of the writer.
pub fn image_pulls_text(pulls: &ImagePulls, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    if pulls.pools.is_empty() {
        writeln!(out, "no Windows node and no pool of Windows nodes is known")?;
    }
    for (index, pool) in pulls.pools.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_pool(pool, width.unwrap_or(TextTable::WIDTH), out)?;
    }
    for note in &pulls.notes {
        writeln!(out, "note: {}", one_line(note))?;
    }
    Ok(())
}

fn write_pool(pool: &PoolPulls, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let build = pool
        .build
        .map_or_else(|| "build unknown".to_owned(), |build| build.to_string());
    let title = format!("{}: {build}, {}", pool.pool, count(pool.nodes, "node"));
    writeln!(out, "{BOLD}{}{BOLD:#}", one_line(&title))?;
    writeln!(out, "  a new node pulls {}", pull_total(&pool.total))?;
    if pool.images.is_empty() {
        return Ok(());
    }
    let headings = ["IMAGE", "RUNS IN", "REPLICAS", "SIZE", "SHARED"].map(str::to_owned);
    let mut table = TextTable::new(headings.into()).within(width).cutting(&[0, 1]);
    for image in &pool.images {
        let cells = vec![
            one_line(&image.image).into_owned(),
            one_line(&list(&image.workloads, WORKLOADS)).into_owned(),
            replicas(image),
            bytes(image.size),
            bytes(image.shared),
        ];
        table.row_with_details(cells, &one_line(image.unknown.as_deref().unwrap_or_default()));
    }
    writeln!(out)?;
    table.write(out)
}

fn replicas(image: &ImagePull) -> String {
    match (image.daemon_set, image.replicas) {
        (true, 0) => "each node".to_owned(),
        (true, replicas) => format!("each node, {replicas}"),
        (false, replicas) => replicas.to_string(),
    }
}

/// A size; one that registries do not tell is never zero.
fn bytes(size: Option<u64>) -> String {
    size.map_or_else(|| "unknown".to_owned(), size_text)
}

/// The sum of what a node pulls, as in `5 images, 4.8 GiB compressed`.
pub(super) fn pull_total(total: &PullTotal) -> String {
    let images = count(total.images, "image");
    let size = size_text(total.bytes);
    match (total.images, total.unknown) {
        (0, _) => "no image of a known Windows workload".to_owned(),
        (_, 0) => format!("{images}, {size} compressed"),
        (all, unknown) if all == unknown => format!("{images} of unknown size"),
        (_, unknown) => {
            format!("{images}, at least {size} compressed: the size of {unknown} is unknown")
        }
    }
}

#[cfg(test)]
mod tests;
