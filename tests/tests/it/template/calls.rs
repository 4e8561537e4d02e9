//! The calls that each function really makes, as a proxy sees them, against those that its role
//! allows.

use std::{collections::BTreeSet, sync::Arc};

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use dynamo::Ledger;
use hookonce::stack::{dynamodb_config, sqs_config};
use runtime::clock::Clock;
use sqs::{Message, Queue};
use sweeper::Sweeper;
use tests::{
    handlers::Scripted,
    proxy::{Fault, FaultProxy},
    world::{
        TABLE, World, deliver, stripe_config, stripe_delivery, stripe_delivery_at, stripe_key,
    },
};
use worker::{Failure, handlers::Handler};

use super::document::{actions, statements};

/// A function's way to DynamoDB and SQS.
struct Watched {
    dynamodb: FaultProxy,
    sqs: FaultProxy,
}

impl Watched {
    async fn start(world: &World) -> Self {
        Self {
            dynamodb: FaultProxy::start(&world.dynamodb_url, |_, _| Fault::None).await,
            sqs: FaultProxy::start(&world.sqs_url, |_, _| Fault::None).await,
        }
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(dynamodb_config(&self.dynamodb.url), TABLE.to_owned())
    }

    fn queue(&self, world: &World) -> Queue {
        let url = world.queue_url.replace(&world.sqs_url, &self.sqs.url);
        Queue::new(sqs_config(&self.sqs.url), url)
    }

    /// As the receiver and the worker do when they start.
    async fn warm(&self, world: &World) {
        self.ledger().warm().await.expect("a table");
        self.queue(world).warm().await.expect("a queue");
    }

    /// Compares what was called with what the function's role allows; what is allowed and was not
    /// called is `argued`.
    fn judge(&self, function: &str, argued: &[&str]) {
        let dynamodb = self.dynamodb.calls().into_iter().map(|call| match call.as_str() {
            // A transaction needs the rights of its parts; the record's is an update.
            "TransactWriteItems" => "dynamodb:UpdateItem".to_owned(),
            call => format!("dynamodb:{call}"),
        });
        let sqs = self.sqs.calls().into_iter().map(|call| format!("sqs:{call}"));
        let called: BTreeSet<_> = dynamodb.chain(sqs).collect();
        let allowed: BTreeSet<_> = statements(function)
            .into_iter()
            .flat_map(actions)
            .filter(|action| action.starts_with("dynamodb:") || action.starts_with("sqs:"))
            .collect();
        assert_eq!(called.difference(&allowed).count(), 0, "{function} is denied: {called:?}");
        let spare: Vec<_> = allowed.difference(&called).map(String::as_str).collect();
        assert_eq!(spare, argued, "{function} is allowed what it does not call");
    }
}

#[tokio::test]
async fn the_receiver_calls_what_it_is_allowed() {
    let world = World::start().await;
    let watched = Watched::start(&world).await;
    watched.warm(&world).await;
    let late = Clock::with_offset(120_000);
    for (clock, delivery) in [
        (Clock::default(), stripe_delivery("evt_1")),
        // Past the grace: it is bumped, and enqueued again.
        (late, stripe_delivery_at("evt_1", late.now())),
    ] {
        let (dynamodb, sqs) = (&watched.dynamodb.url, &watched.sqs.url);
        let receiver = world.receiver_at(&stripe_config(), clock, dynamodb, sqs).await;
        assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    }
    // Only for a refusal without the record in the way, which needs a deletion in between.
    watched.judge("Receiver", &["dynamodb:GetItem"]);
}

#[tokio::test]
async fn the_worker_calls_what_it_is_allowed() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    for id in ["evt_done", "evt_retried"] {
        assert_eq!(deliver(&receiver, &stripe_delivery(id)).await.status, 200);
    }
    let orphan = Message { key: stripe_key("evt_orphan"), event_type: None };
    let queue = Queue::new(sqs_config(&world.sqs_url), world.queue_url.clone());
    queue.send(&orphan.into()).await.expect("sent");
    let watched = Watched::start(&world).await;
    watched.warm(&world).await;
    let handler: Arc<dyn Handler> = Scripted::new(|event, effects| {
        Box::pin(async move {
            if event.key == stripe_key("evt_retried") {
                return Err(Failure::retry("not_yet", "later"));
            }
            // Of a table of its own, whose rights are not the template's; any table does here.
            let put = Put::builder().table_name(TABLE).item("pk", AttributeValue::S("own".into()));
            effects.write(TransactWriteItem::builder().put(put.build().expect("complete")).build())
        })
    });
    let (dynamodb, sqs) = (&watched.dynamodb.url, &watched.sqs.url);
    let clock = Clock::default();
    let handlers = [("test", handler)];
    let worker = world.worker_at(&stripe_config(), &handlers, clock, dynamodb, sqs);
    let response = world.work(&worker).await;
    assert_eq!(response.batch_item_failures.len(), 1, "the one to be retried");
    // The event source's, which has no rights but the function's.
    watched.judge("Worker", &["sqs:DeleteMessage", "sqs:ReceiveMessage"]);
}

#[tokio::test]
async fn the_sweeper_calls_what_it_is_allowed() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    let watched = Watched::start(&world).await;
    let late = Clock::with_offset(120_000);
    let sweeper = Sweeper::new(watched.ledger(), watched.queue(&world), late);
    sweeper.sweep().await.expect("a complete pass");
    watched.judge("Sweeper", &[]);
}
