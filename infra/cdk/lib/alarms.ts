import { Duration } from 'aws-cdk-lib';
import {
  Alarm,
  type AlarmProps,
  ComparisonOperator,
  MathExpression,
  Metric,
  Stats,
  TreatMissingData,
} from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import type { Hookonce } from './hookonce.js';
import { OPEN_BY_DUE } from './limits.js';
import type { HookonceProps } from './props.js';

/** What calls for a person. `docs/runbook.md` says what to do about each. */
export interface HookonceAlarms {
  /** Events are parked. */
  readonly parked: Alarm;
  /** Events whose worker has outlived its lease stay where they are. */
  readonly stuck: Alarm;
  /** An event is open for too long. */
  readonly oldestOpen: Alarm;
  /** No sweep was complete for five minutes. */
  readonly sweeperSilent: Alarm;
  /** The sweeper cannot read or move records. */
  readonly sweepFailing: Alarm;
  /** The dead-letter queue is not empty. */
  readonly deadLetter: Alarm;
  /** Providers were answered 5xx. */
  readonly receiverFailing: Alarm;
  /** Authentic deliveries have no event id. */
  readonly unidentifiable: Alarm;
  /** Many deliveries do not verify. */
  readonly rejectionSurge: Alarm;
  /** Many events are duplicates. */
  readonly duplicates: Alarm;
  /** The receiver is throttled. */
  readonly receiverThrottles: Alarm;
  /** The worker is throttled. */
  readonly workerThrottles: Alarm;
  /** Writes to the ledger are throttled. */
  readonly ledgerThrottles: Alarm;
  /** Writes to the ledger's index are throttled. */
  readonly ledgerIndexThrottles: Alarm;
}

/** Makes the alarms, in the order in which the dashboard shows them. */
export function alarms(hookonce: Hookonce, props: HookonceProps): HookonceAlarms {
  const action = props.alarmTopic && new SnsAction(props.alarmTopic);
  const alarm = (id: string, settings: Settings): Alarm => {
    const alarm = new Alarm(hookonce, `${id}Alarm`, {
      comparisonOperator: ComparisonOperator.GREATER_THAN_THRESHOLD,
      evaluationPeriods: 1,
      threshold: 0,
      treatMissingData: TreatMissingData.NOT_BREACHING,
      ...settings,
    });
    if (action) {
      alarm.addAlarmAction(action);
      alarm.addOkAction(action);
    }
    return alarm;
  };
  return {
    ...backlogAlarms(hookonce, props, alarm),
    ...deliveryAlarms(hookonce, props, alarm),
    ...throttleAlarms(hookonce, alarm),
  };
}

type Settings = Partial<AlarmProps> & Pick<AlarmProps, 'metric' | 'alarmDescription'>;
type MakeAlarm = (id: string, settings: Settings) => Alarm;

/** A missing gauge keeps its alarm as it is: that the sweeper is silent is said elsewhere. */
function backlogAlarms(hookonce: Hookonce, props: HookonceProps, alarm: MakeAlarm) {
  const oldestOpen = props.oldestOpen ?? Duration.hours(1);
  return {
    parked: alarm('Parked', {
      alarmDescription:
        'Events are parked. Nothing more happens to them until a person decides.',
      metric: hookonce.metricParked(),
      treatMissingData: TreatMissingData.IGNORE,
    }),
    stuck: alarm('Stuck', {
      alarmDescription:
        'For fifteen minutes there were events whose worker has outlived its lease, and nobody ' +
        'took them over. Is the worker running, and is its queue being read?',
      metric: hookonce.metricStuck(),
      evaluationPeriods: 15,
      treatMissingData: TreatMissingData.IGNORE,
    }),
    oldestOpen: alarm('OldestOpen', {
      alarmDescription:
        "The oldest open event is too old. The queue's own age says less: it leaves out what was " +
        'received three times.',
      metric: hookonce.metricOldestOpen(),
      evaluationPeriods: 3,
      threshold: oldestOpen.toSeconds(),
      treatMissingData: TreatMissingData.IGNORE,
    }),
    sweeperSilent: alarm('SweeperSilent', {
      alarmDescription:
        'For five minutes no sweep was complete. What a crash leaves behind stays there, and the ' +
        'gauges are old.',
      metric: hookonce.metricSweeperHeartbeat(),
      evaluationPeriods: 5,
      comparisonOperator: ComparisonOperator.LESS_THAN_THRESHOLD,
      threshold: 1,
      treatMissingData: TreatMissingData.BREACHING,
    }),
    sweepFailing: alarm('SweepFailing', {
      alarmDescription:
        'For fifteen minutes there were due records that the sweeper could not read or move. ' +
        'Nothing else looks after them; its log names them.',
      metric: hookonce.metricSweptFailed(),
      evaluationPeriods: 15,
      treatMissingData: TreatMissingData.IGNORE,
    }),
  };
}

function deliveryAlarms(hookonce: Hookonce, props: HookonceProps, alarm: MakeAlarm) {
  return {
    deadLetter: alarm('DeadLetter', {
      alarmDescription:
        'Messages that the worker cannot read, or could not finish with, lie in the dead-letter ' +
        'queue.',
      metric: hookonce.deadLetterQueue.metricApproximateNumberOfMessagesVisible({
        statistic: Stats.MAXIMUM,
        period: Duration.minutes(1),
      }),
    }),
    // One is enough: a provider may come only once an hour, and gives up in the end.
    receiverFailing: alarm('ReceiverFailing', {
      alarmDescription:
        'Providers were answered 5xx: deliveries could not be recorded, or the receiver does not ' +
        "start. They will be sent again, for as long as the provider's patience lasts.",
      metric: (hookonce.receiverApi
        ? hookonce.receiverApi.metric('5xx')
        : hookonce.receiver.metric('Url5xxCount')
      ).with({ statistic: Stats.SUM }),
    }),
    unidentifiable: alarm('Unidentifiable', {
      alarmDescription:
        'Authentic deliveries have no event id where the catalogue says, and are answered 422: ' +
        'the provider file does not fit, and events are being lost.',
      metric: hookonce.metricUnidentifiable(),
    }),
    rejectionSurge: alarm('RejectionSurge', {
      alarmDescription:
        'Many deliveries do not verify: somebody is guessing, or a secret was rotated on one ' +
        'side only, and then these are real events.',
      metric: hookonce.metricUnverified(),
      comparisonOperator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      threshold: props.rejectionSurge ?? 25,
    }),
    duplicates: alarm('Duplicates', {
      alarmDescription:
        'Too many of the events are duplicates: the receiver answers later than a provider ' +
        'waits, or a provider resends.',
      metric: hookonce.metricDuplicatePercent(),
      evaluationPeriods: 3,
      threshold: props.duplicatePercent ?? 50,
    }),
  };
}

function throttleAlarms(hookonce: Hookonce, alarm: MakeAlarm) {
  const often = { evaluationPeriods: 5, datapointsToAlarm: 3 };
  const eachMinute = { statistic: Stats.SUM, period: Duration.minutes(1) };
  const writes = (dimensions: Record<string, string>): Metric =>
    new Metric({
      namespace: 'AWS/DynamoDB',
      metricName: 'WriteThrottleEvents',
      dimensionsMap: { TableName: hookonce.ledger.tableName, ...dimensions },
      ...eachMinute,
    });
  return {
    receiverThrottles: alarm('ReceiverThrottles', {
      alarmDescription:
        "Lambda has no room for the receiver: the account's concurrency is used up, and " +
        'providers are answered 429.',
      metric: hookonce.receiver.metricThrottles(eachMinute),
      ...often,
    }),
    workerThrottles: alarm('WorkerThrottles', {
      alarmDescription:
        "Lambda has no room for the worker: the account's concurrency is used up. Events wait in " +
        'the queue.',
      metric: hookonce.worker.metricThrottles(eachMinute),
      ...often,
    }),
    ledgerThrottles: alarm('LedgerThrottles', {
      alarmDescription:
        'DynamoDB throttles writes to the ledger: traffic grew faster than an on-demand table ' +
        'does. Deliveries that cannot be claimed are answered 503.',
      metric: writes({}),
      ...often,
    }),
    ledgerIndexThrottles: alarm('LedgerIndexThrottles', {
      alarmDescription:
        "DynamoDB throttles writes to the ledger's index, and with them those to the ledger.",
      metric: writes({ GlobalSecondaryIndexName: OPEN_BY_DUE }),
      ...often,
    }),
  };
}

/** Of a handful of events any share may be duplicates. */
export function duplicatePercent(first: Metric, again: Metric): MathExpression {
  return new MathExpression({
    expression: 'IF(first + again >= 20, 100 * again / (first + again), 0)',
    usingMetrics: { first, again },
    label: 'duplicates, percent',
    period: Duration.minutes(5),
  });
}
