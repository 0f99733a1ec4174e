//! What templates and pods name of the objects that Transom wrote: RuntimeClasses, and the mirror of the build label. Neither
//! is removed while something names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::stored::ObjectHeadMeta;
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::controller::node_policies::SURVEY_REST;
use crate::controller::node_policies::nodes::plan::LabelUse;
use crate::model::cluster::facts::{Facts, RuntimeClassFacts};
use crate::model::nodes::node::RESTRICTED_BUILD_LABEL;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::text::{list, object_title};
use crate::rules::scheduling::Constraints;

/// How many referring objects are named.
const NAMED: usize = 5;

/// Objects that name something: the first ones, and how many there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Referrers {
    named: Vec<String>,
    count: usize,
}

impl Referrers {
    fn add(&mut self, object: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(object.to_owned());
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for Referrers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(&self.named, NAMED))?;
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What templates and pods name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodReferences {
    /// The objects that name a RuntimeClass, by its name.
    pub classes: BTreeMap<String, Referrers>,
    /// The objects that select nodes by the mirror of the build label.
    pub mirror_label: Referrers,
}

/// Why it is unknown what they name: then nothing may be removed.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum ReferencesError {
    /// Not every object could be read.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// One of them is not what its kind says.
    #[error("cannot read {object}: {reason}")]
    Object {
        /// Its kind, namespace and name.
        object: String,
        reason: String,
    },
}

impl PodReferences {
    /// Reads every template and pod. `configured`: the custom resources that policies add.
    ///
    /// # Errors
    /// If not everything could be read.
    pub async fn read(client: &Client, configured: &[ConfiguredKind]) -> Result<Self, ReferencesError> {
        let survey = WorkloadSurvey::of(client, configured).await?;
        let mut references = Ok(PodReferences::default());
        let note = |kind, json: &str| {
            if let Ok(known) = &mut references
                && let Err(error) = known.note(kind, json)
            {
                references = Err(error);
            }
        };
        survey.for_each(client, note).await?;
        references
    }

    /// Records what an object names. An object that cannot be read may name anything.
    fn note(&mut self, kind: Kind, json: &str) -> Result<(), ReferencesError> {
        let object = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(object) => object,
            // It has no pod at the path that the administrator names.
            Err(_) if matches!(kind, Kind::Configured(_)) => return Ok(()),
            Err(error) => {
                let head = ObjectHeadMeta::of(json);
                return Err(ReferencesError::Object {
                    object: object_title(kind, &head.namespace, &head.name),
                    reason: error.to_string(),
                });
            }
        };
        // An object with several pods is counted once.
        let (mut classes, mut selects_by_mirror) = (BTreeSet::new(), false);
        object.for_each_pod(|object| {
            let Some(pod) = object.pod() else { return };
            classes.extend(pod.runtime_class_name.as_deref().map(str::to_owned));
            selects_by_mirror |= Constraints::new(pod, None).name(RESTRICTED_BUILD_LABEL);
        });
        let name = object_title(kind, &object.namespace, &object.meta.name);
        for class in classes {
            self.classes.entry(class).or_default().add(&name);
        }
        if selects_by_mirror {
            self.mirror_label.add(&name);
        }
        Ok(())
    }
}

/// The references of one pass, read when they are first needed.
pub struct ReferencesOfPass<'p> {
    client: &'p Client,
    configured: &'p [ConfiguredKind],
    read: Option<Result<PodReferences, ReferencesError>>,
}

impl<'p> ReferencesOfPass<'p> {
    /// Nothing is read yet.
    pub fn new(client: &'p Client, configured: &'p [ConfiguredKind]) -> Self {
        ReferencesOfPass {
            client,
            configured,
            read: None,
        }
    }

    /// What templates and pods name.
    ///
    /// # Errors
    /// As [`PodReferences::read`].
    pub async fn get(&mut self) -> Result<&PodReferences, &ReferencesError> {
        let read = match self.read.take() {
            Some(read) => read,
            None => PodReferences::read(self.client, self.configured).await,
        };
        self.read.insert(read).as_ref()
    }
}

/// How soon after a survey the next one may begin, if something else is to be removed.
const SOON: Duration = Duration::from_secs(5);

/// When to ask again what names something that is to be removed: at growing intervals, because that may last for months.
#[derive(Debug)]
pub struct ReferenceSchedule {
    every: Duration,
    last: Option<Instant>,
    /// How long the longest survey took.
    took: Duration,
    /// Whether something is to be removed that no survey has covered.
    is_news: bool,
    /// How many surveys in a row found something still in use.
    in_vain: u32,
}

impl ReferenceSchedule {
    /// A schedule with this shortest interval.
    pub fn new(every: Duration) -> Self {
        ReferenceSchedule {
            every,
            last: None,
            took: Duration::ZERO,
            is_news: true,
            in_vain: 0,
        }
    }

    /// Something else is to be removed: the next survey is soon, unless surveys take long.
    pub fn reset(&mut self) {
        self.in_vain = 0;
        self.is_news = true;
    }

    /// A survey ended that began at this time.
    pub fn asked(&mut self, began: Instant) {
        self.took = self.took.max(began.elapsed());
    }

    /// Whether to ask now, and when to ask next.
    pub fn is_due(&mut self) -> (bool, Instant) {
        let now = Instant::now();
        let wait = if self.is_news {
            (self.took * SURVEY_REST).clamp(SOON.min(self.every), self.every)
        } else {
            backoff_interval(self.every, self.in_vain)
        };
        if let Some(last) = self.last
            && now < last + wait
        {
            return (false, last + wait);
        }
        (self.last, self.is_news) = (Some(now), false);
        self.in_vain = self.in_vain.saturating_add(1);
        (true, now + backoff_interval(self.every, self.in_vain))
    }
}

/// Whether the mirror of the build label may be removed from nodes.
#[derive(Debug)]
pub struct LabelRelease {
    schedule: ReferenceSchedule,
    every: Duration,
    /// Until when the answer "nothing names it" is valid.
    unused_until: Option<Instant>,
    stays: String,
}

impl LabelRelease {
    /// Nothing is known yet. `every`: the shortest interval between two surveys.
    pub fn new(every: Duration) -> Self {
        LabelRelease {
            schedule: ReferenceSchedule::new(every),
            every,
            unused_until: None,
            stays: String::new(),
        }
    }

    /// Whether the label may be removed, as far as that is known.
    pub fn known(&self) -> LabelUse {
        match self.unused_until {
            Some(until) if Instant::now() < until => LabelUse::Unused,
            _ => LabelUse::Stays(self.stays.clone()),
        }
    }

    /// No node keeps the label: if it is unknown what names it, the next question waits the shortest interval.
    pub fn reset_if_unknown(&mut self) {
        if self.known() != LabelUse::Unused {
            self.reset();
        }
    }

    /// Policies changed: nothing is known.
    pub fn reset(&mut self) {
        self.unused_until = None;
        self.schedule.reset();
    }

    /// Asks what names the label, if it is due. Returns when to ask again.
    pub async fn ask(&mut self, references: &mut ReferencesOfPass<'_>, facts: &Facts) -> Instant {
        let (is_due, next) = self.schedule.is_due();
        if !is_due {
            return next;
        }
        let began = Instant::now();
        let of_class = |class: &RuntimeClassFacts| class.node_selector.contains_key(RESTRICTED_BUILD_LABEL);
        let mut classes = facts.runtime_classes.iter();
        let class = classes.find(|(_, class)| of_class(class));
        let references = references.get().await;
        self.schedule.asked(began);
        let stays = match (references, class) {
            (Err(error), _) => format!("it is unknown which templates select nodes by it: {error}"),
            (Ok(_), Some((class, _))) => {
                format!("RuntimeClass {class} selects nodes by it: change that first")
            }
            (Ok(known), None) if known.mirror_label.is_empty() => {
                self.unused_until = Some(Instant::now() + self.every);
                return next;
            }
            (Ok(known), None) => format!(
                "{} select nodes by it: remove it from their nodeSelector and affinity",
                known.mirror_label
            ),
        };
        if stays != self.stays {
            tracing::info!(label = RESTRICTED_BUILD_LABEL, why = stays, "label kept on nodes");
            self.stays = stays;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn noted(objects: &[(Kind, Value)]) -> PodReferences {
        let mut references = PodReferences::default();
        for (kind, object) in objects {
            references.note(*kind, &object.to_string()).unwrap();
        }
        references
    }

    fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": "a", "name": name}, "spec": spec})
    }

    #[test]
    fn every_pod_of_every_kind_may_name_a_class() {
        let of = |class: &str| json!({"runtimeClassName": class});
        let template = |class: &str| json!({"template": {"spec": of(class)}});
        let references = noted(&[
            (
                Kind::PodTemplate,
                json!({"metadata": {"namespace": "a", "name": "t"}, "template": {"spec": of("one")}}),
            ),
            (Kind::Rollout, object("roll", &template("one"))),
            (
                Kind::ScaledJob,
                object("scaled", &json!({"jobTargetRef": template("two")})),
            ),
            (
                Kind::PipelineRun,
                object(
                    "run",
                    &json!({"pipelineSpec": {"tasks": [
                        {"name": "first", "taskSpec": {"steps": [{"name": "s", "image": "x"}]}},
                        {"name": "second", "taskSpec": {"steps": [{"name": "s", "image": "x"}]}}]},
                        "taskRunSpecs": [{"pipelineTaskName": "second", "podTemplate": of("three")}]}),
                ),
            ),
            (
                Kind::Rollout,
                object("of-a-deployment", &json!({"workloadRef": {"name": "web"}})),
            ),
        ]);
        let users = |class: &str| references.classes[class].to_string();
        assert_eq!(users("one"), "PodTemplate a/t, Rollout a/roll");
        assert_eq!(users("two"), "ScaledJob a/scaled");
        assert_eq!(users("three"), "PipelineRun a/run", "its second pod");
    }

    #[test]
    fn a_selector_and_a_required_affinity_may_name_the_mirror_of_the_build_label() {
        let affinity = |when: &str, of: Value| json!({"affinity": {"nodeAffinity": {when: of}}});
        let term = json!({"matchExpressions": [{"key": RESTRICTED_BUILD_LABEL, "operator": "Exists"}]});
        let required = affinity(
            "requiredDuringSchedulingIgnoredDuringExecution",
            json!({"nodeSelectorTerms": [term]}),
        );
        let preferred = affinity(
            "preferredDuringSchedulingIgnoredDuringExecution",
            json!([{"weight": 1, "preference": term}]),
        );
        let pinned = affinity(
            "requiredDuringSchedulingIgnoredDuringExecution",
            json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w"]}]}]}),
        );
        let selector = json!({"nodeSelector": {RESTRICTED_BUILD_LABEL: "10.0.20348"}});
        let other = json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}});
        for (spec, is_named) in [
            (required, true),
            (selector, true),
            (preferred, false),
            (pinned, false),
            (other, false),
        ] {
            let set = object("agent", &json!({"template": {"spec": spec}}));
            let users = noted(&[(Kind::DaemonSet, set)]).mirror_label;
            let expected = if is_named { "DaemonSet a/agent" } else { "" };
            assert_eq!(users.to_string(), expected, "{spec}");
        }
    }

    #[test]
    fn the_first_objects_are_named_and_the_others_counted() {
        let many = (0..7).map(|at| {
            let spec = json!({"runtimeClassName": "win"});
            (Kind::Pod, object(&format!("p{at}"), &spec))
        });
        let users = noted(&many.collect::<Vec<_>>()).classes["win"].to_string();
        assert_eq!(
            users,
            "Pod a/p0, Pod a/p1, Pod a/p2, Pod a/p3, Pod a/p4 and 2 more"
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_may_name_anything() {
        let odd = r#"{"metadata": {"namespace": "a", "name": "p"}, "spec": {"runtimeClassName": 7, "containers": 7}}"#;
        let error = PodReferences::default().note(Kind::Pod, odd).unwrap_err();
        assert!(error.to_string().starts_with("cannot read Pod a/p: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_newly_to_be_removed_waits_for_a_survey_only_while_surveys_take_long() {
        let every = Duration::from_secs(60);
        for (took, wait) in [(0, 5), (2, 20), (30, 60)] {
            let mut schedule = ReferenceSchedule::new(every);
            assert!(schedule.is_due().0);
            let began = Instant::now();
            tokio::time::advance(Duration::from_secs(took)).await;
            schedule.asked(began);
            let (is_due, next) = schedule.is_due();
            assert_eq!((is_due, next), (false, began + every), "nothing is new");
            schedule.reset();
            let (_, next) = schedule.is_due();
            assert_eq!(next, began + Duration::from_secs(wait), "{took}");
        }
    }
}
