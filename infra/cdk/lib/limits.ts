/**
 * Numbers that the functions build on, and that are therefore no props. They are those of
 * `shared/domain/src/limits.rs`: a test holds `template.yaml` to that file, and the parity test
 * holds this one to `template.yaml`.
 *
 * @module
 */
import { Duration } from 'aws-cdk-lib';

export const RECEIVER_TIMEOUT = Duration.seconds(10);
export const WORKER_TIMEOUT = Duration.seconds(60);
export const SWEEPER_TIMEOUT = Duration.seconds(50);

/** A pass that failed, or came late, is not repeated: the next one is a minute away at most. */
export const SWEEP_INTERVAL = Duration.minutes(1);

/** Longer than a lease: a message comes back when its event may be taken over. */
export const QUEUE_VISIBILITY = Duration.minutes(6);
/** A message that expires loses nothing: while its event is open, the sweeper sends another. */
export const QUEUE_RETENTION = Duration.days(4);
/** A message's age goes on from the first queue, so this one keeps longer. */
export const DEAD_LETTER_RETENTION = Duration.days(14);
/** Above the attempts that a record has: those are used up first. */
export const MAX_RECEIVE_COUNT = 100;
/** As many records as a worker runs at once. */
export const BATCH_SIZE = 10;

export const OPEN_BY_DUE = 'open-by-due';
