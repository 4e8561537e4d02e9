import { Aws } from 'aws-cdk-lib';
import { ConcreteWidget, Dashboard } from 'aws-cdk-lib/aws-cloudwatch';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import type { Hookonce } from './hookonce.js';
import { OPEN_BY_DUE } from './limits.js';
import type { MetricName } from './metrics.js';

/**
 * Widgets may search, so what is per source is found whatever the sources are called. Those found
 * are of every deployment in the account and region; backlog, queue, table and functions are this
 * one's alone.
 */
export function dashboard(hookonce: Hookonce): Dashboard {
  const alarms = Object.values(hookonce.alarms).map((alarm) => alarm.alarmArn);
  return new Dashboard(hookonce, 'Dashboard', {
    widgets: [
      [new Widget('alarm', 24, 3, { title: 'Alarms', alarms })],
      ...searched(),
      ...ownGauges(hookonce),
      ...resources(hookonce),
      functions(hookonce),
    ],
  });
}

/** A widget as CloudWatch takes it: the same text as in `template.yaml`. */
class Widget extends ConcreteWidget {
  public constructor(
    private readonly type: string,
    width: number,
    height: number,
    private readonly properties: object,
  ) {
    super(width, height);
  }

  public override toJson(): object[] {
    const { type, x, y, width, height, properties } = this;
    return [{ type, x, y, width, height, properties }];
  }
}

type Line = readonly unknown[];

function graph(title: string, metrics: Line[], common: object = {}): Widget {
  return new Widget('metric', 8, 6, { title, region: Aws.REGION, ...common, metrics });
}

/** A metric of every source. */
function search(id: string, name: string, by: string, stat = 'Sum', options: object = {}): Line {
  const expression = `SEARCH('{hookonce,source,${by}} MetricName="${name}"', '${stat}', 60)`;
  return [{ expression, id, ...options }];
}

function searched(): Widget[][] {
  const [result, outcome] = ['result', 'outcome'];
  return [
    [
      graph('Events by source and result', [search('events', 'webhook_events_total', result)]),
      graph('Rejected by source and reason', [
        search('rejected', 'webhook_rejected_total', 'reason'),
      ]),
      graph('Answers and claims, p99 ms', [
        search('ack', 'ack_ms', result, 'p99'),
        search('claim', 'claim_ms', result, 'p99'),
      ]),
    ],
    [
      graph('Attempts by outcome', [search('outcomes', 'worker_outcomes_total', outcome)]),
      graph('Steps', [search('steps', 'steps_total', 'step,outcome')]),
      graph('Received to done, p50 and p99 ms; attempts', [
        search('median', 'end_to_end_ms', outcome, 'p50'),
        search('slowest', 'end_to_end_ms', outcome, 'p99'),
        search('attempts', 'attempts_per_event', outcome, 'Maximum', { yAxis: 'right' }),
      ]),
    ],
  ];
}

function ownGauges(hookonce: Hookonce): Widget[][] {
  const gauge = (name: MetricName, ...options: object[]): Line => [
    hookonce.metricNamespace,
    name,
    ...options,
  ];
  const highest = shared('Maximum');
  return [
    [
      graph(
        'Open, stuck, parked, not swept',
        [
          gauge('open_events'),
          gauge('stuck_processing'),
          gauge('parked_events'),
          gauge('swept_failed_total'),
        ],
        highest,
      ),
      graph(
        'Oldest open event and message, s; heartbeat',
        [
          gauge('oldest_open_seconds'),
          ['AWS/SQS', 'ApproximateAgeOfOldestMessage', 'QueueName', hookonce.queue.queueName],
          gauge('sweeper_heartbeat', { stat: 'Sum', yAxis: 'right' }),
        ],
        highest,
      ),
      graph('Out of the ordinary', [
        search('deferred', 'enqueue_deferred_total', 'result'),
        search('mismatch', 'payload_mismatch_total', 'result'),
        search('lost', 'lease_lost_total', 'outcome'),
        search('orphan', 'orphan_message_total', 'outcome'),
      ]),
    ],
  ];
}

function resources(hookonce: Hookonce): Widget[][] {
  const { queue, deadLetterQueue, ledger } = hookonce;
  const messages = (name: string, of: typeof queue): Line => [
    'AWS/SQS',
    `ApproximateNumberOfMessages${name}`,
    'QueueName',
    of.queueName,
  ];
  const table = (name: string, ...more: string[]): Line => [
    'AWS/DynamoDB',
    name,
    'TableName',
    ledger.tableName,
    ...more,
  ];
  return [
    [
      graph(
        'Messages',
        [
          messages('Visible', queue),
          messages('NotVisible', queue),
          messages('Visible', deadLetterQueue),
        ],
        shared('Maximum'),
      ),
      graph(
        'Ledger',
        [
          table('ConditionalCheckFailedRequests'),
          table('ConsumedWriteCapacityUnits'),
          table('WriteThrottleEvents'),
          table('ReadThrottleEvents'),
          table('WriteThrottleEvents', 'GlobalSecondaryIndexName', OPEN_BY_DUE),
        ],
        shared('Sum'),
      ),
      graph('Endpoint', endpoint(hookonce), shared('Sum')),
    ],
  ];
}

function endpoint({ receiver, receiverApi }: Hookonce): Line[] {
  const slowest = { stat: 'p99', yAxis: 'right' };
  if (receiverApi) {
    const api = (name: string): Line => ['AWS/ApiGateway', name, 'ApiId', receiverApi.apiId];
    return [api('Count'), api('4xx'), api('5xx'), [...api('Latency'), slowest]];
  }
  return [
    lambda('UrlRequestCount', receiver),
    lambda('Url4xxCount', receiver),
    lambda('Url5xxCount', receiver),
    lambda('UrlRequestLatency', receiver, slowest),
  ];
}

function functions({ receiver, worker, sweeper }: Hookonce): Widget[] {
  const each = (name: string): Line[] => [receiver, worker, sweeper].map((of) => lambda(name, of));
  const failures = [...each('Errors'), ...each('Throttles')];
  return [
    graph('Function errors and throttles', failures, shared('Sum')),
    graph('Function duration, p99 ms', each('Duration'), shared('p99')),
    graph('Function concurrency', each('ConcurrentExecutions'), shared('Maximum')),
  ];
}

function lambda(name: string, of: IFunction, ...options: object[]): Line {
  return ['AWS/Lambda', name, 'FunctionName', of.functionName, ...options];
}

function shared(stat: string): object {
  return { stat, period: 60 };
}
