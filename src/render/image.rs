//! What images are, as text for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::table::TextTable;
use super::text::BOLD;
use crate::image_report::{
    BaseReport, ImageReport, ImageReports, ImageStatus, IsolationReport, NameReport, NodeReport,
    ReleaseReport, Runs, VariantReport, cached_note,
};
use crate::model::syntax::text::{cut_middle, list, one_line, size_text, wrap};
use crate::model::windows::image_facts::short_digest;

/// The maximum length of a command, and of each volume, in characters.
const LONGEST: usize = 400;
/// How many platforms with the same configuration are listed.
const PLATFORMS: usize = 4;
/// How many volumes are listed.
const VOLUMES: usize = 20;

/// Writes what each image is. `nodes`: the maximum number of names in a group of nodes. `width`: the width of the
/// terminal, if it is one; digests and tables that do not fit are shortened.
///
/// # Errors
/// The errors of the writer.
pub fn image_text(
    reports: &ImageReports,
    nodes: usize,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let width = width.unwrap_or(TextTable::WIDTH);
    for (index, report) in reports.images.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_image(report, nodes, width, out)?;
    }
    Ok(())
}

fn write_image(report: &ImageReport, nodes: usize, width: usize, out: &mut dyn Write) -> io::Result<()> {
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
    if let Some(name) = &report.by_name {
        writeln!(out, "  {}", name_text(name))?;
    }
    if report.variants.is_empty() && report.releases.is_empty() {
        return Ok(());
    }
    if !report.variants.is_empty() {
        writeln!(out)?;
        write_variants(&report.variants, width, out)?;
        write_configurations(&report.variants, width, out)?;
    }
    if report.is_without_windows {
        return Ok(());
    }
    write_releases(report, width, out)?;
    match &report.nodes {
        Some(all) => write_nodes(all, nodes, width, out),
        None => Ok(()),
    }
}

/// What the name of an image shows.
fn name_text(name: &NameReport) -> String {
    let platforms: Vec<String> = name
        .builds
        .iter()
        .map(|build| format!("{}({build})", name.os))
        .collect();
    let platforms = if platforms.is_empty() {
        name.os.to_owned()
    } else {
        platforms.join(", ")
    };
    let certainty = if name.is_certain {
        "Microsoft publishes this tag for this build only"
    } else {
        "the registry may have other variants"
    };
    format!("by its name, as plan reads it: {platforms}; {certainty}")
}

/// The table in the first of these forms that fits, or in the last one.
fn first_that_fits<T: Copy, const N: usize>(forms: [T; N], table: impl Fn(T) -> TextTable) -> TextTable {
    let mut last = TextTable::new(Vec::new());
    for form in forms {
        last = table(form);
        if last.fits() {
            break;
        }
    }
    last
}

/// How much of a digest is written.
#[derive(Clone, Copy)]
enum DigestForm {
    Whole,
    /// The algorithm and the first digits.
    Short,
    /// The first digits, as docker lists images.
    Digits,
}

impl DigestForm {
    fn of(self, digest: &str) -> &str {
        let short = short_digest(digest);
        match self {
            DigestForm::Whole => digest,
            DigestForm::Short => short,
            DigestForm::Digits => short.split_once(':').map_or(short, |(_, digits)| digits),
        }
    }
}

fn write_variants(variants: &[VariantReport], width: usize, out: &mut dyn Write) -> io::Result<()> {
    let forms = [DigestForm::Whole, DigestForm::Short, DigestForm::Digits];
    let table = first_that_fits(forms, |form| {
        let headings = ["PLATFORM", "SIZE", "DIGEST"].map(str::to_owned);
        let mut table = TextTable::new(headings.into()).within(width).cutting(&[0, 2]);
        for variant in variants {
            table.row(vec![
                one_line(&variant.platform()).into_owned(),
                variant.size.map_or_else(|| "-".to_owned(), size_text),
                one_line(form.of(&variant.digest)).into_owned(),
            ]);
        }
        table
    });
    table.write(out)
}

/// Writes each configuration once, with the platforms that have it.
fn write_configurations(variants: &[VariantReport], width: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut written = Vec::new();
    for variant in variants {
        let Some(found) = VariantConfiguration::of(variant) else {
            continue;
        };
        if written.contains(&found) {
            continue;
        }
        let has_it = |other: &&VariantReport| VariantConfiguration::of(other).as_ref() == Some(&found);
        let same = variants.iter().filter(has_it).map(VariantReport::platform);
        writeln!(out)?;
        for line in wrap(&one_line(&list(same, PLATFORMS)), width.saturating_sub(2)).lines() {
            writeln!(out, "  {line}")?;
        }
        found.write(out)?;
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

/// The configuration of a variant, if it was read.
#[derive(PartialEq)]
struct VariantConfiguration<'v> {
    user: &'v str,
    volumes: &'v [String],
    command: &'v [String],
    is_windows: bool,
    base: Option<&'v BaseReport>,
}

impl<'v> VariantConfiguration<'v> {
    fn of(variant: &'v VariantReport) -> Option<Self> {
        Some(VariantConfiguration {
            user: variant.user.as_deref()?,
            volumes: variant.volumes.as_deref()?,
            command: variant.command.as_deref()?,
            is_windows: variant.os == "windows",
            base: variant.base.as_ref(),
        })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let shown = |text: &str| match one_line(&cut_middle(text, LONGEST, LONGEST / 4)) {
            none if none.is_empty() => "not set".to_owned(),
            shown => shown.into_owned(),
        };
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        writeln!(out, "    user     {}", shown(self.user))?;
        if !self.volumes.is_empty() {
            writeln!(out, "    volumes  {}", one_line(&list(self.volumes, VOLUMES)))?;
        }
        writeln!(out, "    command  {}", shown(&words.join(" ")))?;
        match self.base {
            Some(base) => {
                writeln!(out, "    base     {} of {}", base.os_version, base.date)?;
                match base.current_tag {
                    Some(tag) => writeln!(out, "             newest update: the tag {tag} of its base"),
                    None => Ok(()),
                }
            }
            None if self.is_windows => {
                writeln!(out, "    base     not known: no Windows layer in the history")
            }
            None => Ok(()),
        }
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

fn write_releases(report: &ImageReport, width: usize, out: &mut dyn Write) -> io::Result<()> {
    if report.releases.is_empty() {
        return writeln!(
            out,
            "\n  no Windows release runs it: it has no variant for Windows"
        );
    }
    let of_windows = report.variants.iter().filter(|variant| variant.os == "windows");
    let by_name = report.by_name.as_ref().map_or(0, |name| name.builds.len());
    let versions = of_windows.count() + by_name;
    let may_run = |isolation: &IsolationReport| matches!(isolation.runs, Runs::Yes | Runs::Disputed);
    let is_shown = |release: &&ReleaseReport| {
        release.is_long_term || may_run(&release.process) || may_run(&release.hyper_v)
    };
    // The release implies its build.
    let table = first_that_fits([true, false], |has_build| {
        let headings: &[&str] = if has_build {
            &[
                "WINDOWS RELEASE",
                "BUILD",
                "PROCESS ISOLATION",
                "HYPER-V ISOLATION",
            ]
        } else {
            &["RELEASE", "PROCESS ISOLATION", "HYPER-V ISOLATION"]
        };
        let headings = headings.iter().map(|heading| (*heading).to_owned());
        let mut table = TextTable::new(headings.collect()).within(width);
        for release in report.releases.iter().filter(is_shown) {
            let mut cells = vec![release.release.to_owned()];
            cells.extend(has_build.then(|| release.build.clone()));
            cells.push(isolation_text(&release.process, versions > 1));
            cells.push(isolation_text(&release.hyper_v, versions > 1));
            table.row(cells);
        }
        table
    });
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

fn write_nodes(all: &[NodeReport], most: usize, width: usize, out: &mut dyn Write) -> io::Result<()> {
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
    let groups = node_groups(all);
    // The names are below their row if they do not fit next to it; after that, the versions of the variants are omitted.
    let forms = [(true, true), (false, true), (false, false)];
    let table = first_that_fits(forms, |(has_names, has_versions)| {
        let headings = ["BUILD", "PROCESS ISOLATION", "HYPER-V ISOLATION", "NODES"].map(str::to_owned);
        let columns = if has_names { 4 } else { 3 };
        let mut table = TextTable::new(headings.into_iter().take(columns).collect()).within(width);
        for ((answers, reason), names) in &groups {
            let without_version = |cell: &String| cell.split(',').next().unwrap_or_default().to_owned();
            let mut cells = if has_versions {
                answers.to_vec()
            } else {
                answers.iter().map(without_version).collect()
            };
            let names = list(names, most);
            if has_names {
                cells.push(names);
                table.row_with_details(cells, reason);
            } else {
                table.row_with_details(cells, &names);
                table.details(reason);
            }
        }
        table
    });
    table.write(out)
}

/// The names of the nodes by their build, the answers for it and the reason.
fn node_groups(all: &[NodeReport]) -> BTreeMap<([String; 3], String), Vec<String>> {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for node in all {
        let answers = [
            node.build.clone().unwrap_or_else(|| "not known".to_owned()),
            isolation_text(&node.process, true),
            isolation_text(&node.hyper_v, true),
        ];
        let name = if node.is_pool {
            format!("{} (pool)", node.name)
        } else {
            node.name.clone()
        };
        let key = (answers, node.reason.clone().unwrap_or_default());
        groups.entry(key).or_default().push(one_line(&name).into_owned());
    }
    groups
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::civil::date;

    use super::*;
    use crate::model::cluster::facts::Facts;
    use crate::model::objects::object::{Object, ReviewStage};
    use crate::model::objects::workload::Kind;
    use crate::model::windows::image_facts::{ImageConfig, ImageFacts, ImageVariant, WindowsBase};

    /// An image with two Windows variants, and six nodes.
    fn reports() -> ImageReports {
        let mut facts = Facts::new(36, date(2026, 6, 1));
        for number in 0..6 {
            let node = format!(
                r#"{{"metadata": {{"name": "aks-windows-pool-{number}"}},
                "status": {{"nodeInfo": {{"operatingSystem": "windows", "kernelVersion": "10.0.17763.6293"}}}}}}"#
            );
            facts.learn(&Object::parse(Kind::Node, &node, ReviewStage::Stored).unwrap());
        }
        let variant = |version: &str| ImageVariant {
            digest: format!("sha256:{}", "0123456789abcdef".repeat(4)),
            size: Some(3 << 20),
            config: Some(ImageConfig {
                user: "ContainerUser".to_owned(),
                volumes: vec!["c:\\data".to_owned()],
                command: vec!["app.exe".to_owned()],
                base: WindowsBase::of_history("Install update 10.0.20348.2700", "2024-09-06T22:11:41Z"),
            }),
            ..ImageVariant::new("windows", "amd64", version)
        };
        let variants = vec![variant("10.0.17763.6293"), variant("10.0.20348.2700")];
        let image = ImageFacts::of(variants, Timestamp::UNIX_EPOCH);
        let report = ImageReport::new(
            "corp.example/shop/billing:1.4",
            Ok(&image),
            false,
            None,
            Some(facts.hosts()),
        );
        ImageReports {
            schema: "test",
            images: vec![report],
        }
    }

    fn text(width: Option<usize>) -> String {
        let mut out = Vec::new();
        image_text(&reports(), 50, width, &mut anstream::StripStream::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_fits_the_terminal_and_digests_are_as_long_as_they_can_be() {
        let whole = "0123456789abcdef".repeat(4);
        let digest = |width| {
            let text = text(Some(width));
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}\n{text}");
            }
            let row = text.lines().find(|line| line.contains("3.0 MiB")).unwrap();
            row.rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(digest(120), format!("sha256:{whole}"));
        assert_eq!(digest(80), "sha256:0123456789ab");
        assert_eq!(digest(60), "0123456789ab");
        assert_eq!(text(None), text(Some(120)));
    }
}
