/**
 * The functions' own metrics (namespace `hookonce`) are per source, and shared by all deployments
 * of an account and region: one's sweeper would answer for another's, and an alarm can neither
 * search nor sum over sources it does not know. So alarms read what these filters make of the same
 * log lines, in a namespace of this deployment alone and without dimensions.
 *
 * @module
 */
import { Duration } from 'aws-cdk-lib';
import { Metric, type MetricOptions, Stats, Unit } from 'aws-cdk-lib/aws-cloudwatch';
import { FilterPattern, type ILogGroup, MetricFilter } from 'aws-cdk-lib/aws-logs';
import type { Construct } from 'constructs';

interface Counter {
  readonly log: 'receiver' | 'sweeper';
  /** The construct's id. */
  readonly filter: string;
  /** The lines that count. */
  readonly pattern: string;
  /** Their field that is counted. */
  readonly field: string;
  readonly unit?: Unit;
}

/** By the metric's name. The receiver counts; the sweeper tells, with each pass, what it found. */
const COUNTERS = {
  webhook_events_new: {
    log: 'receiver',
    filter: 'NewFilter',
    pattern: '{ $.webhook_events_total = * && $.result = "new" }',
    field: 'webhook_events_total',
  },
  webhook_events_duplicate: {
    log: 'receiver',
    filter: 'DuplicateFilter',
    pattern: '{ $.webhook_events_total = * && $.result = "duplicate" }',
    field: 'webhook_events_total',
  },
  // Without those that have no signature, or go to unknown paths: the internet's background noise.
  webhook_rejected_unverified: {
    log: 'receiver',
    filter: 'UnverifiedFilter',
    pattern:
      '{ $.webhook_rejected_total = * && ($.reason = "bad_signature" || $.reason = ' +
      '"stale_timestamp" || $.reason = "future_timestamp") }',
    field: 'webhook_rejected_total',
  },
  webhook_rejected_unidentifiable: {
    log: 'receiver',
    filter: 'UnidentifiableFilter',
    pattern:
      '{ $.webhook_rejected_total = * && ($.reason = "unidentifiable" || $.reason = ' +
      '"payload_too_large" || $.reason = "too_many_events") }',
    field: 'webhook_rejected_total',
  },
  open_events: gauge('OpenFilter', 'open_events'),
  stuck_processing: gauge('StuckFilter', 'stuck_processing'),
  parked_events: gauge('ParkedFilter', 'parked_events'),
  swept_failed_total: gauge('SweptFailedFilter', 'swept_failed_total'),
  oldest_open_seconds: gauge('OldestOpenFilter', 'oldest_open_seconds', Unit.SECONDS),
  sweeper_heartbeat: gauge('HeartbeatFilter', 'sweeper_heartbeat'),
} satisfies Record<string, Counter>;

/** A metric of one deployment. */
export type MetricName = keyof typeof COUNTERS;

function gauge(filter: string, field: string, unit?: Unit): Counter {
  return { log: 'sweeper', filter, pattern: `{ $.${field} = * }`, field, unit };
}

/** Makes the metrics of one deployment. */
export function countLines(
  scope: Construct,
  namespace: string,
  logs: Record<Counter['log'], ILogGroup>,
): void {
  for (const [metricName, counter] of Object.entries<Counter>(COUNTERS)) {
    new MetricFilter(scope, counter.filter, {
      logGroup: logs[counter.log],
      filterPattern: FilterPattern.literal(counter.pattern),
      metricNamespace: namespace,
      metricName,
      metricValue: `$.${counter.field}`,
      // No pass is not a pass that found nothing.
      defaultValue: counter.log === 'receiver' ? 0 : undefined,
      unit: counter.unit,
    });
  }
}

/** One of them: sums over five minutes of what is counted, the highest in a minute of a gauge. */
export function metric(namespace: string, metricName: MetricName, options?: MetricOptions): Metric {
  const counted = COUNTERS[metricName].log === 'receiver';
  return new Metric({
    namespace,
    metricName,
    statistic: counted ? Stats.SUM : Stats.MAXIMUM,
    period: counted ? Duration.minutes(5) : Duration.minutes(1),
    ...options,
  });
}
