//! A drain as text for people: what it will do, and how it ended.

use std::io::{self, Write};

use super::table::TextTable;
use super::text::BOLD;
use crate::drain::{DrainReport, DrainResult, DrainedNode, LackingImage, Outage};
use crate::model::syntax::text::{count, list, one_line, shell_word, size_text};

/// How many names are listed.
const NAMES: usize = 4;

/// Writes what a drain will do, before it begins.
///
/// # Errors
/// The errors of the writer.
pub fn drain_text(report: &DrainReport, out: &mut dyn Write) -> io::Result<()> {
    let to = report.to.map_or_else(String::new, |to| format!(", to {to}"));
    writeln!(
        out,
        "{BOLD}{}, in this order{to}{BOLD:#}",
        count(report.nodes.len(), "node")
    )?;
    for node in &report.nodes {
        write_node(report, node, out)?;
    }
    writeln!(
        out,
        "{} to move; {} of DaemonSets, static or not selected stay",
        count(report.pods.len(), "pod"),
        count(report.ignored, "pod")
    )?;
    for outage in Outage::lines(&report.outages) {
        writeln!(out, "outage: {}", one_line(&outage))?;
    }
    write_images(&report.lacking_images, out)?;
    if let Some(nodes) = report.nodes_to_add.filter(|nodes| *nodes > 0) {
        writeln!(
            out,
            "by the requests of the pods, at least {} must be added",
            count(nodes, "node")
        )?;
    }
    for note in &report.notes {
        writeln!(out, "note: {}", one_line(note))?;
    }
    Ok(())
}

fn write_node(report: &DrainReport, node: &DrainedNode, out: &mut dyn Write) -> io::Result<()> {
    let pods = report.pods.iter().filter(|pod| pod.node == node.name);
    let names = pods.map(|pod| format!("{}/{}", pod.namespace, pod.name));
    let names: Vec<String> = names.collect();
    let shown = if names.is_empty() {
        "no pods to move".to_owned()
    } else {
        list(&names, NAMES)
    };
    let line = format!("  {} ({}): {shown}", node.name, node.pool);
    writeln!(out, "{}", one_line(&line))
}

fn write_images(images: &[LackingImage], out: &mut dyn Write) -> io::Result<()> {
    if images.is_empty() {
        return Ok(());
    }
    writeln!(out, "images that nodes must pull first:")?;
    let headings = ["IMAGE", "POOL", "NODES", "SIZE"].map(str::to_owned);
    let mut table = TextTable::new(headings.into());
    for image in images {
        table.row(vec![
            one_line(&image.image).into_owned(),
            one_line(&image.pool).into_owned(),
            list(&image.nodes, NAMES),
            image.size.map_or_else(|| "unknown".to_owned(), size_text),
        ]);
    }
    table.write(out)?;
    let mut pools: Vec<&str> = images.iter().map(|image| image.pool.as_str()).collect();
    pools.dedup();
    for pool in pools {
        writeln!(
            out,
            "to pull them: transom generate image-pulls -o daemonset --pool {} | kubectl apply -n NAMESPACE -f -",
            shell_word(pool)
        )?;
    }
    Ok(())
}

/// Writes how a drain ended and, if it changed something, the commands that continue and that go back. `back`: `None` if
/// nothing was cordoned.
///
/// # Errors
/// The errors of the writer.
pub fn drain_end(
    report: &DrainReport,
    again: &str,
    back: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let reason = report.reason.as_deref().unwrap_or_default();
    let when = match report.result {
        DrainResult::Done => return writeln!(out, "done"),
        DrainResult::Planned => return writeln!(out, "dry run: nothing was changed"),
        DrainResult::Stopped => {
            writeln!(out, "stopped: {}", one_line(reason))?;
            " when the cause is removed"
        }
        DrainResult::Interrupted => {
            let evictions = if report.has_changes() {
                "; evictions that were accepted continue"
            } else {
                ""
            };
            writeln!(out, "interrupted{evictions}")?;
            ""
        }
    };
    // The same command would stop for the same reason.
    if !report.has_changes() {
        return writeln!(out, "nothing was changed");
    }
    writeln!(out, "to continue{when}: {again}")?;
    back.map_or(Ok(()), |back| writeln!(out, "to go back: {back}"))
}

#[cfg(test)]
mod tests;
