//! What registries are asked about, and what their answers mean for which workloads are planned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::plan_finding::UpgradeClass;
use super::workload_images::ImageKnowledge;
use super::{Planner, intern};
use crate::model::cluster::policy::{ImageEvidence, Policy};
use crate::model::objects::workload_name::WorkloadName;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::ImageFacts;
use crate::model::windows::os::{Inference, Os};

/// The workloads without strong evidence for an operating system, and their images.
#[derive(Default)]
pub(super) struct UndecidedWorkloads {
    workloads: HashMap<WorkloadName, UndecidedWorkload>,
    /// Image names, interned.
    names: BTreeSet<Arc<str>>,
}

struct UndecidedWorkload {
    images: Vec<Arc<str>>,
    /// Whether the plan has it: its images are for Windows by their names, or it runs on Windows.
    is_planned: bool,
}

/// Whether registries could decide the operating system of a workload with this evidence.
pub(super) fn is_undecided(inference: &Inference, policy: &Policy) -> bool {
    policy.image_evidence != ImageEvidence::Disabled && inference.is_weak()
}

impl UndecidedWorkloads {
    pub(super) fn add<'i>(
        &mut self,
        key: WorkloadName,
        images: impl IntoIterator<Item = &'i str>,
        is_planned: bool,
    ) {
        let images = images.into_iter().map(|image| intern(&mut self.names, image));
        let images = images.collect();
        self.workloads
            .insert(key, UndecidedWorkload { images, is_planned });
    }

    /// Records that a pod of this workload is ready on a node that is not a Windows node: its images are for Linux, and no
    /// registry needs to be asked.
    pub(super) fn runs_elsewhere(&mut self, key: &WorkloadName) {
        self.workloads.remove(key);
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &str> {
        let all = self.workloads.values().flat_map(|workload| &workload.images);
        all.map(|image| &**image)
    }

    /// Whether the registries report another operating system of a workload than the plan assumes.
    pub(super) fn contradict(&self, images: &HashMap<String, Arc<ImageFacts>>) -> bool {
        let os = |image: &Arc<str>| images.get(&**image)?.contents()?.only_os();
        let contradicts = |workload: &UndecidedWorkload| {
            let mut found = workload.images.iter().filter_map(os);
            found.any(|os| (os == Os::Windows) != workload.is_planned)
        };
        self.workloads.values().any(contradicts)
    }
}

impl Planner<'_> {
    /// With registries to ask: [`Planner::undecided_images`] are known after the visits.
    #[must_use]
    pub fn with_registries(self) -> Self {
        Planner {
            undecided: Some(UndecidedWorkloads::default()),
            ..self
        }
    }

    /// Adds what registries report about images, by reference as written.
    pub fn learn(&mut self, images: impl IntoIterator<Item = (String, Arc<ImageFacts>)>) {
        Arc::make_mut(&mut self.facts).images.extend(images);
    }

    /// Records why registries gave no facts about images, by reference as written: one line each.
    pub fn learn_unanswered(&mut self, unanswered: BTreeMap<String, String>) {
        self.unanswered = Some(unanswered);
    }

    /// The images of workloads without strong evidence for an operating system, except those that are ready on a node that
    /// is not a Windows node.
    pub fn undecided_images(&self) -> BTreeSet<String> {
        let undecided = self.undecided.iter().flat_map(UndecidedWorkloads::images);
        undecided
            .filter(|image| self.is_to_ask(image))
            .map(str::to_owned)
            .collect()
    }

    /// Whether what was learned of images changes which workloads are planned, so that another planner with these facts
    /// must visit the objects.
    pub fn must_visit_again(&self) -> bool {
        let undecided = self.undecided.as_ref();
        undecided.is_some_and(|undecided| undecided.contradict(&self.facts.images))
    }

    /// Whether nothing is known of an image that a registry could be asked about.
    fn is_to_ask(&self, image: &str) -> bool {
        !self.facts.images.contains_key(image) && ImageRef::parse(image).is_ok()
    }

    /// What is known of images, for an upgrade to a build.
    pub(super) fn knowledge(&self, to: Build) -> ImageKnowledge<'_> {
        let classes = &mut self.facts.runtime_classes.iter();
        let of_hyper_v = classes.find(|(_, class)| class.isolation() == ContainerIsolation::HyperV);
        ImageKnowledge {
            target: to,
            published: &self.facts.knowledge,
            images: &self.facts.images,
            unanswered: self.unanswered.as_ref(),
            oldest_node: (self.nodes.of(to))
                .filter_map(|node| Some((node.host.revision?, node.host.name.as_str())))
                .min(),
            hyper_v_class: of_hyper_v.map(|(name, _)| name.as_str()),
        }
    }

    /// The images to ask a registry about: those that a new node pulls, and for an upgrade those with unknown builds, and
    /// those that are proposed.
    pub fn open_images(&self) -> BTreeSet<String> {
        let mut open = self.pulled_images();
        if let Some(upgrade) = self.upgrade() {
            open.extend(self.images_of_upgrade(upgrade.to));
        }
        open.retain(|image| self.is_to_ask(image));
        open
    }

    fn images_of_upgrade(&self, to: Build) -> BTreeSet<String> {
        let knowledge = self.knowledge(to);
        let mut open = BTreeSet::new();
        for workload in &self.workloads {
            for used in &workload.images {
                let finding = knowledge.state(used, workload.kernel);
                if finding.class == UpgradeClass::Unknown {
                    open.insert(used.image.to_string());
                }
                if matches!(finding.class, UpgradeClass::NewImage | UpgradeClass::HyperVOnly) {
                    open.extend(knowledge.candidates(used));
                }
            }
        }
        open
    }
}
