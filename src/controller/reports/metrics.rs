//! Metrics about stored objects: findings by namespace, rule and action, with bounded cardinality, and unreadable
//! objects. Computed at each scrape.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use super::finding_counts::Series;
use super::owner_index::OwnerIndex;

/// How many series of findings carry the name of their namespace; the others use [`OVERFLOW`].
pub const MOST_SERIES: usize = 2_000;
/// The namespace label of series beyond the bound.
pub const OVERFLOW: &str = "_overflow";

/// The figures of the leader, if this replica leads. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct StoredFindingMetrics(Arc<watch::Sender<Option<StoredFindingFigures>>>);

/// What the metrics show.
#[derive(Debug)]
pub struct StoredFindingFigures {
    series: BTreeMap<Series, u64>,
    unreadable: usize,
    pending: usize,
}

impl StoredFindingFigures {
    /// The figures of an index.
    pub fn of(index: &OwnerIndex) -> Self {
        StoredFindingFigures {
            series: bounded(index, MOST_SERIES),
            unreadable: index.all_unreadable().len(),
            pending: index.behind(),
        }
    }
}

impl StoredFindingMetrics {
    /// Sets the figures to show; `None`: nothing.
    pub fn show(&self, figures: Option<StoredFindingFigures>) {
        self.0.send_replace(figures);
    }
}

/// Findings by namespace, rule and action, bounded. Namespaces keep their names in alphabetical order until the bound
/// is reached.
fn bounded(index: &OwnerIndex, most: usize) -> BTreeMap<Series, u64> {
    let (mut all, overflow) = (BTreeMap::new(), Arc::from(OVERFLOW));
    for (named, ((namespace, rule, action), count)) in index.series().enumerate() {
        let namespace = if named < most { namespace } else { &overflow };
        *all.entry((Arc::clone(namespace), *rule, *action)).or_default() += count;
    }
    all
}

type Labelled<'l> = ([(&'static str, &'l str); 3], u64);

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: &[Labelled<'_>],
) -> Result<(), Error> {
    let metric_type = ConstGauge::new(0_i64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
    for (labels, value) in values {
        of(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

fn plain(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> Result<(), Error> {
    let value = of(value as u64);
    value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
}

fn of(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Collector for StoredFindingMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let figures = self.0.borrow();
        let Some(figures) = &*figures else {
            return Ok(());
        };
        let labelled = figures.series.iter().map(|((namespace, rule, action), count)| {
            let labels = [
                ("resource_namespace", &**namespace),
                ("rule", *rule),
                ("action", *action),
            ];
            (labels, *count)
        });
        gauge(
            &mut encoder,
            "stored_findings",
            "Findings of stored objects, by effect",
            &labelled.collect::<Vec<Labelled<'_>>>(),
        )?;
        let help = "Stored objects that cannot be parsed";
        plain(&mut encoder, "unparseable_objects", help, figures.unreadable)?;
        let help = "Reports waiting to be written or deleted";
        plain(&mut encoder, "reports_pending", help, figures.pending)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::super::tests::owner_result;
    use super::super::write_queue::ObservationSource;
    use super::*;
    use crate::scan::FindingOutcome;

    #[test]
    fn findings_beyond_the_bound_go_by_overflow() {
        let mut ledger = OwnerIndex::default();
        for namespace in 0..30 {
            let mut one = owner_result(
                &format!("uid-{namespace}"),
                &[FindingOutcome::Denied, FindingOutcome::Audited],
            );
            one.namespace = format!("n{namespace:02}");
            ledger.record_result(&one, ObservationSource::List);
        }
        let all = bounded(&ledger, 20);
        assert_eq!(all.len(), 20 + 2, "{all:?}");
        assert_eq!(all.values().sum::<u64>(), 60);
        let other: u64 = all
            .iter()
            .filter(|((namespace, ..), _)| &**namespace == OVERFLOW)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(other, 40);
    }

    #[test]
    fn nothing_is_shown_by_a_replica_that_does_not_lead() {
        let (gauges, mut registry) = (StoredFindingMetrics::default(), Registry::with_prefix("transom"));
        registry.register_collector(Box::new(gauges.clone()));
        let expose = |registry: &Registry| {
            let mut out = String::new();
            text::encode(&mut out, registry).unwrap();
            out
        };
        assert_eq!(expose(&registry), "# EOF\n");
        let mut index = OwnerIndex::default();
        index.record_result(
            &owner_result("u", &[FindingOutcome::Denied]),
            ObservationSource::List,
        );
        gauges.show(Some(StoredFindingFigures::of(&index)));
        let shown = expose(&registry);
        for line in [
            "transom_stored_findings{resource_namespace=\"shop\",rule=\"run-as-user\",action=\"deny\"} 1",
            "transom_unparseable_objects 0",
            "transom_reports_pending 1",
        ] {
            assert!(shown.lines().any(|it| it == line), "{line}: {shown}");
        }
    }
}
