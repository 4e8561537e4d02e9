import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Stack } from 'aws-cdk-lib';
import { Tracing } from 'aws-cdk-lib/aws-lambda';
import type { CfnBucket } from 'aws-cdk-lib/aws-s3';
import { AwsSolutionsChecks } from 'cdk-nag';
import { deploy } from './stacks.js';

/** Everything that comes with a prop and may be complained of. */
const settings = {
  tracing: Tracing.ACTIVE,
  receiverEndpoint: 'HttpApi',
  queueType: 'Fifo',
} as const;

/** As if nothing were acknowledged. */
class Strict extends AwsSolutionsChecks {
  public constructor() {
    super();
    Object.assign(this, { isAcknowledged: () => false });
  }
}

test('cdk-nag finds nothing that is not acknowledged', () => {
  for (const made of [deploy(), deploy(settings)]) {
    assert.deepEqual(new AwsSolutionsChecks().validateScope(made).violations, []);
  }
});

test('what is acknowledged would be found', () => {
  const made = deploy(settings);
  const bucket = Stack.of(made).getLogicalId(made.payloads.node.defaultChild as CfnBucket);
  const { violations } = new Strict().validateScope(made);
  const found = violations.flatMap(({ ruleName, violatingResources }) =>
    violatingResources.map(({ constructPath }) => `${ruleName} ${constructPath}`),
  );
  assert.deepEqual(found.toSorted(), [
    'AwsSolutions-APIG4 hookonce/Hookonce/ReceiverApiRoute',
    'AwsSolutions-IAM5[Resource::*] hookonce/Hookonce/ReceiverRole/Resource',
    'AwsSolutions-IAM5[Resource::*] hookonce/Hookonce/SweeperRole/Resource',
    'AwsSolutions-IAM5[Resource::*] hookonce/Hookonce/WorkerRole/Resource',
    `AwsSolutions-IAM5[Resource::<${bucket}.Arn>/*] hookonce/Hookonce/ReceiverRole/Resource`,
    `AwsSolutions-IAM5[Resource::<${bucket}.Arn>/*] hookonce/Hookonce/WorkerRole/Resource`,
    'AwsSolutions-S1 hookonce/Hookonce/Payloads/Resource',
    'AwsSolutions-SQS4 hookonce/Hookonce/DeadLetterQueue/Resource',
    'AwsSolutions-SQS4 hookonce/Hookonce/Queue/Resource',
  ]);
});
