import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { Duration, Stack } from 'aws-cdk-lib';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Architecture, Tracing } from 'aws-cdk-lib/aws-lambda';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { type ISecret, Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { type IParameter, StringParameter } from 'aws-cdk-lib/aws-ssm';
import { Configuration } from '../lib/index.js';
import { ARGUED, alike } from './argued.js';
import { NEW_APP, type Settings, deploy, synthesised } from './stacks.js';
import {
  type Difference,
  type Json,
  type JsonMap,
  type Resource,
  type Template,
  differences,
  normalised,
} from './template.js';

const package_ = join(import.meta.dirname, '../..');

/** `template.yaml`, by AWS's own translator. */
const sam = JSON.parse(
  execFileSync(
    process.env.PYTHON ?? 'python3',
    [join(package_, 'test/transform.py'), join(package_, '../../template.yaml')],
    { encoding: 'utf8', env: { AWS_DEFAULT_REGION: 'us-east-1', ...process.env } },
  ),
) as Template;

/** Names of `template.yaml` for those that the construct gives otherwise. */
const NAMES: Record<string, string> = {
  'Receiver/invoke-function-url': 'ReceiverUrlPermission',
  'Receiver/invoke-function': 'ReceiverUrlInvokePermission',
};

function comparable(template: Template): Json {
  const name = (id: string): string => {
    const path = String(template.Resources[id]?.Metadata?.['aws:cdk:path'] ?? id);
    const own = path.replace(/^hookonce\/Hookonce\//, '').replace(/\/Resource$/, '');
    return NAMES[own] ?? own.replaceAll('/', '');
  };
  return alike(normalised(template, {}, name));
}

function compare(parameters: Record<string, Json>, settings: Settings): Difference[] {
  const expected = alike(normalised(sam, parameters));
  return differences(expected, comparable(synthesised(deploy(settings))));
}

const byDefault = comparable(synthesised(deploy()));

const argued = ({ path, sam, cdk }: Difference): boolean =>
  ARGUED.some(({ where, is }) => where.test(path) && is(sam, cdk));

const unargued = (found: Difference[]): Difference[] => found.filter((one) => !argued(one));

/** Where what lives outside the stack is named. */
const outside = new Stack();

const arn = (service: string, resource: string): string =>
  `arn:aws:${service}:eu-central-1:111122223333:${resource}`;

const secret = (name: string): ISecret =>
  Secret.fromSecretCompleteArn(outside, name, arn('secretsmanager', `secret:${name}-AbCdEf`));

const parameter = (name: string): IParameter =>
  StringParameter.fromSecureStringParameterAttributes(outside, name, { parameterName: name });

/** As the construct names a parameter by its ARN. */
const parameterArn = (name: string): string =>
  `arn:\${AWS::Partition}:ssm:\${AWS::Region}:\${AWS::AccountId}:parameter${name}`;

const LEDGER_KEY = arn('kms', 'key/1e0d6f4a-0000-4000-8000-000000000000');

const EVERYTHING: { parameters: Record<string, Json>; settings: Settings } = {
  parameters: {
    ConfigurationParameter: '/prod/hooks',
    ReceiverSecretArns: [
      arn('secretsmanager', 'secret:stripe-AbCdEf'),
      parameterArn('/github'),
    ].join(),
    WorkerSecretArns: arn('secretsmanager', 'secret:forward-AbCdEf'),
    SecretKeyArns: arn('kms', 'key/secrets'),
    LedgerKeyArn: LEDGER_KEY,
    PayloadRetentionDays: 400,
    ReceiverEndpoint: 'HttpApi',
    QueueType: 'Fifo',
    Architecture: 'x86_64',
    ReceiverMemory: 512,
    WorkerMemory: 1024,
    SweeperMemory: 128,
    ReceiverReservedConcurrency: 50,
    WorkerMaximumConcurrency: 2,
    LogLevel: 'debug',
    LogRetentionDays: 7,
    Tracing: 'Active',
    AlarmTopicArn: arn('sns', 'on-call'),
    OldestOpenSeconds: 120,
    RejectionSurge: 3,
    DuplicatePercent: 10,
  },
  settings: {
    configuration: Configuration.fromParameterName('/prod/hooks'),
    receiverSecrets: [secret('stripe'), parameter('/github')],
    workerSecrets: [secret('forward')],
    secretKeys: [Key.fromKeyArn(outside, 'SecretsKey', arn('kms', 'key/secrets'))],
    ledgerKey: Key.fromKeyArn(outside, 'LedgerKey', LEDGER_KEY),
    payloadRetention: Duration.days(400),
    receiverEndpoint: 'HttpApi',
    queueType: 'Fifo',
    architecture: Architecture.X86_64,
    receiverMemorySize: 512,
    workerMemorySize: 1024,
    sweeperMemorySize: 128,
    receiverReservedConcurrency: 50,
    workerMaxConcurrency: 2,
    logLevel: 'debug',
    logRetention: RetentionDays.ONE_WEEK,
    tracing: Tracing.ACTIVE,
    alarmTopic: Topic.fromTopicArn(outside, 'Topic', arn('sns', 'on-call')),
    oldestOpen: Duration.minutes(2),
    rejectionSurge: 3,
    duplicatePercent: 10,
  },
};

test('by default the construct makes what the template makes', () => {
  assert.deepEqual(unargued(compare({}, {})), []);
});

test('the feature flags of a new app change nothing', () => {
  assert.deepEqual(comparable(synthesised(deploy({}, NEW_APP))), byDefault);
});

test('with everything set the construct makes what the template makes', () => {
  assert.deepEqual(unargued(compare(EVERYTHING.parameters, EVERYTHING.settings)), []);
});

test('a configuration inline is the same in both', () => {
  const configuration = { sources: { stripe: { provider: 'stripe' } } };
  const found = compare(
    { Configuration: JSON.stringify(configuration) },
    { configuration: Configuration.inline(configuration) },
  );
  assert.deepEqual(unargued(found), []);
});

test('every parameter of the template is compared at another value than its default', () => {
  const compared = new Set([...Object.keys(EVERYTHING.parameters), 'Configuration']);
  assert.deepEqual(compared, new Set(Object.keys(sam.Parameters ?? {})));
  for (const [name, value] of Object.entries(EVERYTHING.parameters)) {
    assert.notEqual(value, sam.Parameters?.[name]?.Default, name);
  }
});

test('every argued difference is one', () => {
  const found = compare({}, {});
  for (const { where, why, is } of ARGUED) {
    assert.ok(found.some(({ path, sam, cdk }) => where.test(path) && is(sam, cdk)), why);
  }
});

/** Faults, each in a place of another kind. */
const FAULTS: Record<string, (template: Template) => void> = {
  'a timeout': ({ Resources }) => change(Resources.Worker, 'Timeout', 30),
  'a right more': ({ Resources }) => {
    const [policy] = Resources.WorkerRole?.Properties?.Policies as JsonMap[];
    const { Statement } = policy?.PolicyDocument as { Statement: JsonMap[] };
    (Statement[0]?.Action as string[]).push('dynamodb:PutItem');
  },
  'a widget': ({ Resources }) => {
    const { DashboardBody } = Resources.Dashboard?.Properties as { DashboardBody: JsonMap };
    const [body, variables = {}] = DashboardBody['Fn::Sub'] as Json[];
    DashboardBody['Fn::Sub'] = [String(body).replace('open_events', 'open'), variables];
  },
  'another function behind the URL': ({ Resources }) => {
    change(Resources.ReceiverUrl, 'TargetFunctionArn', { Ref: 'Worker' });
  },
  'a resource less': ({ Resources }) => {
    delete Resources.ParkedAlarm;
  },
  'a deletion policy': ({ Resources }) => {
    Object.assign(Resources.Ledger ?? {}, { DeletionPolicy: 'Delete' });
  },
  'an output less': ({ Outputs }) => {
    delete Outputs?.QueueUrl;
  },
};

function change(resource: Resource | undefined, property: string, value: Json): void {
  assert.ok(resource?.Properties && property in resource.Properties, property);
  resource.Properties[property] = value;
}

for (const [what, fault] of Object.entries(FAULTS)) {
  test(`${what} in the template is found`, () => {
    const changed = structuredClone(sam);
    fault(changed);
    const expected = alike(normalised(changed));
    assert.equal(unargued(differences(expected, byDefault)).length, 1);
  });
}
