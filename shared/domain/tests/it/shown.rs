//! What logs, error texts and people get to see of things: enough to search by, and no payload.

use domain::{
    delivery::{Delivery, Headers},
    effects::StepName,
    event::Event,
    record::{StateName, StoredPayload},
    transition::note_mismatch,
};

use crate::{NOW, Table, claim_as, event, key};

#[test]
fn names_read_as_they_are_stored() {
    assert_eq!(key().to_string(), key().pk());
    assert_eq!(key().to_string(), "stripe#evt_1");
    assert_eq!(key().source().to_string(), "stripe");
    assert_eq!(StepName::new("charge").expect("valid").to_string(), "charge");
    assert_eq!(StateName::Failed.to_string(), "failed");
    assert_eq!(NOW.to_string(), NOW.millis().to_string());
}

#[test]
fn a_delivery_shows_its_method_its_size_and_its_headers_names() {
    let headers: Headers = [("webhook-signature", "v1,hush")].into_iter().collect();
    let delivery = Delivery {
        method: "POST".into(),
        headers,
        query: "token=hush".into(),
        body: b"hush".to_vec(),
    };
    let shown = format!("{delivery:?} {:?}", delivery.headers);
    for wanted in ["POST", "body_bytes: 4", "webhook-signature"] {
        assert!(shown.contains(wanted), "{shown}");
    }
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn an_event_and_its_stored_payload_show_a_size_and_no_byte() {
    let event = Event {
        payload: b"hush".to_vec(),
        headers: vec![("x-kept".into(), "hush".into())],
        ..event()
    };
    let stored = StoredPayload { codec: "zstd".into(), bytes: b"hush".to_vec() };
    let shown = format!("{event:?} {stored:?}");
    for wanted in ["evt_1", "charge.refunded", "payload_bytes: 4", "zstd, 4 bytes"] {
        assert!(shown.contains(wanted), "{shown}");
    }
    for hidden in ["hush", "104, 117"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn a_write_and_what_became_of_it_show_names_and_no_value() {
    let event = Event { payload: b"hush".to_vec(), object_id: Some("hush".into()), ..event() };
    let claim = claim_as("first", &event).write;
    let mismatch = note_mismatch(&key(), b"hush");
    let mut table = Table::default();
    let missed = table.write(&mismatch);
    let made = table.write(&claim);
    let refused = table.write(&claim);
    let shown = format!("{claim:?} {mismatch:?} {missed:?} {made:?} {refused:?}");
    for wanted in ["evt_1", "payload_sha256", "payload_mismatch", "no record", "Applied"] {
        assert!(shown.contains(wanted), "{shown}");
    }
    assert!(shown.ends_with("Refused"), "{shown}");
    for hidden in ["hush", "104, 117"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn the_size_of_headers_counts_names_and_values() {
    let headers: Headers = [("a", "xyz"), ("bc", "")].into_iter().collect();
    assert_eq!(headers.bytes(), 6);
}
