use super::*;

const CLIENT: &str = "10.78.0.2:5000";

fn request(client: &str, sent: u64, took: u64, triggered: Option<u64>) -> Request {
    Request {
        client: client.parse().unwrap(),
        sent_ns: sent,
        response_ns: sent + took,
        triggered_ns: triggered.map(|after| sent + after),
    }
}

fn epoch(client: &str, start_ns: u64, end_ns: u64, latency_ns: Option<u64>) -> Epoch {
    Epoch {
        start_ns,
        end_ns,
        client: client.parse().unwrap(),
        latency_ns,
    }
}

fn paired(responses: usize, truth: f64, estimate: Option<f64>) -> Paired {
    Paired {
        client: CLIENT.parse().unwrap(),
        start_ns: 0,
        end_ns: 100,
        responses,
        response_ns: truth,
        triggered_ns: None,
        estimate_ns: estimate,
    }
}

#[test]
fn a_log_is_read_and_what_is_wrong_in_it_is_named() {
    let log = format!("{HEADER}\n{CLIENT},100,350,360,20,3000\n[fd78::2]:7,1,2,,3,4\n");
    let requests = Request::read_log(&log).unwrap();
    assert_eq!(requests[0], request(CLIENT, 100, 250, Some(260)));
    assert_eq!(
        (requests[0].latency(), requests[0].to_triggered()),
        (250.0, Some(260.0))
    );
    assert_eq!(requests[1].to_triggered(), None);

    let broken = format!("{HEADER}\n{CLIENT},100,350,360,20,3000\n{CLIENT},soon,2,,3,4\n");
    let error = format!("{:#}", Request::read_log(&broken).unwrap_err());
    assert!(
        error.contains("line 3") && error.contains("sent_ns"),
        "{error}"
    );
    assert!(Request::read_log("connection,sent\n").is_err());
}

#[test]
fn an_epochs_line_reads_as_the_command_writes_it() {
    let line = r#"{"kind":"epoch","ts_ns":9,"start_ns":1,"end_ns":8,"client":"[fd78::2]:7",
        "server":"[fd78::1]:80","transport":"tcp","latency_ns":null,"ibg_ns":null,"batches":0,
        "gaps":3,"idle":0,"resent":0,"discarded":0,"confidence":0.0,"modes":[]}"#;
    let epoch: Epoch = serde_json::from_str(line).unwrap();
    assert_eq!((epoch.client.port(), epoch.latency_ns), (7, None));
}

#[test]
fn an_epoch_is_paired_with_the_requests_of_its_connection_that_were_sent_in_it() {
    let requests = [
        request(CLIENT, 99, 1, None),
        request(CLIENT, 150, 30, None),
        request(CLIENT, 100, 10, Some(12)),
        request(CLIENT, 200, 1, None),
        request("10.78.0.2:5001", 150, 7, None),
    ];
    let truth = Truth::of(&requests, 0);
    let pairs = truth.pair(&[
        epoch(CLIENT, 100, 200, Some(25)),
        epoch(CLIENT, 300, 400, None),
    ]);
    assert_eq!(pairs.len(), 1, "the second epoch has no request");
    let found = &pairs[0];
    assert_eq!((found.responses, found.response_ns), (2, 20.0));
    assert_eq!(
        (found.triggered_ns, found.estimate_ns),
        (Some(12.0), Some(25.0))
    );
}

#[test]
fn requests_before_the_measured_time_do_not_count() {
    let requests = [10, 20, 30].map(|sent| request(CLIENT, sent, 1, None));
    assert_eq!(Truth::of(&requests, 15).count(), 2);
}

#[test]
fn errors_count_by_response_and_are_positive_when_the_estimate_is_low() {
    let pairs = [
        paired(1, 100.0, Some(50.0)),
        paired(8, 100.0, Some(99.0)),
        paired(1, 100.0, Some(120.0)),
    ];
    assert_eq!(relative(&pairs)[0], (0.5, 1.0));
    let errors = Errors::of(&pairs);
    assert_eq!((errors.responses, errors.covered), (10, 1.0));
    assert_eq!(errors.median_rel_error, Some(0.01));
    assert_eq!(errors.within_15_percent, Some(0.8));
    assert_eq!(errors.p90_abs_rel_error, Some(0.2));
    assert_eq!(
        (errors.truth_ns, errors.estimate_ns),
        (Some(100.0), Some(96.2))
    );
}

#[test]
fn an_epoch_without_an_estimate_is_not_covered_and_no_error() {
    let errors = Errors::of(&[paired(3, 100.0, None), paired(1, 100.0, Some(100.0))]);
    assert_eq!(
        (errors.covered, errors.within_15_percent),
        (0.25, Some(1.0))
    );
    let nothing = Errors::of(&[]);
    assert_eq!((nothing.covered, nothing.median_rel_error), (0.0, None));
}

#[test]
fn a_baseline_is_compared_by_its_mean_in_the_same_epochs() {
    let mut pairs = vec![paired(1, 100.0, Some(90.0)), paired(1, 100.0, Some(90.0))];
    pairs[1].start_ns = 100;
    pairs[1].end_ns = 200;
    let sample = |at_ns, value_ns| Sample {
        client: CLIENT.parse().unwrap(),
        at_ns,
        value_ns,
    };
    let samples = [sample(99, 30.0), sample(5, 10.0), sample(250, 70.0)];
    let baseline = with_samples(&pairs, &samples);
    assert_eq!(baseline[0].estimate_ns, Some(20.0));
    assert_eq!(baseline[1].estimate_ns, None);
    let constant = with_constants(&pairs, &samples[..1]);
    assert_eq!(constant[1].estimate_ns, Some(30.0));
    let closer = Errors::of(&pairs).closer_than(&Errors::of(&constant));
    assert!((closer.unwrap() - 7.0).abs() < 1e-9);
}

#[test]
fn a_connections_mean_is_weighted_and_skips_what_has_no_estimate() {
    let pairs = [
        paired(1, 100.0, Some(100.0)),
        paired(3, 200.0, Some(220.0)),
        paired(50, 900.0, None),
    ];
    let merged = by_connection(&pairs);
    assert_eq!(merged.len(), 1);
    assert_eq!(
        (merged[0].response_ns, merged[0].estimate_ns),
        (175.0, Some(190.0))
    );
}

#[test]
fn following_a_change_is_counted_in_slots_that_end_after_it() {
    let slot = |start_ns: u64, truth, estimate| Paired {
        start_ns,
        end_ns: start_ns + 10,
        ..paired(1, truth, Some(estimate))
    };
    let series = [
        slot(0, 100.0, 100.0),
        slot(10, 150.0, 100.0),
        slot(20, 200.0, 190.0),
        slot(30, 100.0, 100.0),
        slot(40, 300.0, 100.0),
    ];
    assert_eq!(
        slots_to_follow(&series, &[15, 30, 40]),
        [Some(2), Some(1), None]
    );
}

#[test]
fn over_time_connections_are_merged_by_the_slot_of_an_epochs_middle() {
    let mut pairs = vec![paired(1, 100.0, Some(100.0)), paired(1, 300.0, Some(200.0))];
    (pairs[1].start_ns, pairs[1].end_ns) = (90, 190);
    let series = over_time(&pairs, 0, 100);
    let seen: Vec<_> = series.iter().map(|s| (s.start_ns, s.response_ns)).collect();
    assert_eq!(seen, [(0, 100.0), (100, 300.0)]);
}
