//! Every row of the receiver's table: case, answer, writes.

use tests::world::{World, deliver, stripe_config, stripe_delivery};

#[tokio::test]
async fn a_new_event_is_recorded_enqueued_and_acknowledged() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let answer = deliver(&receiver, &stripe_delivery("evt_1")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.count_records().await, 1);
    assert_eq!(world.queue_depth().await, (1, 0));
}
