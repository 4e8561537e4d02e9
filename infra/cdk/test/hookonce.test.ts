import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { App, Duration, Stack } from 'aws-cdk-lib';
import { Match, Template } from 'aws-cdk-lib/assertions';
import { AttributeType, Table } from 'aws-cdk-lib/aws-dynamodb';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Tracing } from 'aws-cdk-lib/aws-lambda';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { StringParameter } from 'aws-cdk-lib/aws-ssm';
import type { Construct } from 'constructs';
import { Configuration, Hookonce, codeFrom } from '../lib/index.js';
import { type Settings, built, deploy } from './stacks.js';

interface Statement {
  readonly Sid?: string;
  readonly Effect: string;
  readonly Action: string | string[];
  readonly Resource: unknown;
}

const templateOf = (one: Construct): Template => Template.fromStack(Stack.of(one));

function template(settings: Settings = {}): Template {
  return templateOf(deploy(settings));
}

/** What a function's role says, and what policies beside it add. */
function statements(of: Template, role: string): Statement[] {
  const [[id, found] = ['', undefined], ...more] = Object.entries(
    of.findResources('AWS::IAM::Role', {}),
  ).filter(([id]) => id.includes(`${role}Role`) && !id.includes('EachMinute'));
  assert.ok(found && more.length === 0, role);
  const beside = Object.values(of.findResources('AWS::IAM::Policy')).filter(({ Properties }) =>
    JSON.stringify(Properties.Roles).includes(id),
  );
  const documents = [
    ...found.Properties.Policies.map((one: { PolicyDocument: object }) => one.PolicyDocument),
    ...beside.map(({ Properties }) => Properties.PolicyDocument),
  ] as { Statement: Statement[] }[];
  return documents.flatMap(({ Statement }) => Statement);
}

function actions(of: Template, role: string): string[] {
  return statements(of, role).flatMap(({ Action }) => Action);
}

const FUNCTIONS = ['Receiver', 'Worker', 'Sweeper'];

test('the ledger expires records, finds open ones, and stays', () => {
  template().hasResource('AWS::DynamoDB::Table', {
    DeletionPolicy: 'Retain',
    UpdateReplacePolicy: 'Retain',
    Properties: {
      BillingMode: 'PAY_PER_REQUEST',
      DeletionProtectionEnabled: true,
      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true },
      SSESpecification: { SSEEnabled: true },
      TimeToLiveSpecification: { AttributeName: 'expires_at', Enabled: true },
      GlobalSecondaryIndexes: [
        {
          IndexName: 'open-by-due',
          KeySchema: [
            { AttributeName: 'queue_key', KeyType: 'HASH' },
            { AttributeName: 'due_at', KeyType: 'RANGE' },
          ],
          Projection: { ProjectionType: 'KEYS_ONLY' },
        },
      ],
    },
  });
});

test('the bucket of payloads is private, forgets, and stays', () => {
  const made = template({ payloadRetention: Duration.days(200) });
  made.hasResource('AWS::S3::Bucket', {
    DeletionPolicy: 'Retain',
    UpdateReplacePolicy: 'Retain',
    Properties: {
      BucketEncryption: Match.anyValue(),
      LifecycleConfiguration: {
        Rules: [
          {
            Status: 'Enabled',
            ExpirationInDays: 200,
            AbortIncompleteMultipartUpload: { DaysAfterInitiation: 1 },
          },
        ],
      },
      OwnershipControls: { Rules: [{ ObjectOwnership: 'BucketOwnerEnforced' }] },
      PublicAccessBlockConfiguration: {
        BlockPublicAcls: true,
        BlockPublicPolicy: true,
        IgnorePublicAcls: true,
        RestrictPublicBuckets: true,
      },
    },
  });
  made.hasResource('AWS::S3::BucketPolicy', {
    DeletionPolicy: 'Retain',
    Properties: {
      PolicyDocument: {
        Statement: [
          Match.objectLike({
            Effect: 'Deny',
            Action: 's3:*',
            Condition: { Bool: { 'aws:SecureTransport': 'false' } },
          }),
        ],
      },
    },
  });
});

test('the receiver puts payloads, the worker gets them, and nobody deletes one', () => {
  const made = template();
  const can = (role: string): string[] =>
    actions(made, role).filter((action) => action.startsWith('s3:'));
  assert.deepEqual(can('Receiver'), ['s3:PutObject']);
  assert.deepEqual(can('Worker'), ['s3:GetObject', 's3:ListBucket']);
  assert.deepEqual(can('Sweeper'), []);
});

test('a message is received often before it is put aside, and kept longest then', () => {
  const queues = template();
  queues.hasResourceProperties('AWS::SQS::Queue', {
    VisibilityTimeout: 360,
    RedrivePolicy: {
      deadLetterTargetArn: { 'Fn::GetAtt': [Match.stringLikeRegexp('DeadLetterQueue'), 'Arn'] },
      maxReceiveCount: 100,
    },
    MessageRetentionPeriod: 4 * 86_400,
  });
  queues.hasResourceProperties('AWS::SQS::Queue', { MessageRetentionPeriod: 14 * 86_400 });
});

test('a batch reports each record', () => {
  template().hasResourceProperties('AWS::Lambda::EventSourceMapping', {
    BatchSize: 10,
    FunctionResponseTypes: ['ReportBatchItemFailures'],
    ScalingConfig: { MaximumConcurrency: 10 },
  });
});

test('the receiver cannot list records, the worker cannot claim, and nobody can delete', () => {
  const made = template();
  const can = (role: string): string[] =>
    actions(made, role).filter((action) => action.startsWith('dynamodb:'));
  const change = ['dynamodb:GetItem', 'dynamodb:UpdateItem'];
  assert.deepEqual(can('Receiver'), [
    'dynamodb:DescribeTable',
    'dynamodb:GetItem',
    'dynamodb:PutItem',
    'dynamodb:UpdateItem',
  ]);
  assert.deepEqual(can('Worker'), ['dynamodb:DescribeTable', ...change]);
  assert.deepEqual(can('Sweeper'), ['dynamodb:Query', ...change]);
});

test('no right is to everything, but to objects and X-Ray', () => {
  const tracing = template({ tracing: Tracing.ACTIVE });
  for (const [made, expected] of [
    [template(), []],
    [tracing, ['Trace']],
  ] as const) {
    for (const role of FUNCTIONS) {
      const wide = statements(made, role).filter(
        ({ Action, Resource }) =>
          // Within the bucket, which the ARN before it names.
          JSON.stringify([Action, Resource]).replace('"Arn"]},"/*"]', '').includes('*'),
      );
      assert.deepEqual(wide.map(({ Sid }) => Sid), expected, role);
    }
  }
  for (const role of Object.values(tracing.findResources('AWS::IAM::Role'))) {
    assert.equal(role.Properties.ManagedPolicyArns, undefined);
  }
});

test('secrets are read by who needs them, with the keys that they name', () => {
  const outside = new Stack();
  const signing = Secret.fromSecretAttributes(outside, 'Signing', {
    secretCompleteArn: 'arn:aws:secretsmanager:eu-west-1:111122223333:secret:signing-AbCdEf',
    encryptionKey: Key.fromKeyArn(outside, 'Key', 'arn:aws:kms:eu-west-1:111122223333:key/1'),
  });
  const made = template({ receiverSecrets: [signing] });
  const secrets = ['secretsmanager:GetSecretValue', 'kms:Decrypt'];
  const reads = (role: string): string[] =>
    actions(made, role).filter((action) => secrets.includes(action));
  assert.deepEqual(reads('Receiver'), secrets);
  assert.deepEqual(reads('Worker'), []);
  assert.deepEqual(reads('Sweeper'), []);
});

test('a secret by its name alone is refused: rights to it would be to none', () => {
  const receiverSecrets = [Secret.fromSecretNameV2(new Stack(), 'Signing', 'prod/stripe')];
  assert.throws(() => deploy({ receiverSecrets }), /Signing.*complete ARN/);
});

test('a key for payloads is used by who needs them, through DynamoDB and S3 alone', () => {
  const arn = 'arn:aws:kms:eu-west-1:111122223333:key/1e0d6f4a-0000-4000-8000-000000000000';
  const ledgerKey = Key.fromKeyArn(new Stack(), 'Key', arn);
  const made = template({ ledgerKey });
  made.hasResourceProperties('AWS::DynamoDB::Table', {
    SSESpecification: { SSEType: 'KMS', KMSMasterKeyId: ledgerKey.keyArn },
  });
  made.hasResourceProperties('AWS::S3::Bucket', {
    BucketEncryption: {
      ServerSideEncryptionConfiguration: [
        {
          BucketKeyEnabled: true,
          ServerSideEncryptionByDefault: {
            SSEAlgorithm: 'aws:kms',
            KMSMasterKeyID: ledgerKey.keyArn,
          },
        },
      ],
    },
  });
  for (const [role, through] of [
    ['Receiver', [['PayloadKey', 's3.', 'kms:GenerateDataKey'], ['ThroughDynamoDb', 'dynamodb.']]],
    ['Worker', [['PayloadKey', 's3.', 'kms:Decrypt'], ['ThroughDynamoDb', 'dynamodb.']]],
    ['Sweeper', [['ThroughDynamoDb', 'dynamodb.']]],
  ] as const) {
    const found = statements(made, role).filter(({ Action }) => String(Action).includes('kms:'));
    assert.equal(found.length, through.length, role);
    for (const [i, [sid, service, action]] of through.entries()) {
      assert.equal(found[i]?.Sid, sid, role);
      assert.ok(JSON.stringify(found[i]).includes(`"kms:ViaService":"${service}*.`), role);
      if (action) assert.equal(found[i]?.Action, action);
    }
  }
});

test('logs are forgotten', () => {
  const groups = Object.values(template().findResources('AWS::Logs::LogGroup'));
  assert.deepEqual(groups.map(({ Properties }) => Properties.RetentionInDays), [30, 30, 30]);
});

test('alarms go to the topic, and are exposed', () => {
  const arn = 'arn:aws:sns:eu-west-1:111122223333:on-call';
  const alarmTopic = Topic.fromTopicArn(new Stack(), 'Topic', arn);
  const made = deploy({ alarmTopic });
  const found = Object.values(templateOf(made).findResources('AWS::CloudWatch::Alarm'));
  assert.equal(found.length, Object.keys(made.alarms).length);
  assert.equal(found.length, 14);
  for (const { Properties } of found) {
    assert.deepEqual(Properties.AlarmActions, [alarmTopic.topicArn]);
    assert.deepEqual(Properties.OKActions, [alarmTopic.topicArn]);
  }
});

test('each metric has a filter that makes it', () => {
  const hookonce = deploy();
  const methods = Object.getOwnPropertyNames(Hookonce.prototype).filter(
    (name) => name.startsWith('metric') && name !== 'metricDuplicatePercent',
  ) as (keyof Hookonce)[];
  const metrics = methods.map((name) => {
    const { metricName, namespace } = (hookonce[name] as Hookonce['metricNew']).call(hookonce);
    assert.equal(namespace, hookonce.metricNamespace);
    return metricName;
  });
  const filters = Object.values(template().findResources('AWS::Logs::MetricFilter'));
  const made = filters.map(({ Properties }) => Properties.MetricTransformations[0].MetricName);
  assert.deepEqual(metrics.toSorted(), made.toSorted());
  const period = Duration.hours(1);
  assert.equal(hookonce.metricParked({ period }).period.toSeconds(), 3600);
});

test('nothing has a name of its own, and two deployments fit into one stack', () => {
  const both = new Stack();
  const directory = built();
  new Hookonce(both, 'One', { code: codeFrom(directory), name: 'one' });
  new Hookonce(both, 'Other', { code: codeFrom(directory), name: 'other' });
  const found = JSON.stringify(Template.fromStack(both).toJSON());
  for (const name of ['FunctionName', 'TableName', 'BucketName', 'QueueName', 'RoleName', 'AlarmName']) {
    assert.ok(!found.includes(`"${name}":"`), name);
  }
  assert.ok(found.includes('hookonce/one') && found.includes('hookonce/other'));
  assert.ok(found.includes('"ssm:/one/config"') && found.includes('"ssm:/other/config"'));
});

test('a parameter of the stack holds the configuration', () => {
  const outside = new Stack();
  const configuration = Configuration.fromParameter(
    StringParameter.fromStringParameterName(outside, 'Config', '/prod/hooks'),
  );
  template({ configuration }).hasResourceProperties('AWS::Lambda::Function', {
    Environment: { Variables: { HOOKONCE_CONFIG: 'ssm:/prod/hooks' } },
  });
  assert.throws(() => Configuration.fromParameterName('prod'), /slash/);
});

test('what a handler needs is granted to the worker', () => {
  const made = deploy();
  const accounts = new Table(Stack.of(made), 'Accounts', {
    partitionKey: { name: 'id', type: AttributeType.STRING },
  });
  accounts.grant(made.worker, 'dynamodb:UpdateItem');
  made.worker.addEnvironment('PAYMENTS_ACCOUNTS_TABLE', accounts.tableName);
  templateOf(made).hasResourceProperties('AWS::IAM::Policy', {
    Roles: [{ Ref: Match.stringLikeRegexp('WorkerRole') }],
    PolicyDocument: { Statement: [{ Action: 'dynamodb:UpdateItem', Effect: 'Allow' }] },
  });
});

test('an HTTP API stands instead of the URL, and is exposed', () => {
  const made = deploy({ receiverEndpoint: 'HttpApi' });
  const found = templateOf(made);
  found.hasResourceProperties('AWS::ApiGatewayV2::Integration', { PayloadFormatVersion: '2.0' });
  found.resourceCountIs('AWS::Lambda::Url', 0);
  assert.ok(made.receiverApi && !made.receiverUrl);
  assert.ok(made.url.endsWith('/'));
  const byDefault = deploy();
  templateOf(byDefault).resourceCountIs('AWS::ApiGatewayV2::Api', 0);
  assert.ok(byDefault.receiverUrl && !byDefault.receiverApi);
});

test('both queues are FIFO, or neither is', () => {
  const kinds = (settings: Settings): unknown[] =>
    Object.values(template(settings).findResources('AWS::SQS::Queue')).map(
      ({ Properties }) => Properties.FifoQueue,
    );
  assert.deepEqual(kinds({}), [undefined, undefined]);
  assert.deepEqual(kinds({ queueType: 'Fifo' }), [true, true]);
});

test('a value out of range is refused before it is deployed', () => {
  const refused: [Settings, RegExp][] = [
    [{ workerMaxConcurrency: 1 }, /workerMaxConcurrency is 1/],
    [{ receiverMemorySize: 64 }, /receiverMemorySize is 64/],
    [{ receiverReservedConcurrency: 0 }, /receiverReservedConcurrency is 0/],
    [{ duplicatePercent: 101 }, /duplicatePercent is 101/],
    [{ oldestOpen: Duration.seconds(59) }, /oldestOpen is 59/],
    [{ payloadRetention: Duration.days(0) }, /payloadRetention is 0/],
  ];
  for (const [settings, message] of refused) assert.throws(() => deploy(settings), message);
});

test('code is taken as cargo-lambda leaves it, zipped or not, and missed if not built', () => {
  const directory = mkdtempSync(join(tmpdir(), 'hookonce-'));
  assert.throws(() => codeFrom(directory), /no receiver in .*cargo lambda build/);
  for (const name of ['receiver', 'worker', 'sweeper']) {
    mkdirSync(join(directory, name));
    writeFileSync(join(directory, name, 'bootstrap.zip'), name);
  }
  const app = new App();
  new Hookonce(new Stack(app, 'zipped'), 'Hookonce', { code: codeFrom(directory) });
  const assembly = app.synth().directory;
  const assets = JSON.parse(readFileSync(join(assembly, 'zipped.assets.json'), 'utf8'));
  const files = Object.values<{ source: { path: string; packaging: string } }>(assets.files);
  const zips = files.filter(({ source }) => source.path.endsWith('.zip'));
  assert.deepEqual(zips.map(({ source }) => source.packaging), ['file', 'file', 'file']);
  rmSync(directory, { recursive: true });
});
