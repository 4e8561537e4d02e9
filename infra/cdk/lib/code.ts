import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Code } from 'aws-cdk-lib/aws-lambda';

/** Where the functions' code lies: a folder with `bootstrap` in it, or a zip of that, each. */
export interface FunctionCode {
  readonly receiver: Code;
  readonly worker: Code;
  readonly sweeper: Code;
}

/**
 * The code as cargo-lambda leaves it: `DIRECTORY/{receiver,worker,sweeper}`, each with `bootstrap`,
 * or with `bootstrap.zip` if it was built with `--output-format zip`.
 *
 * @param directory `target/lambda` of the workspace
 */
export function codeFrom(directory: string): FunctionCode {
  const code = (name: string): Code => {
    const folder = join(directory, name);
    const zip = join(folder, 'bootstrap.zip');
    if (existsSync(zip)) return Code.fromAsset(zip);
    if (existsSync(join(folder, 'bootstrap'))) return Code.fromAsset(folder);
    throw new Error(
      `there is no ${name} in ${directory}: build it first, with ` +
        'cargo lambda build --profile deploy --arm64 -p receiver -p worker -p sweeper',
    );
  };
  return { receiver: code('receiver'), worker: code('worker'), sweeper: code('sweeper') };
}
