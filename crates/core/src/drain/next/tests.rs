use std::collections::BTreeMap;

use super::super::state::{DisruptionBudget, EvictionAnswer};
use super::super::tests::{owner, pod, ready, rules, state};
use super::*;
use crate::model::objects::label_selector::LabelSelector;

fn evicts(name: &str) -> DrainAction {
    DrainAction::Evict(PodName {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    })
}

#[test]
fn all_nodes_are_cordoned_before_the_first_eviction() {
    let mut state = state(
        vec![ready("a", "web", "old-1"), ready("b", "web", "new")],
        &[("web", 2)],
    );
    state.nodes[1].is_cordoned = false;
    assert_eq!(next(&state, &rules()), DrainAction::Cordon("old-2".to_owned()));
    state.cordoned("old-2");
    assert_eq!(next(&state, &rules()), DrainAction::Read("shop".to_owned()));
    state.read.insert("shop".to_owned(), ReadTime::default());
    assert_eq!(next(&state, &rules()), evicts("a"));
}

#[test]
fn a_replica_is_evicted_only_while_the_others_are_ready() {
    let pods = vec![
        ready("a", "web", "old-1"),
        ready("b", "web", "old-1"),
        ready("c", "web", "new"),
    ];
    let mut state = state(pods, &[("web", 3)]);
    assert_eq!(next(&state, &rules()), evicts("a"));
    state.evicted(&state.pods[0].name.clone());
    let waits = next(&state, &rules());
    assert!(
        matches!(waits, DrainAction::Wait(WaitCause::Terminating(_))),
        "{waits:?}"
    );
    state.pods.remove(0);
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Wait(WaitCause::Replicas(owner("web"), 2, 3))
    );
    let two = DrainRules {
        max_unavailable: 2,
        ..rules()
    };
    assert_eq!(next(&state, &two), evicts("b"));
    state.pods.push(ready("d", "web", "new"));
    assert_eq!(next(&state, &rules()), evicts("b"));
}

#[test]
fn nodes_are_drained_in_order_and_what_is_not_ready_goes_first() {
    let pods = vec![
        ready("a", "web", "old-1"),
        DrainPod {
            is_ready: false,
            ..ready("z", "web", "old-1")
        },
        ready("b", "mail", "old-2"),
    ];
    let mut state = state(pods, &[("web", 2), ("mail", 1)]);
    let rules = DrainRules {
        allow_outage: true,
        ..rules()
    };
    assert_eq!(next(&state, &rules), evicts("z"));
    state.evicted(&state.pods[1].name.clone());
    assert_eq!(next(&state, &rules), evicts("b"));
}

#[test]
fn a_pod_without_a_node_pauses_the_drain_and_then_stops_it_with_the_schedulers_message() {
    let message = "0/3 nodes are available: 1 Insufficient memory.";
    let waiting = DrainPod {
        unschedulable: Some(message.to_owned()),
        ..pod("new", "web")
    };
    let other = ready("b", "mail", "old-1");
    let pods = vec![
        waiting,
        ready("a", "web", "old-1"),
        other,
        ready("c", "mail", "new"),
    ];
    let mut state = state(pods, &[("web", 2), ("mail", 2)]);
    state.competing = [owner("web"), owner("mail")].into();
    let name = state.pods[0].name.clone();
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Wait(WaitCause::Pending(name.clone(), message.to_owned()))
    );
    state.pods[0].waits = Duration::from_secs(300);
    let left = vec!["shop/a".to_owned(), "shop/b".to_owned()];
    let stop = StopCause::Pending(name.clone(), message.to_owned(), left);
    assert!(stop.to_string().contains(message), "{stop}");
    assert_eq!(next(&state, &rules()), DrainAction::Stop(stop));
    // What runs on other nodes moves first.
    state.competing.remove(&owner("mail"));
    assert_eq!(next(&state, &rules()), evicts("b"));
    state.pods[2] = ready("d", "mail", "new");
    let left = vec!["shop/a".to_owned()];
    let stop = StopCause::Pending(name, message.to_owned(), left);
    assert!(stop.to_string().ends_with("; still to move: shop/a"), "{stop}");
    assert_eq!(next(&state, &rules()), DrainAction::Stop(stop));
}

#[test]
fn limits_of_time_end_what_waits_and_not_what_is_done() {
    let pods = vec![ready("a", "web", "old-1")];
    let mut state = state(pods, &[("web", 3)]);
    state.idle.insert(owner("web"), Duration::from_secs(1800));
    let step = next(&state, &rules());
    assert!(
        matches!(step, DrainAction::Stop(StopCause::NoProgress(..))),
        "{step:?}"
    );
    let timed = DrainRules {
        timeout: Some(Duration::from_secs(60)),
        ..rules()
    };
    (state.idle, state.elapsed) = (BTreeMap::new(), Duration::from_secs(60));
    assert_eq!(
        next(&state, &timed),
        DrainAction::Stop(StopCause::Timeout(Duration::from_secs(60)))
    );
    state.pods.clear();
    assert_eq!(next(&state, &timed), DrainAction::Done);
}

#[test]
fn what_is_evicted_must_be_ready_again_before_the_drain_is_done() {
    let mut state = state(vec![ready("a", "web", "new")], &[("web", 2)]);
    assert_eq!(next(&state, &rules()), DrainAction::Done);
    state.moved.insert(owner("web"), 2);
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Wait(WaitCause::Replicas(owner("web"), 1, 2))
    );
    // It was not complete before.
    state.moved.insert(owner("web"), 1);
    assert_eq!(next(&state, &rules()), DrainAction::Done);
}

#[test]
fn a_workload_pauses_after_a_refusal_and_the_others_go_first() {
    let of = |answer: &EvictionAnswer, others: &[&str]| {
        let mut pods = vec![ready("a", "web", "old-1"), ready("b", "web", "old-1")];
        pods.extend(others.iter().map(|name| ready(name, "mail", "old-2")));
        let mut state = state(pods, &[("web", 2), ("mail", 3)]);
        let name = state.pods[0].name.clone();
        state.answered(&name, answer);
        let paused = next(&state, &rules());
        for pod in &mut state.pods {
            pod.refused = None;
        }
        (paused, next(&state, &rules()))
    };
    let why = || "no answer".to_owned();
    let refused =
        |step: &DrainAction| matches!(step, DrainAction::Wait(WaitCause::Refused(_, text)) if *text == why());
    for answer in [EvictionAnswer::NotNow(why()), EvictionAnswer::Failed(why())] {
        let (paused, after) = of(&answer, &[]);
        assert!(refused(&paused), "{paused:?}");
        assert_eq!(after, evicts("b"), "another pod may be evicted");
        assert_eq!(of(&answer, &["c", "d", "e"]).0, evicts("c"));
    }
    let (unknown, _) = of(&EvictionAnswer::Unknown(why()), &[]);
    assert!(refused(&unknown), "{unknown:?}");
    let (gone, _) = of(&EvictionAnswer::Gone, &[]);
    assert!(
        matches!(gone, DrainAction::Wait(WaitCause::Terminating(_))),
        "{gone:?}"
    );
}

#[test]
fn pods_that_are_not_ready_for_a_moment_are_not_all_evicted() {
    let unready = |name: &str, seconds| DrainPod {
        is_ready: false,
        unready: Duration::from_secs(seconds),
        ..ready(name, "web", "old-1")
    };
    let of = |seconds| {
        let pods = ["a", "b", "c"].map(|name| unready(name, seconds)).into();
        next(&state(pods, &[("web", 3)]), &rules())
    };
    let waits = DrainAction::Wait(WaitCause::Replicas(owner("web"), 0, 3));
    assert_eq!((of(0), of(179)), (waits.clone(), waits));
    assert_eq!(of(180), evicts("a"));
}

#[test]
fn several_budgets_keep_a_pod_that_has_started_and_is_not_ready() {
    let budget = |name: &str| DisruptionBudget {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        selector: Some(LabelSelector::default()),
        allowed: 1,
        desired_healthy: 1,
        is_zero: false,
        failure: None,
    };
    let allow = DrainRules {
        allow_outage: true,
        ..rules()
    };
    let of = |has_started| {
        let broken = DrainPod {
            is_ready: false,
            unready: Duration::from_secs(600),
            has_started,
            ..ready("a", "web", "old-1")
        };
        let mut state = state(vec![broken], &[("web", 1)]);
        state.budgets = vec![budget("first"), budget("second")];
        next(&state, &allow)
    };
    let stops = of(true);
    assert!(
        matches!(stops, DrainAction::Stop(StopCause::NeverEvicted(_))),
        "{stops:?}"
    );
    assert_eq!(of(false), evicts("a"));
}

#[test]
fn old_lists_evict_nothing_and_a_node_that_is_not_cordoned_is_tried_again() {
    let mut state = state(
        vec![ready("a", "web", "old-1"), ready("b", "web", "new")],
        &[("web", 2)],
    );
    state.elapsed = FRESH.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(next(&state, &rules()), evicts("a"));
    state.elapsed = FRESH;
    assert_eq!(next(&state, &rules()), DrainAction::Read("shop".to_owned()));
    let took = FRESH;
    state.read.insert(
        "shop".to_owned(),
        ReadTime {
            started: Duration::ZERO,
            took,
        },
    );
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Wait(WaitCause::SlowLists("shop".to_owned(), took))
    );
    for node in &mut state.nodes {
        node.is_cordoned = false;
    }
    state.not_cordoned("old-1", "no answer");
    assert_eq!(next(&state, &rules()), DrainAction::Cordon("old-2".to_owned()));
    state.cordoned("old-2");
    let waits = WaitCause::NotCordoned("old-1".to_owned(), "no answer".to_owned());
    assert_eq!(next(&state, &rules()), DrainAction::Wait(waits.clone()));
    let long = rules().progress_timeout;
    state.idle.insert(owner("web"), long);
    let stop = StopCause::NoProgress(long, waits, vec!["shop/a".to_owned()]);
    assert_eq!(next(&state, &rules()), DrainAction::Stop(stop));
    for node in &mut state.nodes {
        node.is_cordoned = true;
    }
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Read("shop".to_owned()),
        "a pod may just have come to the node"
    );
}

#[test]
fn what_cannot_move_does_not_hold_the_others_and_is_named_in_the_end() {
    let pods = vec![
        ready("a", "stuck", "old-1"),
        ready("b", "web", "old-2"),
        ready("c", "web", "new"),
    ];
    let mut state = state(pods, &[("stuck", 3), ("web", 2)]);
    assert_eq!(next(&state, &rules()), evicts("b"));
    state.idle.insert(owner("stuck"), Duration::from_secs(9000));
    state.evicted(&state.pods[1].name.clone());
    let waits = next(&state, &rules());
    assert!(
        matches!(waits, DrainAction::Wait(_)),
        "web still moves: {waits:?}"
    );
    state.pods[1] = ready("d", "web", "new");
    let step = next(&state, &rules());
    let DrainAction::Stop(stop) = &step else {
        panic!("{step:?}")
    };
    assert!(
        stop.to_string().contains("stuck has 1 of 3 replicas")
            && stop.to_string().contains("still to move: shop/a")
    );
}

#[test]
fn a_further_node_begins_only_while_few_workloads_lack_replicas() {
    let begins = |short: usize, idle| {
        let names: Vec<String> = (0..short).map(|index| format!("w{index}")).collect();
        let mut pods = vec![
            ready("first", "w0", "old-1"),
            ready("next", "web", "old-2"),
            ready("b", "web", "new"),
        ];
        pods.extend(names.iter().map(|name| ready(name, name, "new")));
        let mut desired: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 4)).collect();
        desired.push(("web", 2));
        let mut state = state(pods, &desired);
        for name in &names {
            state.moved.insert(owner(name), 4);
            state.idle.insert(owner(name), Duration::from_secs(idle));
        }
        next(&state, &rules()) == evicts("next")
    };
    assert!(begins(9, 0) && !begins(10, 0));
    assert!(begins(10, 60), "those that do not improve do not count");
}

#[test]
fn a_workload_in_a_rollout_or_not_listed_yet_keeps_its_pods() {
    let pods = || vec![ready("a", "web", "old-1"), ready("b", "web", "new")];
    let mut rolling = state(pods(), &[("web", 2)]);
    rolling.rolling.insert(owner("web"));
    assert_eq!(
        next(&rolling, &rules()),
        DrainAction::Wait(WaitCause::Rollout(owner("web")))
    );
    assert_eq!(
        next(&state(pods(), &[]), &rules()),
        DrainAction::Wait(WaitCause::NotListed(owner("web")))
    );
}

#[test]
fn a_budget_waits_for_replicas_that_are_ready_only_now() {
    let settling = DrainPod {
        min_ready: Duration::from_secs(10),
        ready_for: Duration::from_secs(9),
        ..ready("b", "web", "new")
    };
    let mut state = state(vec![ready("a", "web", "old-1"), settling], &[("web", 2)]);
    state.budgets = vec![DisruptionBudget {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        selector: Some(LabelSelector::default()),
        allowed: 1,
        desired_healthy: 1,
        is_zero: false,
        failure: None,
    }];
    let waits = next(&state, &rules());
    assert!(
        matches!(waits, DrainAction::Wait(WaitCause::Budget(..))),
        "{waits:?}"
    );
    state.pods[1].ready_for = Duration::from_secs(10);
    assert_eq!(next(&state, &rules()), evicts("a"));
}

#[test]
fn what_changes_after_the_first_eviction_keeps_its_pods_and_the_others_move() {
    let pods = vec![
        ready("a", "one", "old-1"),
        ready("b", "web", "old-1"),
        ready("c", "web", "new"),
    ];
    let mut state = state(pods, &[("one", 1), ("web", 2)]);
    let stops = next(&state, &rules());
    assert!(
        matches!(stops, DrainAction::Stop(StopCause::Outage(_))),
        "{stops:?}"
    );
    state.moved.insert(owner("web"), 2);
    assert_eq!(next(&state, &rules()), evicts("b"));
    state.pods[1] = ready("d", "web", "new");
    let stops = next(&state, &rules());
    assert!(
        matches!(stops, DrainAction::Stop(StopCause::Outage(_))),
        "{stops:?}"
    );
}
