/**
 * What each function may do: the calls that it makes, and no others. The grant methods of tables
 * and queues give more.
 *
 * @module
 */
import { PolicyStatement } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { Tracing } from 'aws-cdk-lib/aws-lambda';
import type { ISecret } from 'aws-cdk-lib/aws-secretsmanager';
import type { IParameter } from 'aws-cdk-lib/aws-ssm';
import { OPEN_BY_DUE } from './limits.js';
import type { HookonceProps } from './props.js';

/** The resources that rights are on. */
export interface Arns {
  readonly payloads: string;
  readonly ledger: string;
  readonly queue: string;
  readonly log: string;
  /** Of the parameter that the configuration is read from, if any. */
  readonly configuration: string | undefined;
}

/**
 * It cannot read a payload again, nor see what there is; nor list records (Query, Scan) or delete them. GetItem is for a refusal that comes without
 * the record in the way, as when that was deleted in between; of a record it shows no more than the
 * refusal itself does.
 */
export function receiverStatements(arns: Arns, props: HookonceProps): PolicyStatement[] {
  return [
    allow('KeepPayload', ['s3:PutObject'], `${arns.payloads}/*`),
    allow(
      'Claim',
      [
        'dynamodb:DescribeTable',
        'dynamodb:GetItem',
        'dynamodb:PutItem',
        'dynamodb:UpdateItem',
      ],
      arns.ledger,
    ),
    allow('Enqueue', ['sqs:GetQueueAttributes', 'sqs:SendMessage'], arns.queue),
    log(arns),
    ...usePayloadKey('kms:GenerateDataKey', props),
    ...readConfiguration(arns),
    ...readSecrets(props.receiverSecrets, props),
    ...trace(props),
  ];
}

/**
 * It cannot claim (PutItem). A transaction needs the rights of its parts: the record's part is an
 * update, and the local writes of your handlers are on tables of yours.
 *
 * Without ListBucket S3 says of an object that is gone that access is denied, as it does when rights
 * are missing: then an event would be tried for a day that can only be parked. A listing has names
 * of sources, and digests.
 */
export function workerStatements(arns: Arns, props: HookonceProps): PolicyStatement[] {
  return [
    allow(
      'Lease',
      ['dynamodb:DescribeTable', 'dynamodb:GetItem', 'dynamodb:UpdateItem'],
      arns.ledger,
    ),
    allow('ReadPayload', ['s3:GetObject'], `${arns.payloads}/*`),
    allow('TellMissing', ['s3:ListBucket'], arns.payloads),
    allow(
      'Poll',
      [
        'sqs:ChangeMessageVisibility',
        'sqs:DeleteMessage',
        'sqs:GetQueueAttributes',
        'sqs:ReceiveMessage',
      ],
      arns.queue,
    ),
    log(arns),
    ...usePayloadKey('kms:Decrypt', props),
    ...readConfiguration(arns),
    ...readSecrets(props.workerSecrets, props),
    ...trace(props),
  ];
}

/** It reads no configuration: what a sweep decides lies on the records. */
export function sweeperStatements(arns: Arns, props: HookonceProps): PolicyStatement[] {
  return [
    allow('FindDue', ['dynamodb:Query'], `${arns.ledger}/index/${OPEN_BY_DUE}`),
    allow('Sweep', ['dynamodb:GetItem', 'dynamodb:UpdateItem'], arns.ledger),
    allow('Enqueue', ['sqs:SendMessage'], arns.queue),
    log(arns),
    ...trace(props),
  ];
}

/** DynamoDB uses a key of your own in the name of who uses the table, and through nothing else. */
export function useLedgerKey(key: IKey): PolicyStatement {
  return new PolicyStatement({
    sid: 'ThroughDynamoDb',
    actions: [
      'kms:Decrypt',
      'kms:DescribeKey',
      'kms:Encrypt',
      'kms:GenerateDataKey',
      'kms:GenerateDataKeyWithoutPlaintext',
      'kms:ReEncryptFrom',
      'kms:ReEncryptTo',
    ],
    resources: [key.keyArn],
    conditions: { StringLike: { 'kms:ViaService': 'dynamodb.*.amazonaws.com' } },
  });
}

/** S3 does as well. */
function usePayloadKey(action: string, { ledgerKey }: HookonceProps): PolicyStatement[] {
  if (!ledgerKey) return [];
  const statement = allow('PayloadKey', [action], ledgerKey.keyArn);
  statement.addCondition('StringLike', { 'kms:ViaService': 's3.*.amazonaws.com' });
  return [statement];
}

function allow(sid: string, actions: string[], ...resources: string[]): PolicyStatement {
  return new PolicyStatement({ sid, actions, resources });
}

function log(arns: Arns): PolicyStatement {
  return allow('Log', ['logs:CreateLogStream', 'logs:PutLogEvents'], arns.log);
}

function readConfiguration({ configuration }: Arns): PolicyStatement[] {
  return configuration ? [allow('Configuration', ['ssm:GetParameter'], configuration)] : [];
}

function readSecrets(
  secrets: readonly (ISecret | IParameter)[] = [],
  { secretKeys = [] }: HookonceProps,
): PolicyStatement[] {
  const arns = secrets.map(arnOf);
  const own = secrets.flatMap((secret) =>
    'encryptionKey' in secret && secret.encryptionKey ? [secret.encryptionKey] : [],
  );
  const keys = new Set([...secretKeys, ...own].map((key) => key.keyArn));
  return [
    ...(arns.length > 0
      ? [allow('Secrets', ['secretsmanager:GetSecretValue', 'ssm:GetParameter'], ...arns)]
      : []),
    ...(keys.size > 0 ? [allow('Decrypt', ['kms:Decrypt'], ...keys)] : []),
  ];
}

/** Whole: rights to a secret without the six characters that Secrets Manager adds are to none. */
function arnOf(secret: ISecret | IParameter): string {
  if ('parameterArn' in secret) return secret.parameterArn;
  if (!secret.secretFullArn) {
    throw new Error(`${secret.node.path}: the secret is needed by its complete ARN`);
  }
  return secret.secretFullArn;
}

/** X-Ray has no resources to name. */
function trace({ tracing }: HookonceProps): PolicyStatement[] {
  if (tracing !== Tracing.ACTIVE) return [];
  return [allow('Trace', ['xray:PutTelemetryRecords', 'xray:PutTraceSegments'], '*')];
}
