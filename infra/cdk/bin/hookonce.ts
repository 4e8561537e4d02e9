import { App, Stack } from 'aws-cdk-lib';
import { Hookonce, addOutputs, codeFrom } from '../lib/index.js';

const app = new App();
const stack = new Stack(app, 'hookonce', {
  description: 'hookonce: webhook idempotency on Lambda, DynamoDB and SQS',
});
const hookonce = new Hookonce(stack, 'Hookonce', {
  code: codeFrom(app.node.tryGetContext('code') ?? '../../target/lambda'),
  // What your deployment needs beside the defaults goes here: see lib/props.ts.
});
addOutputs(hookonce);
