import { ArnFormat, Stack } from 'aws-cdk-lib';
import type { IParameter } from 'aws-cdk-lib/aws-ssm';
import type { Construct } from 'constructs';

/** Where the receiver and the worker read their configuration when they start. */
export class Configuration {
  /**
   * In the functions' environment. A change restarts them. Lambda takes 4 kB of environment in
   * all; a larger configuration goes to Parameter Store.
   *
   * @param configuration that of `hookonce.toml`; it refers to secrets and holds none
   */
  public static inline(configuration: Record<string, unknown>): Configuration {
    return new Configuration((scope) => ({
      variable: Stack.of(scope).toJsonString(configuration),
    }));
  }

  /** In a parameter of Parameter Store, as TOML or JSON. */
  public static fromParameter(parameter: IParameter): Configuration {
    return new Configuration(() => ({
      variable: `ssm:${parameter.parameterName}`,
      arn: parameter.parameterArn,
    }));
  }

  /**
   * In a parameter of Parameter Store that need not exist yet.
   *
   * @param name begins with a slash
   */
  public static fromParameterName(name: string): Configuration {
    if (!name.startsWith('/')) throw new Error(`${name} does not begin with a slash`);
    return new Configuration((scope) => ({
      variable: `ssm:${name}`,
      arn: Stack.of(scope).formatArn({
        service: 'ssm',
        resource: 'parameter',
        resourceName: name.slice(1),
        arnFormat: ArnFormat.SLASH_RESOURCE_NAME,
      }),
    }));
  }

  private constructor(
    /**
     * What the functions' variable says, and what they must be able to read for it.
     *
     * @internal
     */
    public readonly bind: (scope: Construct) => BoundConfiguration,
  ) {}
}

/** @internal */
export interface BoundConfiguration {
  readonly variable: string;
  /** Of the parameter that is read, if any. */
  readonly arn?: string;
}
