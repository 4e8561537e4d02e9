import { CfnOutput, Stack } from 'aws-cdk-lib';
import type { Hookonce } from './hookonce.js';

/** Gives the stack of `hookonce` the outputs of `template.yaml`, for a stack of it alone. */
export function addOutputs(hookonce: Hookonce): void {
  const { url, configurationFrom, ledger, payloads, queue, deadLetterQueue, dashboard } = hookonce;
  const output = (name: string, description: string, value: string): void => {
    new CfnOutput(Stack.of(hookonce), name, { description, value });
  };
  output('ReceiverUrl', 'Deliveries go to POST {this}webhooks/{source}', url);
  output('ConfigurationFrom', 'Where the functions read their configuration', configurationFrom);
  output('LedgerTable', 'The DynamoDB table of event records', ledger.tableName);
  output('PayloadsBucket', 'The bucket of payloads that fit on no record', payloads.bucketName);
  output('QueueUrl', 'The queue between receiver and worker', queue.queueUrl);
  output('DeadLetterQueueUrl', 'Where messages without a record end', deadLetterQueue.queueUrl);
  output('DashboardName', 'The CloudWatch dashboard', dashboard.dashboardName);
}
