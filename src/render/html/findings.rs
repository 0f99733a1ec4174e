//! Findings by rule and namespace: the number, and the worst severity.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::cluster::severity::Severity;
use crate::rules;
use crate::rules::documentation::DocumentationUrl;
use crate::scan::report::ScanReport;
use crate::scan::{FindingOutcome, FindingResult};

/// The number of namespaces with their own column; the others share one.
const MOST_COLUMNS: usize = 12;

/// Whether a finding is counted: findings that admission fixes or an exemption covers are not.
pub(super) fn counts(found: &FindingResult) -> bool {
    !matches!(found.outcome, FindingOutcome::Fixed | FindingOutcome::Exempted)
}

/// The number of findings and their worst severity.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) count: usize,
    pub(super) worst: Severity,
}

impl Cell {
    fn add(cell: &mut Option<Cell>, severity: Severity) {
        let (count, worst) = cell.map_or((0, severity), |cell| (cell.count, cell.worst));
        *cell = Some(Cell {
            count: count + 1,
            worst: worst.max(severity),
        });
    }

    /// The symbol of its severity.
    pub(super) fn mark(&self) -> &'static str {
        mark(self.worst)
    }
}

/// The symbol of a severity; it is shown next to the name.
pub(super) fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "▲",
        Severity::Warning => "●",
        Severity::Advice => "○",
    }
}

/// One rule.
pub(super) struct FindingsLine<'r> {
    pub(super) rule: &'static str,
    pub(super) id: &'static str,
    /// The link to its documentation, if that is published.
    pub(super) url: Option<String>,
    /// The namespaces with a column, and the findings in each.
    pub(super) cells: Vec<(&'r str, Option<Cell>)>,
    /// The findings in the namespaces without a column.
    pub(super) others: Option<Cell>,
    pub(super) total: Cell,
}

pub(super) struct Crosstab<'r> {
    /// The namespaces with a column, by name.
    pub(super) namespaces: Vec<&'r str>,
    /// How many namespaces share the last column.
    pub(super) others: usize,
    /// The rules, worst first, then the most frequent.
    pub(super) lines: Vec<FindingsLine<'r>>,
}

impl<'r> Crosstab<'r> {
    /// The table of all counted findings.
    pub(super) fn of(report: &'r ScanReport, documentation: Option<&DocumentationUrl>) -> Crosstab<'r> {
        let counted = || {
            (report.owners.iter()).flat_map(|owner| {
                let found = owner.findings.iter().filter(|found| counts(found));
                found.map(|found| (owner.namespace.as_str(), found))
            })
        };
        let (namespaces, others) = columns(counted().map(|(namespace, _)| namespace));
        let mut lines: BTreeMap<&str, FindingsLine<'_>> = BTreeMap::new();
        for (namespace, found) in counted() {
            let line = lines.entry(found.rule).or_insert_with(|| FindingsLine {
                rule: found.rule,
                id: found.id,
                url: documentation.and_then(|published| Some(published.of_rule(rules::find(found.id)?))),
                cells: namespaces.iter().map(|name| (*name, None)).collect(),
                others: None,
                total: Cell {
                    count: 0,
                    worst: found.severity,
                },
            });
            line.total.count += 1;
            line.total.worst = line.total.worst.max(found.severity);
            let column = namespaces.binary_search(&namespace).ok();
            let cell = match column.and_then(|at| line.cells.get_mut(at)) {
                Some((_, cell)) => cell,
                None => &mut line.others,
            };
            Cell::add(cell, found.severity);
        }
        let mut lines: Vec<FindingsLine<'_>> = lines.into_values().collect();
        lines.sort_by_key(|line| Reverse((line.total.worst, line.total.count)));
        Crosstab {
            namespaces,
            others,
            lines,
        }
    }
}

/// The namespaces with the most findings, by name, and the number of the other namespaces.
fn columns<'r>(of_findings: impl Iterator<Item = &'r str>) -> (Vec<&'r str>, usize) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for namespace in of_findings {
        *numbers.entry(namespace).or_default() += 1;
    }
    let mut numbers: Vec<(&str, usize)> = numbers.into_iter().collect();
    let mut others = 0;
    if numbers.len() > MOST_COLUMNS {
        numbers.sort_by_key(|(_, number)| Reverse(*number));
        others = numbers.len() - (MOST_COLUMNS - 1);
        numbers.truncate(MOST_COLUMNS - 1);
    }
    let mut names: Vec<&str> = numbers.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    (names, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_with_the_most_findings_have_columns() {
        let names: Vec<String> = (0..14).map(|at| format!("n{at:02}")).collect();
        let findings = names
            .iter()
            .enumerate()
            .flat_map(|(at, name)| vec![name.as_str(); at + 1]);
        let (columns, others) = columns(findings);
        assert_eq!((columns.len(), others), (11, 3));
        assert_eq!(columns.first(), Some(&"n03"));
        assert!(columns.is_sorted());
    }

    #[test]
    fn twelve_namespaces_need_no_column_of_others() {
        let names: Vec<String> = (0..12).map(|at| format!("n{at:02}")).collect();
        let (columns, others) = columns(names.iter().map(String::as_str));
        assert_eq!((columns.len(), others), (12, 0));
    }
}
