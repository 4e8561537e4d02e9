//! What not to do, for the tests to find: see [`Fault`]. Nothing here runs in a deployed function.

use domain::{
    delivery::Delivery,
    event::{Event, EventId, EventKey},
    seeded::{Fault, is_on},
};

use crate::{Receiver, events::Outcome, handler::Context};

impl Receiver {
    /// What not to do: records an event that nobody has verified. See
    /// [`Fault::DedupeBeforeVerify`].
    pub(crate) async fn is_known(&self, context: &Context<'_>, delivery: &Delivery) -> bool {
        let body: serde_json::Value = serde_json::from_slice(&delivery.body).unwrap_or_default();
        let Some(id) = body["id"].as_str().and_then(|id| EventId::new(id).ok()) else {
            return false;
        };
        let event = Event {
            key: EventKey::new(context.source.clone(), id),
            provider: context.config.provider.name().to_owned(),
            event_type: None,
            object_id: None,
            occurred_at: None,
            coalesces_until: None,
            payload: delivery.body.clone(),
            content_type: None,
            headers: Vec::new(),
        };
        let received = self.receive_events(context, vec![event]).await.unwrap_or_default();
        received.iter().any(|received| received.outcome.result == "duplicate")
    }
}

/// See [`Fault::KeyFromDeliveryId`] and [`Fault::KeyFromObject`].
pub(crate) fn mistake_key(event: &mut Event, context: &Context<'_>) {
    let mistaken = if is_on(Fault::KeyFromDeliveryId) {
        Some(context.delivery_id.clone())
    } else if is_on(Fault::KeyFromObject) {
        event.object_id.clone()
    } else {
        None
    };
    if let Some(id) = mistaken.and_then(|id| EventId::new(id).ok()) {
        event.key = EventKey::new(context.source.clone(), id);
    }
}

/// See [`Fault::VerifyAfterParse`].
pub(crate) fn rewritten(mut delivery: Delivery) -> Delivery {
    if is_on(Fault::VerifyAfterParse)
        && let Ok(body) = serde_json::from_slice::<serde_json::Value>(&delivery.body)
    {
        delivery.body = body.to_string().into_bytes();
    }
    delivery
}

/// See [`Fault::DuplicateIsError`] and [`Fault::EnqueueOrFail`].
pub(crate) fn is_refusal(outcome: &Outcome) -> bool {
    is_on(Fault::DuplicateIsError) && outcome.result == "duplicate"
        || is_on(Fault::EnqueueOrFail) && outcome.deferred.is_some()
}
