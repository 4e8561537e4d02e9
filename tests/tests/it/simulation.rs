//! Days of traffic in simulated time: the real receiver, worker and sweeper between providers that
//! repeat themselves and weather that breaks calls, kills processes and cuts services off. Every
//! write is judged as it takes hold; then the weather calms down and everything must end.
//!
//! A scenario that breaks a promise is shrunk and printed with what happened in it, and its seed is
//! kept in `simulation.regressions`, where every later run begins. Variables:
//!
//! - `HOOKONCE_SIMULATION_SCENARIOS`: how many scenarios, of some 16 events each;
//! - `HOOKONCE_SIMULATION_SEED`: the seed that they follow from; `random` for a new one.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, FailurePersistence, FileFailurePersistence, RngSeed, TestRunner},
};
use tests::simulation::{
    EventPlan, Fate, Kind, Late, OperatorAct, Partition, Scenario, Service, Simulated, simulate,
};

#[test]
fn every_promise_holds_in_any_weather() {
    let (scenarios, seed) = (scenarios(), seed());
    println!("seed {seed:?}, {scenarios} scenarios");
    // What a seeded fault breaks is no regression, and needs no smallest form.
    let seeded = tests::seeded::named().is_some();
    let regressions: Box<dyn FailurePersistence> = if seeded {
        Box::new(FileFailurePersistence::Off)
    } else {
        Box::new(FileFailurePersistence::Direct(REGRESSIONS))
    };
    let mut runner = TestRunner::new(Config {
        failure_persistence: Some(regressions),
        rng_seed: seed,
        max_shrink_iters: if seeded { 0 } else { 400 },
        ..Config::with_cases(scenarios)
    });
    let sum = RefCell::new(Simulated::default());
    let ran = runner.run(&scenario(), |scenario| {
        let simulated = simulate(&scenario).map_err(|broken| {
            let happened = broken.log.join("\n");
            TestCaseError::fail(format!("{}\n{happened}\n", broken.promise))
        })?;
        add(&mut sum.borrow_mut(), &simulated);
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    let sum = sum.into_inner();
    println!(
        "{} events, {} deliveries, {:.1} days; faults {:?}, calls cut off {}; seen {:?}",
        sum.events,
        sum.deliveries,
        sum.time.as_secs_f64() / 86_400.0,
        sum.faults,
        sum.partitioned,
        sum.seen,
    );
    assert_all_was_seen(&sum);
}

/// What never happened was not tested.
fn assert_all_was_seen(sum: &Simulated) {
    for fault in Fate::FAULTS {
        assert!(sum.faults.contains_key(&fault), "{fault:?} was never injected");
    }
    assert!(sum.partitioned > 0, "no call was ever cut off");
    for what in SEEN {
        assert!(sum.seen.contains_key(what), "never {what}");
    }
}

/// The same scenario is the same run, to the line.
#[test]
fn a_scenario_runs_the_same_way_each_time() {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Config::with_cases(4)
    });
    let ran = runner.run(&scenario(), |scenario| {
        let runs = [simulate(&scenario), simulate(&scenario)];
        let [one, two] = runs.map(|run| run.map_or_else(|broken| broken.log, |run| run.log));
        prop_assert_eq!(one, two);
        Ok(())
    });
    ran.expect("the same log");
}

/// A call that its sender gave up on takes hold all the same, while what came after it is under way:
/// for each call of an event's first attempt, and each that may be slow after it.
#[test]
fn a_call_that_arrives_late_takes_nothing_back() {
    let mut met = BTreeMap::<Fate, u64>::new();
    for kind in [Kind::NeverFirst, Kind::Reconcile] {
        for late in 0..8 {
            for slow in 0..4 {
                let event =
                    EventPlan { kind, at: Duration::ZERO, duplicates: Vec::new(), late: None };
                let scenario = Scenario {
                    events: vec![event],
                    faults: vec![(late, Fate::Late), (slow, Fate::Slow)],
                    partitions: Vec::new(),
                    skews: [0; 6],
                    operator: Vec::new(),
                    ttl_lag: Duration::ZERO,
                    seed: 1,
                };
                match simulate(&scenario) {
                    Ok(run) => run.faults.into_keys().for_each(|fault| {
                        *met.entry(fault).or_default() += 1;
                    }),
                    Err(broken) => {
                        let happened = broken.log.join("\n");
                        panic!("{kind:?} {late} {slow}: {}\n{happened}", broken.promise);
                    }
                }
            }
        }
    }
    // Past the last call there is nothing to meet; most come before it.
    assert!(met[&Fate::Late] > 32 && met[&Fate::Slow] > 16, "{met:?}");
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let operator = select(vec![
        OperatorAct::ReplayFailed,
        OperatorAct::ReplayFailed,
        OperatorAct::ReplayDone,
        OperatorAct::Discard,
    ]);
    (
        vec(event(), 1..32),
        vec((0_u16..12, select(Fate::FAULTS.to_vec())), 0..60),
        vec(partition(), 0..3),
        // Any two clocks differ by the skew bound at most.
        proptest::array::uniform6(-2_500_i16..=2_500),
        vec((seconds(0..3 * DAY), operator), 0..6),
        seconds(0..3 * DAY),
        any::<u64>(),
    )
        .prop_map(|(events, faults, partitions, skews, operator, ttl_lag, seed)| Scenario {
            events,
            faults,
            partitions,
            skews,
            operator,
            ttl_lag,
            seed,
        })
}

fn event() -> impl Strategy<Value = EventPlan> {
    // Most at once, so that they meet; some over days.
    let at = prop_oneof![3 => seconds(0..5), 2 => seconds(0..3600), 1 => seconds(0..2 * DAY)];
    let duplicate = prop_oneof![
        3 => (0_u64..200).prop_map(Duration::from_millis),
        2 => seconds(0..600),
        1 => seconds(0..2 * DAY),
    ];
    let late =
        proptest::option::of((-7_200_i64..4 * 86_400).prop_map(|s| Late { after_expiry_s: s }));
    (select(Kind::ALL.to_vec()), at, vec(duplicate, 0..4), late)
        .prop_map(|(kind, at, duplicates, late)| EventPlan { kind, at, duplicates, late })
}

fn partition() -> impl Strategy<Value = Partition> {
    let service = select(vec![Service::DynamoDb, Service::Sqs, Service::Outside]);
    let length = prop_oneof![3 => seconds(1..120), 1 => seconds(120..4 * 3600)];
    (service, seconds(0..3600), length).prop_map(|(service, from, length)| Partition {
        service,
        from,
        length,
    })
}

fn seconds(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_secs)
}

fn add(sum: &mut Simulated, run: &Simulated) {
    fn add_all<K: Ord + Copy>(sum: &mut BTreeMap<K, u64>, run: &BTreeMap<K, u64>) {
        for (what, count) in run {
            *sum.entry(*what).or_default() += count;
        }
    }
    sum.events += run.events;
    sum.deliveries += run.deliveries;
    sum.time += run.time;
    sum.partitioned += run.partitioned;
    add_all(&mut sum.faults, &run.faults);
    add_all(&mut sum.seen, &run.seen);
}

#[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the program")]
fn scenarios() -> u32 {
    let asked = std::env::var("HOOKONCE_SIMULATION_SCENARIOS").ok();
    asked.map_or(132, |count| count.parse().expect("HOOKONCE_SIMULATION_SCENARIOS is a number"))
}

#[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the program")]
fn seed() -> RngSeed {
    match std::env::var("HOOKONCE_SIMULATION_SEED").ok().as_deref() {
        Some("random") => RngSeed::Fixed(fastrand::u64(..)),
        Some(seed) => RngSeed::Fixed(seed.parse().expect("HOOKONCE_SIMULATION_SEED is a number")),
        // The same each time: what fails on one machine fails on the next.
        None => RngSeed::Fixed(1),
    }
}

const DAY: u64 = 86_400;
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/simulation.regressions");
/// What a run must have met to prove anything.
const SEEN: [&str; 17] = [
    "acknowledged",
    "amended",
    "claimed",
    "claimed beyond its horizon",
    "completed",
    "discarded",
    "expired",
    "leased",
    "message delivered twice",
    "not acknowledged",
    "parked",
    "released",
    "replayed",
    "sweeper killed",
    "swept",
    "swept in part",
    "taken over",
];
