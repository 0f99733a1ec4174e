//! What changed since an earlier report, as text: what is new, what is gone, and what has another outcome.

use std::io::{self, Write};

use super::super::text::{BOLD, help, labelled, style_of};
use super::view::{ScanView, outcome};
use crate::model::syntax::text::{count, one_line};
use crate::scan::report::{ChangedItems, ComparedFinding, ComparedOwner, PodFinding, ScanChanges};

/// Writes the changes.
///
/// # Errors
/// The errors of the writer.
pub(super) fn changes_text(changes: &ScanChanges, shown: ScanView, out: &mut dyn Write) -> io::Result<()> {
    ChangesText {
        shown,
        hidden: 0,
        out,
    }
    .write(changes)
}

struct ChangesText<'w> {
    shown: ScanView,
    /// How much advice was not shown.
    hidden: usize,
    out: &'w mut dyn Write,
}

/// A list of changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeList {
    New,
    Gone,
    OtherOutcome,
}

impl ChangesText<'_> {
    fn write(mut self, changes: &ScanChanges) -> io::Result<()> {
        let since = changes.since.strftime("%Y-%m-%d %H:%M UTC");
        writeln!(self.out, "{BOLD}since {since}{BOLD:#}: {}", totals(changes))?;
        for note in &changes.notes {
            writeln!(self.out, "  {}", one_line(note))?;
        }
        writeln!(self.out)?;
        self.list("new", ChangeList::New, &changes.new)?;
        self.list("gone", ChangeList::Gone, &changes.gone)?;
        let changed = ChangedItems {
            owners: changes.changed.clone(),
            pods: Vec::new(),
        };
        self.list("with another outcome", ChangeList::OtherOutcome, &changed)?;
        if self.hidden > 0 {
            writeln!(self.out, "{} advice not shown; --advice shows it\n", self.hidden)?;
        }
        Ok(())
    }

    fn list(&mut self, heading: &str, list: ChangeList, items: &ChangedItems) -> io::Result<()> {
        if items.owners.is_empty() && items.pods.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{BOLD}{heading}{BOLD:#}")?;
        let (rows, mut written) = (self.shown.rows, 0);
        for pod in items.pods.iter().take(rows) {
            self.pod(list, pod)?;
            written += 1;
        }
        for owner in &items.owners {
            let shown = owner.findings.iter().filter(|found| self.is_shown(found));
            let shown: Vec<&ComparedFinding> = shown.collect();
            self.hidden += owner.findings.len() - shown.len();
            if owner.in_both && shown.is_empty() {
                continue;
            }
            written += 1;
            if written <= rows {
                self.owner(list, owner, &shown)?;
            }
        }
        if written > rows {
            writeln!(self.out, "  and {} more; --limit 0 shows all", written - rows)?;
        }
        writeln!(self.out)
    }

    fn is_shown(&self, found: &ComparedFinding) -> bool {
        self.shown.shows(found.severity, found.outcome, found.would_deny)
    }

    fn owner(
        &mut self,
        list: ChangeList,
        owner: &ComparedOwner,
        shown: &[&ComparedFinding],
    ) -> io::Result<()> {
        let ComparedOwner {
            kind,
            namespace,
            name,
            ..
        } = owner;
        let represented = owner
            .owner
            .as_ref()
            .map(|owner| format!(" of {} {}", owner.kind, owner.name));
        let title = format!("{kind} {namespace}/{name}{}", represented.unwrap_or_default());
        let whole = match list {
            _ if owner.in_both => "",
            ChangeList::Gone => ", which is no longer listed",
            ChangeList::New | ChangeList::OtherOutcome => ", which was not listed",
        };
        writeln!(self.out, "  {BOLD}{}{BOLD:#}{whole}", one_line(&title))?;
        for found in shown {
            self.finding(list, found)?;
        }
        Ok(())
    }

    fn finding(&mut self, list: ChangeList, found: &ComparedFinding) -> io::Result<()> {
        let style = style_of(found.severity);
        let former = found
            .former_outcome
            .map(|former| format!("{}, now ", outcome(former)));
        writeln!(
            self.out,
            "    {style}{}[{} {}]{style:#} ({}{}){BOLD}: {}{BOLD:#}",
            found.severity,
            one_line(&found.id),
            one_line(&found.rule),
            former.unwrap_or_default(),
            outcome(found.outcome),
            one_line(&found.message)
        )?;
        labelled(self.out, 6, "field:", &found.path)?;
        match list {
            ChangeList::Gone => Ok(()),
            ChangeList::New | ChangeList::OtherOutcome => help(self.out, 6, &found.remedy),
        }
    }

    fn pod(&mut self, list: ChangeList, pod: &PodFinding) -> io::Result<()> {
        let owner = pod.owner.as_ref().map(|owner| format!(" of {owner}"));
        let title = format!("Pod {}/{}{}", pod.namespace, pod.name, owner.unwrap_or_default());
        writeln!(
            self.out,
            "  {BOLD}{}{BOLD:#}: {}",
            one_line(&title),
            one_line(&pod.message)
        )?;
        match list {
            ChangeList::Gone => Ok(()),
            ChangeList::New | ChangeList::OtherOutcome => help(self.out, 4, &pod.remedy),
        }
    }
}

/// How much changed, as the end of a sentence.
fn totals(changes: &ScanChanges) -> String {
    let findings = |owners: &[ComparedOwner]| owners.iter().map(|owner| owner.findings.len()).sum::<usize>();
    let whole = |owners: &[ComparedOwner]| owners.iter().filter(|owner| !owner.in_both).count();
    let ChangedItems {
        owners: new,
        pods: new_pods,
    } = &changes.new;
    let ChangedItems {
        owners: gone,
        pods: gone_pods,
    } = &changes.gone;
    let parts = [
        (findings(new), "finding", "new"),
        (findings(gone), "finding", "gone"),
        (findings(&changes.changed), "finding", "with another outcome"),
        (whole(new), "object", "not listed before"),
        (whole(gone), "object", "no longer listed"),
        (new_pods.len(), "pod problem", "new"),
        (gone_pods.len(), "pod problem", "gone"),
    ];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, noun, what)| format!("{} {what}", count(number, noun)))
        .collect();
    if parts.is_empty() {
        return "nothing changed".to_owned();
    }
    parts.join(", ")
}
