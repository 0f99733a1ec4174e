use super::*;
use crate::drain::{DRAIN_SCHEMA, DrainEvent, DrainEventKind, OutageCause, PodToMove};

fn text(write: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    write(&mut out).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn a_drain_says_what_it_will_do_and_how_to_continue() {
    let mut report = DrainReport {
        schema: DRAIN_SCHEMA,
        to: None,
        nodes: vec![DrainedNode {
            name: "win-1".to_owned(),
            pool: "old".to_owned(),
        }],
        pods: vec![PodToMove {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            node: "win-1".to_owned(),
            workload: None,
        }],
        ignored: 2,
        outages: vec![Outage {
            workload: "Pod shop/web-1".to_owned(),
            cause: OutageCause::NoController,
            message: "it has no controller".to_owned(),
        }],
        lacking_images: vec![LackingImage {
            image: "web:1".to_owned(),
            pool: "new".to_owned(),
            nodes: vec!["win-9".to_owned()],
            workloads: Vec::new(),
            size: Some(3 << 30),
        }],
        nodes_to_add: Some(2),
        notes: vec!["a\nnote".to_owned()],
        events: Vec::new(),
        result: DrainResult::Stopped,
        reason: Some("because".to_owned()),
    };
    insta::assert_snapshot!(text(|out| drain_text(&report, out)));
    let end = |report: &DrainReport| text(|out| drain_end(report, "again", Some("back"), out));
    assert_eq!(end(&report), "stopped: because\nnothing was changed\n");
    report.result = DrainResult::Interrupted;
    assert_eq!(end(&report), "interrupted\nnothing was changed\n");
    report.result = DrainResult::Stopped;
    let event = |event| DrainEvent {
        time: jiff::Timestamp::UNIX_EPOCH,
        event,
        about: "win-1".to_owned(),
    };
    report.events.push(event(DrainEventKind::Waiting));
    assert_eq!(end(&report), "stopped: because\nnothing was changed\n");
    report.events.push(event(DrainEventKind::Cordoned));
    assert_eq!(
        end(&report),
        "stopped: because\nto continue when the cause is removed: again\nto go back: back\n"
    );
    let without_back = text(|out| drain_end(&report, "again", None, out));
    assert!(!without_back.contains("go back"), "{without_back}");
    report.result = DrainResult::Interrupted;
    assert!(end(&report).contains("\nto continue: again\n"));
    report.result = DrainResult::Done;
    assert_eq!(end(&report), "done\n");
}
