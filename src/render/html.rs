//! The HTML report of a scan: one file that needs no network. Renders only; evaluates nothing.

mod cards;
mod findings;
mod matrix;
mod namespaces;
mod plan;
mod security;
mod timeline;
mod workloads;

use std::fmt;
use std::io::{self, Write};

use askama::Template;
use jiff::civil::Date;

use self::cards::{Card, cards};
use self::findings::Crosstab;
use self::matrix::Matrix;
use self::namespaces::{NamespaceRow, most_denials_first};
use self::plan::PlanSection;
use self::timeline::Timeline;
use self::workloads::{Choices, WorkloadCard, worst_first};
use crate::model::syntax::text::one_line;
use crate::plan::UpgradePlan;
use crate::rules::documentation::DocumentationUrl;
use crate::scan::report::ScanReport;

/// Renders bars from tables.
const CHARTS: &str = include_str!("html/assets/charts.css-1.2.0/charts.min.css");
/// Sorts tables.
const TABLESORT: &str = include_str!("html/assets/tablesort-5.7.1/tablesort.min.js");
/// The colours and fonts, which the playground has too.
const PALETTE: &str = include_str!("html/assets/palette.css");
const STYLE: &str = include_str!("html/assets/page.css");
/// The behaviour of the page: filters, sorting, the theme.
const SCRIPT: &str = include_str!("html/assets/page.js");
/// Applies the stored theme before the page is rendered.
const THEME: &str = include_str!("html/assets/theme.js");

/// The whole page. The template escapes every value that is not marked as safe.
#[derive(Template)]
#[template(path = "page.html")]
struct HtmlPage<'r> {
    security: String,
    style: String,
    theme: String,
    script: String,
    version: &'static str,
    report: &'r ScanReport,
    made: String,
    today: Date,
    cards: Vec<Card>,
    timeline: Timeline,
    matrix: Matrix,
    crosstab: Crosstab<'r>,
    choices: Choices<'r>,
    workloads: Vec<WorkloadCard<'r>>,
    namespaces: Vec<NamespaceRow<'r>>,
    plan: Option<&'r PlanSection<'r>>,
}

/// Writes the page of a report, with an upgrade plan if there is one, and with links to rules if their documentation is
/// published.
///
/// # Errors
/// The errors of the writer.
pub fn page(
    report: &ScanReport,
    plan: Option<&UpgradePlan>,
    documentation: Option<&DocumentationUrl>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let timeline = Timeline::of(report, report.today);
    let plan = plan.map(PlanSection::of);
    let of_plan = plan.as_ref().map(PlanSection::style);
    let style = [
        CHARTS,
        PALETTE,
        STYLE,
        &timeline.style(),
        &of_plan.unwrap_or_default(),
    ]
    .map(plain)
    .join("\n");
    let theme = plain(THEME);
    let workloads = worst_first(report);
    let script = [TABLESORT, SCRIPT].map(plain).join("\n");
    let page = HtmlPage {
        security: security::policy(&style, &[&theme, &script]),
        style,
        theme,
        script,
        version: env!("CARGO_PKG_VERSION"),
        report,
        made: report.created_at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        today: report.today,
        cards: cards(report),
        timeline,
        matrix: Matrix::of(report),
        crosstab: Crosstab::of(report, documentation),
        choices: Choices::of(&workloads),
        workloads,
        namespaces: most_denials_first(report),
        plan: plan.as_ref(),
    };
    let mut lines = HtmlLines { out, failed: None };
    match (page.render_into(&mut lines), lines.failed) {
        (_, Some(failed)) => Err(failed),
        (Err(error), None) => Err(io::Error::other(error)),
        (Ok(()), None) => Ok(()),
    }
}

/// An asset as a browser hashes it: without the carriage returns that a checkout may have added.
fn plain(asset: &str) -> String {
    asset.replace('\r', "")
}

/// Writes text line by line, without characters that change the writing direction or have no width.
struct HtmlLines<'w> {
    out: &'w mut dyn Write,
    failed: Option<io::Error>,
}

impl fmt::Write for HtmlLines<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        for line in piece.split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
            let written = (self.out.write_all(one_line(text).as_bytes()))
                .and_then(|()| self.out.write_all(end.as_bytes()));
            if let Err(error) = written {
                self.failed = Some(error);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// The name of a build: its release, if it has one.
fn release_name(build: crate::model::windows::build::Build) -> &'static str {
    build
        .release()
        .map_or("no release of Windows Server", |release| release.product)
}

#[cfg(test)]
mod tests;
