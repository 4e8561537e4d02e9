/**
 * The stack as tests make it, with code that is none.
 *
 * @module
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { App, Stack, Stage } from 'aws-cdk-lib';
import { Hookonce, type HookonceProps, addOutputs, codeFrom } from '../lib/index.js';
import type { Template } from './template.js';

/** A folder as cargo-lambda leaves it. */
export function built(): string {
  const directory = mkdtempSync(join(tmpdir(), 'hookonce-'));
  for (const name of ['receiver', 'worker', 'sweeper']) {
    mkdirSync(join(directory, name));
    writeFileSync(join(directory, name, 'bootstrap'), name);
  }
  process.on('exit', () => rmSync(directory, { recursive: true }));
  return directory;
}

/** Props but the code. */
export type Settings = Omit<HookonceProps, 'code'>;

const directory = built();

/** The feature flags that a new app has. */
export const NEW_APP = createRequire(import.meta.url)(
  'aws-cdk-lib/recommended-feature-flags.json',
) as Record<string, boolean>;

/** The stack of `bin/hookonce.ts`. */
export function deploy(settings: Settings = {}, flags: Record<string, boolean> = {}): Hookonce {
  // As the `cdk` command does: with each resource its place among the constructs.
  const context = { 'aws:cdk:enable-path-metadata': true, ...flags };
  const stack = new Stack(new App({ context }), 'hookonce');
  const hookonce = new Hookonce(stack, 'Hookonce', { code: codeFrom(directory), ...settings });
  addOutputs(hookonce);
  return hookonce;
}

export function synthesised(hookonce: Hookonce): Template {
  const assembly = Stage.of(hookonce)?.synth();
  return assembly?.getStackByName('hookonce').template as Template;
}
