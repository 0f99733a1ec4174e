use super::super::tests::{owner, pod, ready, rules, state};
use super::*;

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
fn a_node_is_empty_before_the_next_one_begins_and_what_is_not_ready_goes_first() {
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
    let waits = next(&state, &rules);
    assert!(matches!(waits, DrainAction::Wait(_)), "{waits:?}");
    state.pods.retain(|pod| pod.node.as_deref() != Some("old-1"));
    state.moved.clear();
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
    let name = state.pods[0].name.clone();
    assert_eq!(
        next(&state, &rules()),
        DrainAction::Wait(WaitCause::Pending(name.clone(), message.to_owned()))
    );
    state.pods[0].waits = Duration::from_secs(300);
    let stop = StopCause::Pending(name, message.to_owned());
    assert!(stop.to_string().contains(message), "{stop}");
    assert_eq!(next(&state, &rules()), DrainAction::Stop(stop));
}

#[test]
fn limits_of_time_end_what_waits_and_not_what_is_done() {
    let pods = vec![ready("a", "web", "old-1")];
    let mut state = state(pods, &[("web", 3)]);
    state.idle = Duration::from_secs(1800);
    let step = next(&state, &rules());
    assert!(
        matches!(step, DrainAction::Stop(StopCause::NoProgress(..))),
        "{step:?}"
    );
    let timed = DrainRules {
        timeout: Some(Duration::from_secs(60)),
        ..rules()
    };
    (state.idle, state.elapsed) = (Duration::ZERO, Duration::from_secs(60));
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
