//! The gate as a whole, without a cluster: a simulated kubelet per node, which pulls one image after the other, and random joins,
//! failures and changes of leader.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A node with its kubelet.
#[derive(Clone, Debug)]
struct SimNode {
    joins: i64,
    /// Seconds that each of its images takes; `None` for one that fails.
    images: Vec<Option<i64>>,
    /// Its pod since when, and which of its images it has.
    pod: Option<(i64, Vec<usize>)>,
    pulled: BTreeSet<usize>,
    released: Option<(i64, ReleaseReason)>,
}

fn sim_node() -> impl Strategy<Value = SimNode> {
    let image = prop_oneof![4 => (1..40_i64).prop_map(Some), 1 => Just(None)];
    (0..300_i64, prop::collection::vec(image, 0..5)).prop_map(|(joins, images)| SimNode {
        joins,
        images,
        pod: None,
        pulled: BTreeSet::new(),
        released: None,
    })
}

impl SimNode {
    fn all(&self) -> Vec<String> {
        (0..self.images.len())
            .map(|index| format!("i.example/{index}:1"))
            .collect()
    }

    /// The pod, as its kubelet reports it: reasons only when it has tried all images once.
    fn puller(&mut self, name: &str, now: i64) -> Option<PullerPod> {
        let (since, of_pod) = self.pod.clone()?;
        let mut done = since;
        for index in of_pod.iter().copied() {
            done += self.images[index].unwrap_or(1);
            if self.images[index].is_some() && now >= done {
                self.pulled.insert(index);
            }
        }
        let progress = |index: &usize| match self.images[*index] {
            _ if now < done => PullProgress::Pulling,
            Some(_) => PullProgress::Pulled,
            None => PullProgress::Failed("denied".to_owned()),
        };
        let all = self.all();
        let images: Vec<(&str, PullProgress)> = (of_pod.iter())
            .map(|index| (&*all[*index], progress(index)))
            .collect();
        Some(puller(name, &images))
    }

    fn view(&self, name: &str) -> NodeView {
        let all = self.all();
        NodeView {
            images: self.pulled.iter().map(|index| all[*index].clone()).collect(),
            ..node(name, self.joins)
        }
    }
}

/// One pass of the controller over the simulated nodes.
fn step(nodes: &mut [SimNode], memory: &mut StartupMemory, startup: &NodeStartup, now: i64) {
    let names: Vec<String> = (0..nodes.len()).map(|index| format!("n{index}")).collect();
    let pods: Vec<PullerPod> = (nodes.iter_mut().zip(&names))
        .filter_map(|(node, name)| node.puller(name, now))
        .collect();
    assert!(pods.len() <= startup.slots(), "{} pods", pods.len());
    let waiting = nodes.iter().zip(&names);
    let waiting = waiting.filter(|(node, _)| node.joins <= now && node.released.is_none());
    let gated_nodes: Vec<GatedNode> = waiting
        .map(|(node, name)| {
            let view = node.view(name);
            let wanted: Vec<WantedImage> = node.all().iter().map(|image| want(image)).collect();
            let own: Vec<&PullerPod> = pods.iter().filter(|pod| pod.node_uid == view.uid).collect();
            let news = memory.observe((&view, "p"), Some(&wanted), (&own, &NO_OTHERS), at(now));
            let missing = news.missing.unwrap();
            let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
            GatedNode {
                all_failed: news.all_failed,
                ..gated(view, Some(startup.clone()), Some(&missing))
            }
        })
        .collect();
    let plan = plan(at(now), &gated_nodes, Some(&pods));
    let index = |uid: &str| uid.strip_prefix("uid-n").unwrap().parse::<usize>().unwrap();
    for (view, why) in &plan.released {
        nodes[index(&view.uid)].released = Some((now, *why));
    }
    for pod in &plan.deleted {
        nodes[index(&pod.node_uid)].pod = None;
    }
    for new in &plan.created {
        let node = &mut nodes[index(&new.node.uid)];
        assert_eq!(node.pod, None, "a node has one pod");
        let all = node.all();
        let index = |image: &String| all.iter().position(|other| other == image).unwrap();
        node.pod = Some((now, new.images.iter().map(index).collect()));
    }
}

proptest! {
    #[test]
    fn no_node_waits_past_its_timeout_and_no_more_nodes_pull_than_allowed(
        mut nodes in prop::collection::vec(sim_node(), 1..25),
        slots in 1..5_i32,
        timeout in 30..200_i32,
        pause in 1..10_i64,
        leaders in prop::collection::btree_set(0..500_i64, 0..3),
    ) {
        let startup = by_pods(timeout, slots);
        let mut memory = StartupMemory::default();
        let mut now = 0;
        while now < 600 {
            if leaders.range(now..now + pause).next().is_some() {
                memory = StartupMemory::default();
            }
            step(&mut nodes, &mut memory, &startup, now);
            let waits = |node: &SimNode| node.joins <= now && node.released.is_none();
            for node in nodes.iter().filter(|node| waits(node)) {
                prop_assert!(now < node.joins + i64::from(timeout), "{node:?} at {now}");
            }
            now += pause;
        }
        // Pods of released nodes are deleted.
        step(&mut nodes, &mut memory, &startup, now);
        for node in &nodes {
            let (released, why) = node.released.unwrap();
            let can_be_warm = node.images.iter().all(Option::is_some);
            prop_assert!(node.pod.is_none(), "{node:?}");
            prop_assert!(released - node.joins < i64::from(timeout) + pause, "{node:?}");
            match why {
                ReleaseReason::Warm => prop_assert!(can_be_warm && node.pulled.len() == node.images.len()),
                ReleaseReason::Failed => {
                    let pulled = node.images.iter().flatten().count();
                    prop_assert!(!can_be_warm && node.pulled.len() == pulled, "{node:?}");
                }
                ReleaseReason::Late => prop_assert!(released >= node.joins + i64::from(timeout)),
                ReleaseReason::Open => prop_assert!(false, "{node:?}"),
            }
        }
    }
}
