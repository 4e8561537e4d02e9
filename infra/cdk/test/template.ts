/**
 * Templates in a form in which equal ones are equal: parameters and conditions resolved, `Fn::Sub`
 * and `Fn::Join` as one kind of text, names of resources as in `template.yaml`.
 *
 * @module
 */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonMap = { [key: string]: Json };

export interface Resource {
  readonly Type: string;
  readonly Properties?: JsonMap;
  readonly Metadata?: JsonMap;
  readonly Condition?: string;
  readonly DependsOn?: string | string[];
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
}

export interface Template {
  readonly Parameters?: Record<string, { Type: string; Default?: Json }>;
  readonly Conditions?: JsonMap;
  readonly Resources: Record<string, Resource>;
  readonly Outputs?: JsonMap;
}

/** What the two are compared by. */
export function normalised(
  template: Template,
  parameters: Record<string, Json> = {},
  rename: (name: string) => string = (name) => name,
): JsonMap {
  const resolve = resolver(template, parameters, rename);
  const resources: JsonMap = {};
  for (const [name, resource] of Object.entries(template.Resources)) {
    const { Condition, Metadata: _, DependsOn, ...rest } = resource;
    if (Condition && !resolve({ Condition })) continue;
    const waits = DependsOn && { DependsOn: [DependsOn].flat().map(rename) };
    resources[rename(name)] = resolve({ ...rest, ...waits } as JsonMap) as Json;
  }
  const Outputs = resolve(template.Outputs ?? {}) as Json;
  return { Resources: resources, Outputs };
}

/** What `Ref: AWS::NoValue` leaves. */
const NOTHING = undefined;

function resolver(
  template: Template,
  given: Record<string, Json>,
  rename: (name: string) => string,
): (value: Json) => Json | undefined {
  const parameter = (name: string): Json | undefined => {
    const declared = template.Parameters?.[name];
    if (!declared) return undefined;
    const value = given[name] ?? declared.Default ?? '';
    const list = declared.Type === 'CommaDelimitedList' && typeof value === 'string';
    return list ? value.split(',') : value;
  };
  const reference = (name: string): Json | undefined => {
    if (name === 'AWS::NoValue') return NOTHING;
    return parameter(name) ?? `\${${name.startsWith('AWS::') ? name : rename(name)}}`;
  };
  const attribute = (of: Json): Json => {
    const [name, ...path] = typeof of === 'string' ? of.split('.') : (of as string[]);
    return `\${${rename(name ?? '')}.${path.join('.')}}`;
  };
  const functions: Record<string, (argument: Json) => Json | undefined> = {
    Ref: (name) => reference(name as string),
    'Fn::GetAtt': attribute,
    'Fn::Sub': (argument) => {
      const [text, own] = (Array.isArray(argument) ? argument : [argument, {}]) as [string, JsonMap];
      const variable = (name: string): Json | undefined => {
        if (own[name] !== undefined) return resolve(own[name]);
        return name.includes('.') ? attribute(name) : reference(name);
      };
      return text.replace(/\$\{([^}]+)\}/g, (_, name: string) => String(variable(name)));
    },
    'Fn::Join': (argument) => {
      const [separator, parts] = argument as [string, Json];
      return (resolve(parts) as Json[]).join(separator);
    },
    'Fn::If': (argument) => {
      const [condition, yes, no] = argument as [string, Json, Json];
      return resolve(resolve({ Condition: condition }) ? yes : no);
    },
    'Fn::Equals': (argument) => {
      const [left, right] = (resolve(argument) as Json[]).map(String);
      return left === right;
    },
    'Fn::Not': (argument) => !(resolve(argument) as Json[])[0],
    // In a policy it is a map, and no name.
    Condition: (name) =>
      typeof name === 'string'
        ? resolve(template.Conditions?.[name] ?? null)
        : { Condition: resolve(name) ?? null },
  };
  const resolve = (value: Json): Json | undefined => {
    if (Array.isArray(value)) {
      return value.map(resolve).filter((item) => item !== NOTHING);
    }
    if (value === null || typeof value !== 'object') return value;
    const [[name, argument] = ['', null], ...more] = Object.entries(value);
    const call = more.length === 0 ? functions[name] : undefined;
    if (call) return call(argument);
    const entries = Object.entries(value).map(([key, item]) => [key, resolve(item)] as const);
    return Object.fromEntries(entries.filter(([, item]) => item !== NOTHING)) as JsonMap;
  };
  return resolve;
}

/** One place at which two templates differ. */
export interface Difference {
  /** As `Resources.Ledger.Properties.BillingMode`. */
  readonly path: string;
  readonly sam: Json | undefined;
  readonly cdk: Json | undefined;
}

export function differences(sam: Json | undefined, cdk: Json | undefined, path = ''): Difference[] {
  if (isMap(sam) && isMap(cdk)) {
    const keys = new Set([...Object.keys(sam), ...Object.keys(cdk)]);
    return [...keys].flatMap((key) => differences(sam[key], cdk[key], join(path, key)));
  }
  if (Array.isArray(sam) && Array.isArray(cdk)) {
    const length = Math.max(sam.length, cdk.length);
    const at = (i: number): Difference[] => differences(sam[i], cdk[i], join(path, i));
    return Array.from({ length }, (_, i) => at(i)).flat();
  }
  return sam === cdk ? [] : [{ path, sam, cdk }];
}

function join(path: string, key: string | number): string {
  return path ? `${path}.${key}` : String(key);
}

export function isMap(value: Json | undefined): value is JsonMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
