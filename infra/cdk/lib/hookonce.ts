import { Aws, Duration, RemovalPolicy, Stack, Token, Validations } from 'aws-cdk-lib';
import type { HttpApi } from 'aws-cdk-lib/aws-apigatewayv2';
import type { Dashboard, MathExpression, Metric, MetricOptions } from 'aws-cdk-lib/aws-cloudwatch';
import {
  AttributeType,
  BillingMode,
  ProjectionType,
  Table,
  TableEncryption,
} from 'aws-cdk-lib/aws-dynamodb';
import {
  Policy,
  PolicyDocument,
  PolicyStatement,
  Role,
  ServicePrincipal,
} from 'aws-cdk-lib/aws-iam';
import {
  Architecture,
  type CfnFunction,
  EventSourceMapping,
  Function,
  type FunctionOptions,
  FunctionUrl,
  FunctionUrlAuthType,
  InvokeMode,
  Runtime,
  Tracing,
} from 'aws-cdk-lib/aws-lambda';
import { LogGroup, RetentionDays } from 'aws-cdk-lib/aws-logs';
import {
  BlockPublicAccess,
  Bucket,
  BucketEncryption,
  type CfnBucket,
  ObjectOwnership,
} from 'aws-cdk-lib/aws-s3';
import { CfnSchedule } from 'aws-cdk-lib/aws-scheduler';
import {
  DeduplicationScope,
  FifoThroughputLimit,
  Queue,
  QueueEncryption,
} from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { makeApi } from './api.js';
import { type HookonceAlarms, alarms, duplicatePercent } from './alarms.js';
import { type BoundConfiguration, Configuration } from './configuration.js';
import { dashboard } from './dashboard.js';
import * as limits from './limits.js';
import { countLines, metric } from './metrics.js';
import {
  type Arns,
  receiverStatements,
  sweeperStatements,
  useLedgerKey,
  workerStatements,
} from './policies.js';
import type { HookonceProps } from './props.js';

/**
 * Webhook idempotency: a receiver that records deliveries and answers them, a worker that makes the
 * effects of events take hold once, and a sweeper that finds what a crash left behind.
 *
 * The same resources as `template.yaml`. None has a fixed name.
 */
export class Hookonce extends Construct {
  /** Verifies, identifies, claims, enqueues, answers. */
  public readonly receiver: Function;
  /** Deliveries go to POST {url}webhooks/{source}. */
  public readonly url: string;
  /** Unless the endpoint is an HTTP API. */
  public readonly receiverUrl: FunctionUrl | undefined;
  /** If the endpoint is one. */
  public readonly receiverApi: HttpApi | undefined;
  /**
   * Payloads that fit on no record. It stays when the stack goes: records that stay name what lies
   * here.
   */
  public readonly payloads: Bucket;
  /** One record an event. It stays, with its deletion protection, when the stack goes. */
  public readonly ledger: Table;
  /** Event keys, not payloads. */
  public readonly queue: Queue;
  /** What has no record: messages that hookonce did not send. */
  public readonly deadLetterQueue: Queue;
  /** Leases, makes effects, completes. What your own handlers need is granted to it. */
  public readonly worker: Function;
  /** Enqueues again, or parks, events that are due. */
  public readonly sweeper: Function;
  /** What calls for a person. */
  public readonly alarms: HookonceAlarms;
  /** Alarms, metrics by source, backlog, and the resources' own metrics. */
  public readonly dashboard: Dashboard;
  /** Of the metrics that this deployment alone makes. */
  public readonly metricNamespace: string;
  /** Where the functions read their configuration: `ssm:NAME`, or `inline`. */
  public readonly configurationFrom: string;

  public constructor(scope: Construct, id: string, props: HookonceProps) {
    super(scope, id);
    checkRanges(props);
    const name = props.name ?? Aws.STACK_NAME;
    this.metricNamespace = `hookonce/${name}`;
    const from = props.configuration ?? Configuration.fromParameterName(`/${name}/config`);
    const configuration = from.bind(this);
    this.configurationFrom = configuration.arn ? configuration.variable : 'inline';

    this.payloads = this.makePayloads(props);
    this.ledger = this.makeLedger(props);
    this.deadLetterQueue = this.makeDeadLetterQueue(props);
    this.queue = this.makeQueue(props);
    this.receiver = this.makeReceiver(props, configuration);
    const api = props.receiverEndpoint === 'HttpApi' ? makeApi(this, name, props) : undefined;
    this.receiverApi = api;
    this.receiverUrl = api ? undefined : this.makeReceiverUrl();
    this.url = this.receiverUrl?.url ?? `${api?.apiEndpoint}/`;
    this.worker = this.makeWorker(props, configuration);
    this.sweeper = this.makeSweeper(props);
    this.scheduleSweeps();
    if (props.ledgerKey) {
      const functions = [this.receiver, this.worker, this.sweeper];
      const roles = functions.flatMap(({ role }) => role ?? []);
      const statements = [useLedgerKey(props.ledgerKey)];
      new Policy(this, 'LedgerKeyPolicy', { policyName: 'ledger-key', roles, statements });
    }

    const logs = { receiver: this.receiver.logGroup, sweeper: this.sweeper.logGroup };
    countLines(this, this.metricNamespace, logs);
    this.alarms = alarms(this, props);
    this.dashboard = dashboard(this);
  }

  /** New events, by default summed over five minutes. */
  public metricNew(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'webhook_events_new', options);
  }

  /** Deliveries of events that were there already, by default summed over five minutes. */
  public metricDuplicates(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'webhook_events_duplicate', options);
  }

  /** Duplicates among all events of five minutes, percent; 0 if there were fewer than twenty. */
  public metricDuplicatePercent(): MathExpression {
    return duplicatePercent(this.metricNew(), this.metricDuplicates());
  }

  /** Deliveries with a wrong signature or timestamp, by default summed over five minutes. */
  public metricUnverified(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'webhook_rejected_unverified', options);
  }

  /** Authentic deliveries without an event id, by default summed over five minutes. */
  public metricUnidentifiable(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'webhook_rejected_unidentifiable', options);
  }

  /** Events that are neither closed nor parked, by default the most in a minute. */
  public metricOpen(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'open_events', options);
  }

  /** Events whose worker has outlived its lease, by default the most in a minute. */
  public metricStuck(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'stuck_processing', options);
  }

  /** Events that wait for a person, by default the most in a minute. */
  public metricParked(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'parked_events', options);
  }

  /** Due records that a sweep could not read or move, by default the most in a minute. */
  public metricSweptFailed(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'swept_failed_total', options);
  }

  /** Age of the oldest open event, seconds, by default the highest in a minute. */
  public metricOldestOpen(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'oldest_open_seconds', options);
  }

  /** Complete sweeps, by default summed over a minute. */
  public metricSweeperHeartbeat(options?: MetricOptions): Metric {
    return metric(this.metricNamespace, 'sweeper_heartbeat', { statistic: 'Sum', ...options });
  }

  /**
   * One object a payload, put there before the claim that names it. Nobody deletes one but the
   * lifecycle, which takes what a crash left without a record as well. It goes by the day of the
   * put, and knows no record: parked events lose theirs too.
   *
   * No versions: an object is named by the digest of what it holds, so another put changes nothing.
   */
  private makePayloads({ ledgerKey, payloadRetention }: HookonceProps): Bucket {
    const bucket = new Bucket(this, 'Payloads', {
      encryption: ledgerKey ? BucketEncryption.KMS : BucketEncryption.S3_MANAGED,
      encryptionKey: ledgerKey,
      // One call to KMS for many objects.
      ...(ledgerKey && { bucketKeyEnabled: true }),
      lifecycleRules: [
        {
          expiration: payloadRetention ?? Duration.days(125),
          // The receiver makes none; what somebody else began is no payload.
          abortIncompleteMultipartUploadAfter: Duration.days(1),
        },
      ],
      objectOwnership: ObjectOwnership.BUCKET_OWNER_ENFORCED,
      blockPublicAccess: BlockPublicAccess.BLOCK_ALL,
      enforceSSL: true,
      removalPolicy: RemovalPolicy.RETAIN,
    });
    bucket.policy?.applyRemovalPolicy(RemovalPolicy.RETAIN);
    Validations.of(bucket).acknowledge({
      id: 'AwsSolutions-S1',
      reason:
        'Of two roles one puts and one gets, and their own lines say when: a log of it would be a ' +
        "second bucket to keep. CloudTrail's data events say who else did.",
    });
    return bucket;
  }

  /**
   * Losing it means that every event in a provider's resend window may take hold again: it stays
   * when the stack goes.
   */
  private makeLedger({ ledgerKey }: HookonceProps): Table {
    const ledger = new Table(this, 'Ledger', {
      billingMode: BillingMode.PAY_PER_REQUEST,
      partitionKey: { name: 'pk', type: AttributeType.STRING },
      timeToLiveAttribute: 'expires_at',
      pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },
      encryption: ledgerKey ? TableEncryption.CUSTOMER_MANAGED : TableEncryption.AWS_MANAGED,
      encryptionKey: ledgerKey,
      deletionProtection: true,
      removalPolicy: RemovalPolicy.RETAIN,
    });
    // Sparse: only records that are open or parked have its keys.
    ledger.addGlobalSecondaryIndex({
      indexName: limits.OPEN_BY_DUE,
      partitionKey: { name: 'queue_key', type: AttributeType.STRING },
      sortKey: { name: 'due_at', type: AttributeType.NUMBER },
      projectionType: ProjectionType.KEYS_ONLY,
    });
    return ledger;
  }

  private makeDeadLetterQueue({ queueType }: HookonceProps): Queue {
    const queue = new Queue(this, 'DeadLetterQueue', {
      ...(queueType === 'Fifo' && { fifo: true }),
      retentionPeriod: limits.DEAD_LETTER_RETENTION,
      encryption: QueueEncryption.SQS_MANAGED,
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledgeTransport(queue);
    return queue;
  }

  private makeQueue({ queueType }: HookonceProps): Queue {
    const queue = new Queue(this, 'Queue', {
      ...(queueType === 'Fifo' && FIFO),
      visibilityTimeout: limits.QUEUE_VISIBILITY,
      retentionPeriod: limits.QUEUE_RETENTION,
      encryption: QueueEncryption.SQS_MANAGED,
      deadLetterQueue: { queue: this.deadLetterQueue, maxReceiveCount: limits.MAX_RECEIVE_COUNT },
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledgeTransport(queue);
    return queue;
  }

  private makeReceiver(props: HookonceProps, configuration: BoundConfiguration): Function {
    return this.makeFunction('Receiver', props, configuration, receiverStatements, {
      description: 'Records webhook deliveries and acknowledges them once they are durable',
      memorySize: props.receiverMemorySize ?? 256,
      timeout: limits.RECEIVER_TIMEOUT,
      reservedConcurrentExecutions: props.receiverReservedConcurrency,
    });
  }

  /** Providers cannot sign for IAM: their signature is checked in the function. */
  private makeReceiverUrl(): FunctionUrl {
    return new FunctionUrl(this, 'ReceiverUrl', {
      function: this.receiver,
      authType: FunctionUrlAuthType.NONE,
      invokeMode: InvokeMode.BUFFERED,
    });
  }

  private makeWorker(props: HookonceProps, configuration: BoundConfiguration): Function {
    const worker = this.makeFunction('Worker', props, configuration, workerStatements, {
      description: 'Makes the effects of events take hold once',
      memorySize: props.workerMemorySize ?? 256,
      timeout: limits.WORKER_TIMEOUT,
    });
    new EventSourceMapping(this, 'WorkerEventKeys', {
      target: worker,
      eventSourceArn: this.queue.queueArn,
      batchSize: limits.BATCH_SIZE,
      reportBatchItemFailures: true,
      maxConcurrency: props.workerMaxConcurrency ?? 10,
    });
    return worker;
  }

  private makeSweeper(props: HookonceProps): Function {
    return this.makeFunction('Sweeper', props, undefined, sweeperStatements, {
      description: 'Enqueues again, or parks, events that are due',
      memorySize: props.sweeperMemorySize ?? 256,
      timeout: limits.SWEEPER_TIMEOUT,
      retryAttempts: 0,
      maxEventAge: limits.SWEEP_INTERVAL,
    });
  }

  private makeFunction(
    id: 'Receiver' | 'Worker' | 'Sweeper',
    props: HookonceProps,
    configuration: BoundConfiguration | undefined,
    statements: (arns: Arns, props: HookonceProps) => PolicyStatement[],
    options: FunctionOptions,
  ): Function {
    const name = id.toLowerCase() as Lowercase<typeof id>;
    const logGroup = new LogGroup(this, `${id}Log`, {
      retention: props.logRetention ?? RetentionDays.ONE_MONTH,
      removalPolicy: RemovalPolicy.DESTROY,
    });
    const arns = {
      payloads: this.payloads.bucketArn,
      ledger: this.ledger.tableArn,
      queue: this.queue.queueArn,
      log: logGroup.logGroupArn,
      configuration: configuration?.arn,
    };
    const role = new Role(this, `${id}Role`, {
      assumedBy: new ServicePrincipal('lambda.amazonaws.com'),
      inlinePolicies: {
        [name]: new PolicyDocument({ statements: statements(arns, props), minimize: false }),
      },
    });
    if (id !== 'Sweeper') {
      const bucket = Stack.of(this).getLogicalId(this.payloads.node.defaultChild as CfnBucket);
      const reason = 'Objects have no names before they are put.';
      Validations.of(role).acknowledge({
        id: `AwsSolutions-IAM5[Resource::<${bucket}.Arn>/*]`,
        reason,
      });
    }
    if (props.tracing === Tracing.ACTIVE) {
      const reason = 'X-Ray has no resources to name.';
      Validations.of(role).acknowledge({ id: 'AwsSolutions-IAM5[Resource::*]', reason });
    }
    const made = new Function(this, id, {
      ...options,
      runtime: Runtime.PROVIDED_AL2023,
      handler: 'bootstrap',
      code: props.code[name],
      architecture: props.architecture ?? Architecture.ARM_64,
      role,
      logGroup,
      environment: {
        HOOKONCE_TABLE: this.ledger.tableName,
        HOOKONCE_QUEUE_URL: this.queue.queueUrl,
        RUST_LOG: props.logLevel ?? 'info',
        ...(configuration && {
          HOOKONCE_CONFIG: configuration.variable,
          HOOKONCE_PAYLOADS_BUCKET: this.payloads.bucketName,
        }),
      },
    });
    // Set here, it comes without the rights that the construct would add whatever the mode.
    const mode = props.tracing === Tracing.ACTIVE ? 'Active' : 'PassThrough';
    (made.node.defaultChild as CfnFunction).tracingConfig = { mode };
    return made;
  }

  private scheduleSweeps(): void {
    const role = new Role(this, 'SweeperEachMinuteRole', {
      assumedBy: new ServicePrincipal('scheduler.amazonaws.com'),
      inlinePolicies: {
        SweeperEachMinuteLambdaPolicy: new PolicyDocument({
          statements: [
            new PolicyStatement({
              actions: ['lambda:InvokeFunction'],
              resources: [this.sweeper.functionArn],
            }),
          ],
        }),
      },
    });
    new CfnSchedule(this, 'SweeperEachMinute', {
      scheduleExpression: `rate(${limits.SWEEP_INTERVAL.toMinutes()} minute)`,
      flexibleTimeWindow: { mode: 'OFF' },
      target: {
        arn: this.sweeper.functionArn,
        roleArn: role.roleArn,
        retryPolicy: {
          maximumRetryAttempts: 0,
          maximumEventAgeInSeconds: limits.SWEEP_INTERVAL.toSeconds(),
        },
      },
    });
  }
}

/** Each object's events are a group, and groups do not wait for one another. */
const FIFO = {
  fifo: true,
  deduplicationScope: DeduplicationScope.MESSAGE_GROUP,
  fifoThroughputLimit: FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
};

/** cdk-nag wants a policy that refuses plain HTTP. */
function acknowledgeTransport(queue: Queue): void {
  Validations.of(queue).acknowledge({
    id: 'AwsSolutions-SQS4',
    reason:
      'Only roles of the account reach it, and the functions by HTTPS; a message has the key of ' +
      'an event, and no payload.',
  });
}

/** What CloudFormation would only refuse during a deployment. */
function checkRanges(props: HookonceProps): void {
  const ranges: [keyof HookonceProps, number | undefined, number, number][] = [
    ['receiverMemorySize', props.receiverMemorySize, 128, 10_240],
    ['workerMemorySize', props.workerMemorySize, 128, 10_240],
    ['sweeperMemorySize', props.sweeperMemorySize, 128, 10_240],
    ['receiverReservedConcurrency', props.receiverReservedConcurrency, 1, Infinity],
    ['workerMaxConcurrency', props.workerMaxConcurrency, 2, 1000],
    ['payloadRetention', props.payloadRetention?.toDays(), 1, Infinity],
    ['oldestOpen', props.oldestOpen?.toSeconds(), 60, Infinity],
    ['rejectionSurge', props.rejectionSurge, 1, Infinity],
    ['duplicatePercent', props.duplicatePercent, 1, 100],
  ];
  for (const [name, value, least, most] of ranges) {
    if (value === undefined || Token.isUnresolved(value)) continue;
    if (value < least || value > most) {
      throw new Error(`${name} is ${value}, and not from ${least} to ${most}`);
    }
  }
}
