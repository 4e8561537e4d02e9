import type { Duration } from 'aws-cdk-lib';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { Architecture, Tracing } from 'aws-cdk-lib/aws-lambda';
import type { RetentionDays } from 'aws-cdk-lib/aws-logs';
import type { ISecret } from 'aws-cdk-lib/aws-secretsmanager';
import type { ITopic } from 'aws-cdk-lib/aws-sns';
import type { IParameter } from 'aws-cdk-lib/aws-ssm';
import type { FunctionCode } from './code.js';
import type { Configuration } from './configuration.js';

/** Props of {@link Hookonce}. Those of `template.yaml` have the same defaults. */
export interface HookonceProps {
  /** The functions' code, built for {@link architecture}. See {@link codeFrom}. */
  readonly code: FunctionCode;

  /**
   * Tells this deployment from others of the account and region: its metrics are in the namespace
   * `hookonce/NAME`. Two in one stack need different ones.
   *
   * @default - the stack's name
   */
  readonly name?: string;

  /**
   * Where the configuration is.
   *
   * @default - the parameter `/NAME/config` of Parameter Store
   */
  readonly configuration?: Configuration;

  /**
   * What deliveries are verified with: the `secrets` of all sources. Only the receiver reads them.
   *
   * @default - none
   */
  readonly receiverSecrets?: readonly (ISecret | IParameter)[];

  /**
   * What events are signed with on their way to HTTP destinations: their `signing_secret`. Only the
   * worker reads them.
   *
   * @default - none
   */
  readonly workerSecrets?: readonly (ISecret | IParameter)[];

  /**
   * KMS keys of your own that these secrets, or the configuration, are encrypted with. The keys
   * that AWS manages need none.
   *
   * @default - none
   */
  readonly secretKeys?: readonly IKey[];

  /**
   * A KMS key of your own for the payloads, in the ledger and in the bucket. Queue and logs have
   * none, and keep the keys that AWS owns. Its key policy must leave its use to the account's IAM.
   *
   * @default - the key that AWS manages for DynamoDB, and S3's own
   */
  readonly ledgerKey?: IKey;

  /**
   * How long payloads are kept that are too large for a record. Longer than any `retention` of your
   * sources: an event that runs later than that, as by a late replay, is parked as
   * `payload_missing`.
   *
   * The providers whose records are kept longest need 93 days. The rest is for what waits before
   * its retention begins: a month of attempts, or of nobody looking at what is parked.
   *
   * @default Duration.days(125)
   */
  readonly payloadRetention?: Duration;

  /**
   * Where deliveries arrive. An HTTP API costs a dollar a million, and can have a domain of your
   * own, throttling and a log of who called. A change of it changes the address.
   *
   * @default 'FunctionUrl'
   */
  readonly receiverEndpoint?: 'FunctionUrl' | 'HttpApi';

  /**
   * `Fifo`: the events of one object are worked on one after the other, in the order of their
   * claims; one that fails holds up those behind it, while it waits for less than fifteen minutes. A
   * change of it makes another queue: events in the old one are enqueued again by the sweeper.
   *
   * @default 'Standard'
   */
  readonly queueType?: 'Standard' | 'Fifo';

  /**
   * What the functions were built for.
   *
   * @default Architecture.ARM_64
   */
  readonly architecture?: Architecture;

  /**
   * The receiver's memory, MiB. At 128 it has a thirteenth of a processor: its first TLS handshakes
   * would take longer than some providers wait.
   *
   * @default 256
   */
  readonly receiverMemorySize?: number;

  /**
   * The worker's memory, MiB.
   *
   * @default 256
   */
  readonly workerMemorySize?: number;

  /**
   * The sweeper's memory, MiB.
   *
   * @default 256
   */
  readonly sweeperMemorySize?: number;

  /**
   * Receiver invocations at the same time, taken from the account's for this function alone. Its
   * URL is public: without this a flood takes the concurrency of every other function in the
   * region. Deliveries beyond it are answered 429, and come again.
   *
   * @default - no limit of its own
   */
  readonly receiverReservedConcurrency?: number;

  /**
   * Worker invocations at the same time, each with up to ten events, 2 to 1000. What your handlers
   * and destinations can take.
   *
   * @default 10
   */
  readonly workerMaxConcurrency?: number;

  /**
   * Of what is logged beside the line per delivery and attempt, which always is.
   *
   * @default 'info'
   */
  readonly logLevel?: 'error' | 'warn' | 'info' | 'debug';

  /**
   * How long logs are kept.
   *
   * @default RetentionDays.ONE_MONTH
   */
  readonly logRetention?: RetentionDays;

  /**
   * X-Ray. `ACTIVE` samples invocations; `PASS_THROUGH` follows what the caller decided.
   *
   * @default Tracing.PASS_THROUGH
   */
  readonly tracing?: Tracing.ACTIVE | Tracing.PASS_THROUGH;

  /**
   * Where alarms are sent, and their end.
   *
   * @default - nowhere: they only show on the dashboard
   */
  readonly alarmTopic?: ITopic;

  /**
   * Alarm once an event is open for longer; at least a minute. By default a failing event is tried
   * for about a day.
   *
   * @default Duration.hours(1)
   */
  readonly oldestOpen?: Duration;

  /**
   * Alarm from so many deliveries in five minutes whose signature or timestamp is wrong.
   *
   * @default 25
   */
  readonly rejectionSurge?: number;

  /**
   * Alarm if more of the events are duplicates for fifteen minutes, percent: answers come too late
   * for the provider's patience, or it resends.
   *
   * @default 50
   */
  readonly duplicatePercent?: number;
}
