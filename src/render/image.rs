//! What images are, as text for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::table::TextTable;
use super::text::BOLD;
use crate::image_report::{
    ImageReport, ImageReports, ImageStatus, IsolationReport, NodeReport, ReleaseReport, Runs, VariantReport,
    cached_note,
};
use crate::model::text::{cut_middle, list, one_line};

/// The maximum length of a command, and of each volume, in characters.
const LONGEST: usize = 400;
/// How many platforms with the same configuration are listed.
const PLATFORMS: usize = 4;
/// How many volumes are listed.
const VOLUMES: usize = 20;

/// Writes what each image is. `nodes`: the maximum number of names in a group of nodes.
///
/// # Errors
/// The errors of the writer.
pub fn image_text(reports: &ImageReports, nodes: usize, out: &mut dyn Write) -> io::Result<()> {
    for (index, report) in reports.images.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_image(report, nodes, out)?;
    }
    Ok(())
}

fn write_image(report: &ImageReport, nodes: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", one_line(&report.reference))?;
    if let Some(message) = &report.message {
        let what = match report.status {
            ImageStatus::Unknown => "not known: ",
            ImageStatus::Found | ImageStatus::Missing => "",
        };
        let source = match (report.status, report.looked_up) {
            (ImageStatus::Missing, Some(looked_up_at)) if report.cached && report.digest.is_none() => {
                cached_note(looked_up_at)
            }
            _ => String::new(),
        };
        writeln!(out, "  {what}{}{source}", one_line(message))?;
    }
    if let (Some(digest), Some(looked_up)) = (&report.digest, report.looked_up) {
        let source = if report.cached {
            "from the cache, looked up"
        } else {
            "looked up"
        };
        writeln!(out, "  {}", one_line(digest))?;
        writeln!(out, "  {source} {looked_up:.0}")?;
    }
    if report.variants.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    write_variants(&report.variants, out)?;
    write_configurations(&report.variants, out)?;
    if report.is_without_windows {
        return Ok(());
    }
    write_releases(report, out)?;
    match &report.nodes {
        Some(all) => write_nodes(all, nodes, out),
        None => Ok(()),
    }
}

fn write_variants(variants: &[VariantReport], out: &mut dyn Write) -> io::Result<()> {
    let headings = ["PLATFORM", "SIZE", "DIGEST"];
    let mut table = TextTable::new(headings.map(str::to_owned).to_vec()).cutting(&[0, 2]);
    for variant in variants {
        table.row(vec![
            one_line(&variant.platform()).into_owned(),
            variant.size.map_or_else(|| "-".to_owned(), size_text),
            one_line(&variant.digest).into_owned(),
        ]);
    }
    table.write(out)
}

/// A size with one digit after the point, or in bytes if it is less than a kibibyte.
fn size_text(bytes: u64) -> String {
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let (unit, name) = if bytes < 1 << 20 {
        (1 << 10, "KiB")
    } else {
        (1 << 20, "MiB")
    };
    let tenths = (bytes % unit) * 10 / unit;
    format!("{}.{tenths} {name}", bytes / unit)
}

/// Writes each configuration once, with the platforms that have it.
fn write_configurations(variants: &[VariantReport], out: &mut dyn Write) -> io::Result<()> {
    let configuration = |variant: &VariantReport| {
        let VariantReport {
            user,
            volumes,
            command,
            ..
        } = variant.clone();
        Some((user?, volumes?, command?))
    };
    let mut written = Vec::new();
    for variant in variants {
        let Some(found) = configuration(variant) else {
            continue;
        };
        if written.contains(&found) {
            continue;
        }
        let same = variants
            .iter()
            .filter(|other| configuration(other).as_ref() == Some(&found));
        let platforms = list(same.map(VariantReport::platform), PLATFORMS);
        let (user, volumes, command) = &found;
        let shown = |text: &str| one_line(&cut_middle(text, LONGEST, LONGEST / 4)).into_owned();
        let or_none = |text: String| {
            if text.is_empty() {
                "not set".to_owned()
            } else {
                text
            }
        };
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        writeln!(out, "\n  {}", one_line(&platforms))?;
        writeln!(out, "    user     {}", or_none(shown(user)))?;
        if !volumes.is_empty() {
            writeln!(out, "    volumes  {}", one_line(&list(volumes, VOLUMES)))?;
        }
        writeln!(out, "    command  {}", or_none(shown(&words.join(" "))))?;
        written.push(found);
    }
    let is_unread = |variant: &&VariantReport| variant.os == "windows" && variant.user.is_none();
    match variants.iter().filter(is_unread).count() {
        0 => Ok(()),
        1 => writeln!(out, "\n  the configuration of 1 Windows variant was not read"),
        unread => writeln!(
            out,
            "\n  the configurations of {unread} Windows variants were not read; eight are at most"
        ),
    }
}

/// A word of a command, in quotes if it would not be read as one word.
fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("{word:?}")
    } else {
        word.to_owned()
    }
}

fn write_releases(report: &ImageReport, out: &mut dyn Write) -> io::Result<()> {
    if report.releases.is_empty() {
        return writeln!(
            out,
            "\n  no Windows release runs it: it has no variant for Windows"
        );
    }
    let versions = report
        .variants
        .iter()
        .filter(|variant| variant.os == "windows")
        .count();
    let headings = [
        "WINDOWS RELEASE",
        "BUILD",
        "PROCESS ISOLATION",
        "HYPER-V ISOLATION",
    ];
    let mut table = TextTable::new(headings.map(str::to_owned).to_vec());
    let may_run = |isolation: &IsolationReport| matches!(isolation.runs, Runs::Yes | Runs::Disputed);
    let is_shown = |release: &&ReleaseReport| {
        release.is_long_term || may_run(&release.process) || may_run(&release.hyper_v)
    };
    for release in report.releases.iter().filter(is_shown) {
        table.row(vec![
            release.release.to_owned(),
            release.build.clone(),
            isolation_text(&release.process, versions > 1),
            isolation_text(&release.hyper_v, versions > 1),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    let is_unversioned = |variant: &VariantReport| variant.os == "windows" && variant.os_version.is_none();
    if report.variants.iter().any(is_unversioned) {
        writeln!(
            out,
            "  containerd pulls a variant without a readable os.version on every node; whether it runs is not known"
        )?;
    }
    Ok(())
}

/// Whether it runs; with the variant, if there are several.
fn isolation_text(isolation: &IsolationReport, names_variant: bool) -> String {
    let runs = match isolation.runs {
        Runs::Yes => "yes",
        Runs::No => "no",
        Runs::Disputed => "disputed",
        Runs::Unknown => "not known",
    };
    match &isolation.os_version {
        Some(version) if names_variant => format!("{runs}, {version}"),
        _ => runs.to_owned(),
    }
}

fn write_nodes(all: &[NodeReport], most: usize, out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "\n  no Windows node is known");
    }
    let can = |node: &&NodeReport| node.process.runs == Runs::Yes;
    let running = all.iter().filter(can).count();
    writeln!(
        out,
        "\n  {running} of {} Windows nodes run it with process isolation",
        all.len()
    )?;
    // Nodes with the same answer share a row.
    let mut groups: BTreeMap<Vec<String>, (Vec<String>, String)> = BTreeMap::new();
    for node in all {
        let cells = vec![
            node.build.clone().unwrap_or_else(|| "not known".to_owned()),
            isolation_text(&node.process, true),
            isolation_text(&node.hyper_v, true),
            node.reason.clone().unwrap_or_default(),
        ];
        let name = if node.is_pool {
            format!("{} (pool)", node.name)
        } else {
            node.name.clone()
        };
        let (names, reason) = groups.entry(cells).or_default();
        names.push(one_line(&name).into_owned());
        reason.clone_from(&node.reason.clone().unwrap_or_default());
    }
    let headings = ["BUILD", "PROCESS ISOLATION", "HYPER-V ISOLATION", "NODES"];
    let mut table = TextTable::new(headings.map(str::to_owned).to_vec());
    for (mut cells, (names, reason)) in groups {
        cells.truncate(3);
        cells.push(list(names, most));
        table.row_with_details(cells, &reason);
    }
    table.write(out)
}
