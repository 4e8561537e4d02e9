/**
 * In what the construct's stack may differ from `template.yaml`, and why.
 *
 * @module
 */
import { isDeepStrictEqual } from 'node:util';
import { type Json, type JsonMap, isMap } from './template.js';

export interface Argued {
  readonly where: RegExp;
  readonly why: string;
  /** Whether the two differ there as argued, and not otherwise. */
  readonly is: (sam: Json | undefined, cdk: Json | undefined) => boolean;
}

export const ARGUED: readonly Argued[] = [
  {
    where: /^Resources\.(Receiver|Worker|Sweeper)\.Properties\.Code\./,
    why: 'Each packs the code into a bucket of its own, under a name of its own.',
    is: (sam, cdk) =>
      (sam === 'bucket' && String(cdk).includes('-assets-')) ||
      (sam === 'key' && String(cdk).endsWith('.zip')),
  },
  {
    where: /^Resources\.(Receiver|Worker|Sweeper)\.Properties\.Tags$/,
    why: 'SAM signs what it makes.',
    is: (sam, cdk) =>
      isDeepStrictEqual(sam, [{ Key: 'lambda:createdBy', Value: 'SAM' }]) && cdk === undefined,
  },
  {
    where: /\.Properties\.(FunctionName|TargetFunctionArn)$/,
    why: 'These take a function by its name, as SAM has it, or by its ARN.',
    is: (sam, cdk) => typeof sam === 'string' && cdk === sam.replace('}', '.Arn}'),
  },
  {
    where: /^Resources\.(Receiver|Worker|Sweeper)\.DependsOn$/,
    why: 'A function names its role in any case, and so waits for it.',
    is: (sam, cdk) => sam === undefined && /^(Receiver|Worker|Sweeper)Role$/.test(String(cdk)),
  },
  {
    where: /^Resources\.SweeperEventInvokeConfig\.Properties\.DestinationConfig$/,
    why: 'No destinations, said and unsaid.',
    is: (sam, cdk) => isDeepStrictEqual(sam, {}) && cdk === undefined,
  },
  {
    where: /^Resources\.SweeperEachMinuteRole\.Properties\.Policies\.0\.PolicyDocument\.Version$/,
    why: 'Without a version a policy has no variables; this one uses none.',
    is: (sam, cdk) => sam === undefined && cdk === '2012-10-17',
  },
  {
    where: /^Resources\.DuplicatesAlarm\.Properties\.Metrics\.0\.Id$/,
    why: 'Nothing refers to the expression, and the construct numbers it.',
    is: (sam, cdk) => sam === 'percent' && cdk === 'expr_1',
  },
  {
    where: /^Resources\.DuplicatesAlarm\.Properties\.Metrics\.0\.ReturnData$/,
    why: 'An expression returns data unless told otherwise.',
    is: (sam, cdk) => sam === undefined && cdk === true,
  },
];

/** One spelling for what has two. */
export function alike(value: Json, key = ''): Json {
  if (key === 'DashboardBody') return JSON.parse(value as string) as Json;
  if (Array.isArray(value)) {
    const items = value.map((item) => alike(item));
    const [only, ...more] = items;
    // One action, resource or principal is a list of one.
    const one = ['Action', 'Resource', 'Service'].includes(key) && more.length === 0;
    if (one && only !== undefined) return only;
    // The order of dimensions says nothing.
    return key === 'Dimensions' ? items.toSorted(byName) : items;
  }
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, alike(v, k)])) as JsonMap;
}

function byName(one: Json, other: Json): number {
  const name = (of: Json): string => (isMap(of) ? String(of.Name) : '');
  return name(one).localeCompare(name(other));
}
