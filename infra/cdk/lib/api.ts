import { RemovalPolicy, Validations } from 'aws-cdk-lib';
import { AccessLogFormat } from 'aws-cdk-lib/aws-apigateway';
import {
  CfnIntegration,
  CfnRoute,
  HttpApi,
  HttpStage,
  LogGroupLogDestination,
} from 'aws-cdk-lib/aws-apigatewayv2';
import { ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { LogGroup, RetentionDays } from 'aws-cdk-lib/aws-logs';
import type { Hookonce } from './hookonce.js';
import type { HookonceProps } from './props.js';

/** An HTTP API in front of the receiver: instead of its function URL. */
export function makeApi(hookonce: Hookonce, apiName: string, props: HookonceProps): HttpApi {
  const description = 'Webhook deliveries';
  const api = new HttpApi(hookonce, 'ReceiverApi', {
    apiName,
    description,
    createDefaultStage: false,
  });
  const { apiId } = api;
  const integration = new CfnIntegration(hookonce, 'ReceiverApiIntegration', {
    apiId,
    integrationType: 'AWS_PROXY',
    integrationUri: hookonce.receiver.functionArn,
    payloadFormatVersion: '2.0',
  });
  // Any method: a provider's handshake may be a GET, and what is neither is answered 405. Any other
  // path is the API's to refuse.
  const route = new CfnRoute(hookonce, 'ReceiverApiRoute', {
    apiId,
    routeKey: `ANY ${PATH}`,
    authorizationType: 'NONE',
    target: `integrations/${integration.ref}`,
  });
  Validations.of(route).acknowledge({
    id: 'AwsSolutions-APIG4',
    reason: 'Providers cannot sign for IAM: the function verifies what they sign.',
  });
  hookonce.receiver.addPermission('ReceiverApiPermission', {
    principal: new ServicePrincipal('apigateway.amazonaws.com'),
    sourceArn: api.arnForExecuteApi('*', PATH, '*'),
    scope: hookonce,
  });
  logAccess(hookonce, api, props);
  return api;
}

/** What the API refused itself, as when Lambda has no room, no other log has. */
function logAccess(hookonce: Hookonce, httpApi: HttpApi, props: HookonceProps): void {
  const log = new LogGroup(hookonce, 'ReceiverApiLog', {
    retention: props.logRetention ?? RetentionDays.ONE_MONTH,
    removalPolicy: RemovalPolicy.DESTROY,
  });
  new HttpStage(hookonce, 'ReceiverApiStage', {
    httpApi,
    autoDeploy: true,
    accessLogSettings: {
      destination: new LogGroupLogDestination(log),
      format: AccessLogFormat.custom(JSON.stringify(LINE)),
    },
  });
}

const PATH = '/webhooks/{source}';

const LINE = {
  requestId: '$context.requestId',
  ip: '$context.identity.sourceIp',
  routeKey: '$context.routeKey',
  status: '$context.status',
  error: '$context.integrationErrorMessage',
  latency_ms: '$context.responseLatency',
};
