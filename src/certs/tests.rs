//! Simulates a year of certificates with three replicas that see every change one step late, under random faults.
//! Invariant: an API server that trusts a published bundle accepts what any replica serves.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use proptest::prelude::*;
use tokio::time::Instant;

use super::Lifetimes;
use super::bundles::{Bundles, WebhookBundle};
use super::ca::CaCertificate;
use super::issue::IssueContext;
use super::rotation::{RotationAction, RotationState, decide, takes_over};
use super::secret::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY, NEXT_CA_KEY, SecretState};
use super::served::ServedIdentities;
use crate::tls::identity::Identity;

const HOUR: Duration = Duration::from_secs(3_600);
const STEP: Duration = Duration::from_secs(6 * 3_600);
const DAY: u32 = 4;
const YEAR: u32 = 365 * DAY;
const KEYS: [&str; 5] = [CA_CERTIFICATES, CA_KEY, NEXT_CA_KEY, CERTIFICATE, KEY];

const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(90 * 24 * 3_600),
    leaf: Duration::from_secs(30 * 24 * 3_600),
    backdate: Duration::from_secs(24 * 3_600),
    settle: Duration::from_secs(2 * 6 * 3_600),
    grace: Duration::from_secs(6 * 6 * 3_600),
};

type Data = BTreeMap<String, ByteString>;

fn issuing(names: &[String], now: SystemTime) -> IssueContext<'_> {
    IssueContext {
        names,
        lifetimes: &LIFETIMES,
        now,
    }
}

/// An observed value, and since when it has been so.
#[derive(Clone)]
struct SimulatedObservation<T> {
    value: T,
    since: Duration,
}

impl<T: PartialEq> SimulatedObservation<T> {
    fn see(&mut self, value: T, at: Duration) {
        if self.value != value {
            *self = SimulatedObservation { value, since: at };
        }
    }
}

struct SimulatedReplica {
    secret: SimulatedObservation<Option<Data>>,
    bundles: SimulatedObservation<Bundles>,
    served: ServedIdentities,
}

#[derive(Clone, Debug)]
enum Damage {
    SecretDeleted,
    Garbage(usize),
    Missing(usize),
    /// A key of another CA, or of another certificate.
    Mismatched(usize),
    /// Everything is replaced by another tool, consistently.
    SecretReplaced,
    /// A CA of another tool in the Secret, with its key; the certificate stays.
    CaReplaced,
    /// The same, with a CA that verifiers can read but our issuer cannot.
    CaUnreadable,
    BundleReplaced(usize),
    BundleEmptied(usize),
    ConfigurationDeleted(usize),
    Jump(i64),
    /// Another replica becomes the leader.
    NextLeader,
    Restart(usize),
}

struct SimulatedCluster {
    now: SystemTime,
    start: Instant,
    /// The monotonic time since `start`.
    clock: Duration,
    secret: Option<Data>,
    bundles: [Option<Vec<WebhookBundle>>; 2],
    /// The state one step ago.
    before: (Option<Data>, Bundles),
    replicas: Vec<SimulatedReplica>,
    leader: usize,
    names: Vec<String>,
    actions: BTreeMap<&'static str, usize>,
}

fn empty(webhooks: usize) -> Vec<WebhookBundle> {
    let webhook = |number| WebhookBundle {
        name: format!("{number}.transom.dev"),
        bundle: None,
    };
    (0..webhooks).map(webhook).collect()
}

impl SimulatedCluster {
    fn new() -> Self {
        let replica = || SimulatedReplica {
            secret: SimulatedObservation {
                value: None,
                since: Duration::ZERO,
            },
            bundles: SimulatedObservation {
                value: Bundles::default(),
                since: Duration::ZERO,
            },
            served: ServedIdentities::default(),
        };
        SimulatedCluster {
            start: Instant::now(),
            now: SystemTime::UNIX_EPOCH + HOUR * 24 * 365 * 56,
            clock: Duration::ZERO,
            secret: None,
            bundles: [Some(empty(2)), Some(empty(3))],
            before: (None, Bundles::default()),
            replicas: (0..3).map(|_| replica()).collect(),
            leader: 0,
            names: vec!["transom.transom.svc".to_owned()],
            actions: BTreeMap::new(),
        }
    }

    fn published(&self) -> Bundles {
        Bundles {
            configurations: self.bundles.iter().flatten().cloned().collect(),
        }
    }

    fn step(&mut self) {
        self.clock += STEP;
        self.now += STEP;
        let current = (self.secret.clone(), self.published());
        let before = self.before.clone();
        for number in 0..self.replicas.len() {
            if number == self.leader {
                // The leader sees the current state, and continues as long as there is something to do.
                while self.replica_acts(number, (self.secret.clone(), self.published())) {}
            } else {
                // The others see the previous state.
                self.replica_acts(number, before.clone());
            }
        }
        self.before = current;
    }

    /// Returns whether something was written.
    fn replica_acts(&mut self, number: usize, (secret, bundles): (Option<Data>, Bundles)) -> bool {
        let replica = &mut self.replicas[number];
        replica.secret.see(secret, self.clock);
        replica.bundles.see(bundles, self.clock);
        let monotonic = self.start + self.clock;
        replica.served.forget(LIFETIMES.grace, monotonic);
        let state = replica.secret.value.as_ref().map(SecretState::read);
        let situation = self.situation(number, state.as_ref());
        let offered = state.as_ref().and_then(|state| state.leaf.as_ref());
        let switches = |offered: &&Identity| !situation.serves(offered) && takes_over(&situation, offered);
        if let Some(offered) = offered.filter(switches).cloned() {
            self.replicas[number].served.replace(offered, monotonic);
        }
        let action = decide(&self.situation(number, state.as_ref()));
        if number == self.leader {
            self.carry_out(&action, &state.unwrap_or_default());
            return !matches!(action, RotationAction::Nothing { .. });
        }
        false
    }

    fn situation<'s>(&'s self, number: usize, secret: Option<&'s SecretState>) -> RotationState<'s> {
        let replica = &self.replicas[number];
        RotationState {
            now: self.now,
            secret,
            secret_for: self.clock.saturating_sub(replica.secret.since),
            bundles: &replica.bundles.value,
            bundles_for: self.clock.saturating_sub(replica.bundles.since),
            served: replica.served.current.as_ref(),
            served_before: &replica.served.former,
            names: &self.names,
            lifetimes: &LIFETIMES,
        }
    }

    fn carry_out(&mut self, action: &RotationAction, state: &SecretState) {
        let name = match action {
            RotationAction::Nothing { .. } => "nothing",
            RotationAction::CreateSecret { .. } => "create",
            RotationAction::StartOver { .. } => "start over",
            RotationAction::TrustAgain { .. } => "trust again",
            RotationAction::PublishBundle => "publish",
            RotationAction::RenewLeaf => "renew",
            RotationAction::AddNextCa => "add",
            RotationAction::PromoteNextCa => "promote",
            RotationAction::DropOldCas => "drop",
        };
        *self.actions.entry(name).or_default() += 1;
        if *action == RotationAction::PublishBundle {
            let text = CaCertificate::bundle(&state.trusted);
            for configuration in self.bundles.iter_mut().flatten() {
                for webhook in configuration {
                    webhook.bundle = Some(text.clone().into_bytes());
                }
            }
        }
        let issuing = issuing(&self.names, self.now);
        let (_, changes, _) = issuing.changes_or_start_over(action.clone(), state).unwrap();
        for (key, value) in changes {
            let data = self.secret.get_or_insert_default();
            match value {
                Some(value) => data.insert(key.to_owned(), ByteString(value.into_bytes())),
                None => data.remove(key),
            };
        }
    }

    fn suffer(&mut self, damage: &Damage) {
        match damage {
            Damage::SecretDeleted => self.secret = None,
            Damage::Garbage(key) => self.put(KEYS[*key], "-----BEGIN CERTIFICATE-----\nMII"),
            Damage::Missing(key) => drop(self.secret.as_mut().and_then(|data| data.remove(KEYS[*key]))),
            Damage::Mismatched(key) => {
                let foreign = self.foreign();
                let key = KEYS[*key];
                let value = foreign.get(key).unwrap_or(&foreign[CA_KEY]);
                let value = String::from_utf8(value.0.clone()).unwrap();
                self.put(key, &value);
            }
            Damage::SecretReplaced => self.secret = Some(self.foreign()),
            Damage::CaReplaced => {
                for (key, value) in self.foreign() {
                    if key.starts_with("ca.") {
                        self.put(&key, std::str::from_utf8(&value.0).unwrap());
                    }
                }
            }
            Damage::CaUnreadable => {
                let foreign = self.foreign();
                let ca = &CaCertificate::all(&foreign[CA_CERTIFICATES].0)[0];
                self.put(CA_CERTIFICATES, &CaCertificate::bundle(&[unreadable(ca)]));
                self.put(CA_KEY, std::str::from_utf8(&foreign[CA_KEY].0).unwrap());
            }
            Damage::BundleReplaced(which) => {
                let foreign = self.foreign()[CA_CERTIFICATES].0.clone();
                if let Some(configuration) = &mut self.bundles[*which] {
                    configuration[0].bundle = Some(foreign);
                }
            }
            Damage::BundleEmptied(which) => self.bundles[*which] = Some(empty(3)),
            Damage::ConfigurationDeleted(which) => self.bundles[*which] = None,
            Damage::Jump(hours) => {
                let by = HOUR * u32::try_from(hours.unsigned_abs()).unwrap();
                if *hours < 0 {
                    self.now -= by;
                } else {
                    self.now += by;
                }
            }
            Damage::NextLeader => {
                self.leader = (self.leader + 1) % 3;
                let replica = &mut self.replicas[self.leader];
                (replica.secret.since, replica.bundles.since) = (self.clock, self.clock);
            }
            Damage::Restart(number) => {
                let replica = &mut self.replicas[*number];
                replica.served = ServedIdentities::default();
                (replica.secret.since, replica.bundles.since) = (self.clock, self.clock);
            }
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        if let Some(data) = &mut self.secret {
            data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
        }
    }

    /// A Secret that another tool created.
    fn foreign(&self) -> Data {
        let create = RotationAction::CreateSecret { keep: Vec::new() };
        let made = issuing(&self.names, self.now)
            .changes(&create, &SecretState::default())
            .unwrap();
        made.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), ByteString(value?.into_bytes()))))
            .collect()
    }

    /// A replica that is not trusted by the published bundles, current or one step ago.
    fn distrust(&self) -> Option<String> {
        for (number, replica) in self.replicas.iter().enumerate() {
            let Some(served) = &replica.served.current else {
                return Some(format!("replica {number} serves nothing"));
            };
            for (when, bundles) in [("now", &self.published()), ("before", &self.before.1)] {
                if let Some(webhook) = bundles.distrusts(served, &self.names, self.now) {
                    let name = &webhook.name;
                    return Some(format!(
                        "replica {number} is not trusted by {name} as it is {when}"
                    ));
                }
            }
        }
        None
    }
}

/// A CA whose name uses another string type, as some corporate tools create them.
fn unreadable(ca: &CaCertificate) -> CaCertificate {
    /// The attribute commonName, before the tag of its value.
    const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
    const VISIBLE_STRING: u8 = 0x1a;
    let mut der = ca.der().to_vec();
    let found: Vec<usize> = (0..der.len() - COMMON_NAME.len())
        .filter(|at| der[*at..].starts_with(&COMMON_NAME))
        .collect();
    assert_eq!(found.len(), 2, "an issuer and a subject");
    for at in found {
        der[at + COMMON_NAME.len()] = VISIBLE_STRING;
    }
    CaCertificate::from_der(der.into()).unwrap()
}

/// Runs until everything is consistent, which must be within this many steps.
fn heals(world: &mut SimulatedCluster, within: u32) -> Result<(), String> {
    for _ in 0..within {
        world.step();
        if world.distrust().is_none() {
            return Ok(());
        }
    }
    Err(format!("not healed after {within} steps: {:?}", world.distrust()))
}

#[test]
fn a_year_without_trouble_rotates_every_certificate_and_no_client_notices() {
    let mut world = SimulatedCluster::new();
    heals(&mut world, 6).unwrap();
    for step in 0..YEAR {
        world.step();
        assert_eq!(world.distrust(), None, "step {step}");
        // Leaders also change.
        if step % 97 == 0 {
            world.suffer(&Damage::NextLeader);
        }
    }
    let count = |name| world.actions.get(name).copied().unwrap_or_default();
    // A new CA every 60 days, a new certificate every 20 days.
    assert_eq!((count("create"), count("start over")), (1, 0));
    assert!((5..=7).contains(&count("add")), "{:?}", world.actions);
    assert_eq!((count("promote"), count("drop")), (count("add"), count("add")));
    assert!((10..=16).contains(&count("renew")), "{:?}", world.actions);
    assert!(count("nothing") > 1_300, "{:?}", world.actions);
}

#[test]
fn a_secret_that_is_replaced_when_only_the_leader_serves_the_new_ca_leaves_the_other_replicas_trusted() {
    for other in [Damage::SecretReplaced, Damage::SecretDeleted] {
        let mut world = SimulatedCluster::new();
        heals(&mut world, 6).unwrap();
        while !world.actions.contains_key("promote") {
            world.step();
        }
        let chain = |number: usize| world.replicas[number].served.current.as_ref().unwrap().chain();
        assert_ne!(chain(0), chain(1), "the other replicas are one step behind");
        world.suffer(&other);
        for step in 0..30 {
            world.step();
            assert_eq!(world.distrust(), None, "{step} steps after {other:?}");
        }
    }
}

fn of_the_secret() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::SecretDeleted),
        (0..5_usize).prop_map(Damage::Garbage),
        (0..5_usize).prop_map(Damage::Missing),
        (0..5_usize).prop_map(Damage::Mismatched),
        Just(Damage::SecretReplaced),
        Just(Damage::CaReplaced),
        Just(Damage::CaUnreadable),
        Just(Damage::NextLeader),
        // Within the validity of a certificate before and after: outside of it no replica can serve.
        (-20..=8 * 24_i64).prop_map(Damage::Jump),
    ]
}

fn of_the_bundles() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..2_usize).prop_map(Damage::BundleReplaced),
        (0..2_usize).prop_map(Damage::BundleEmptied),
        (0..2_usize).prop_map(Damage::ConfigurationDeleted),
        (0..3_usize).prop_map(Damage::Restart),
    ]
}

fn anything() -> impl Strategy<Value = Damage> {
    let far = -24 * 400..24 * 400_i64;
    prop_oneof![
        4 => of_the_secret(),
        2 => of_the_bundles(),
        1 => far.prop_map(Damage::Jump),
    ]
}

/// A case simulates months: few cases, more if `PROPTEST_CASES` says so.
fn cases() -> ProptestConfig {
    let set = ProptestConfig::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(12, |_| set.cases);
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..set
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn damage_to_the_secret_is_fixed_without_a_replica_being_distrusted(
        first in 0..YEAR,
        damages in proptest::collection::vec((of_the_secret(), 30..200_u32), 1..6),
    ) {
        let mut world = SimulatedCluster::new();
        prop_assert_eq!(heals(&mut world, 6), Ok(()));
        for _ in 0..first % 400 {
            world.step();
        }
        for (damage, steps) in damages {
            world.suffer(&damage);
            for step in 0..steps {
                world.step();
                prop_assert_eq!(world.distrust(), None, "{} steps after {:?}", step, &damage);
            }
        }
    }

    #[test]
    fn damage_to_the_bundles_lasts_until_the_leader_sees_it(
        first in 0..400_u32,
        damages in proptest::collection::vec((of_the_bundles(), 30..100_u32), 1..6),
    ) {
        let mut world = SimulatedCluster::new();
        for _ in 0..first + 10 {
            world.step();
        }
        for (damage, steps) in damages {
            world.suffer(&damage);
            prop_assert_eq!(heals(&mut world, 2), Ok(()), "{:?}", &damage);
            for step in 0..steps {
                world.step();
                prop_assert_eq!(world.distrust(), None, "{} steps after {:?}", step, &damage);
            }
        }
    }

    #[test]
    fn whatever_happens_it_heals(damages in proptest::collection::vec((anything(), 0..5_u32), 1..40)) {
        let mut world = SimulatedCluster::new();
        for (damage, steps) in damages {
            world.suffer(&damage);
            for _ in 0..steps {
                world.step();
            }
        }
        prop_assert_eq!(heals(&mut world, 16), Ok(()));
        for step in 0..80 {
            world.step();
            prop_assert_eq!(world.distrust(), None, "{} steps later", step);
        }
        let state = SecretState::read(world.secret.as_ref().unwrap());
        prop_assert!(state.trusted.len() <= 2, "old CAs are dropped in the end");
    }
}

/// A Secret with a CA that signs, and no certificate; `changed` modifies the stored CA.
fn with_ca(
    names: &[String],
    changed: fn(&CaCertificate) -> CaCertificate,
) -> (IssueContext<'_>, SecretState) {
    let issuing = issuing(names, SystemTime::now());
    let (ca, issuer) = issuing.ca().unwrap();
    let key = rcgen::KeyPair::from_pem(&issuer.key().serialize_pem()).unwrap();
    let secret = SecretState {
        trusted: vec![changed(&ca)],
        signs: Some(key.into()),
        ..SecretState::default()
    };
    (issuing, secret)
}

#[test]
fn a_ca_that_signs_nothing_acceptable_is_noticed_before_a_replica_serves_it() {
    // A name with an underscore can be written into a certificate, but is not a valid server name.
    let names = ["tran_som!.svc".to_owned()];
    let (issuing, secret) = with_ca(&names, CaCertificate::clone);
    let error = issuing.changes(&RotationAction::RenewLeaf, &secret).unwrap_err();
    assert!(
        error.to_string().contains("clients would not accept it"),
        "{error}"
    );
}

#[test]
fn a_foreign_ca_that_nothing_can_be_issued_with_is_given_up_and_stays_trusted() {
    let names = ["transom.transom-system.svc".to_owned()];
    let (issuing, secret) = with_ca(&names, unreadable);
    assert!(issuing.changes(&RotationAction::RenewLeaf, &secret).is_err());
    let (action, _, why) = issuing
        .changes_or_start_over(RotationAction::RenewLeaf, &secret)
        .unwrap();
    let keep = secret.trusted;
    assert_eq!(
        (action, why.is_some()),
        (RotationAction::StartOver { keep }, true)
    );
}
