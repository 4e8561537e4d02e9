export type { HookonceAlarms } from './alarms.js';
export { type FunctionCode, codeFrom } from './code.js';
export { Configuration } from './configuration.js';
export { Hookonce } from './hookonce.js';
export { addOutputs } from './outputs.js';
export type { HookonceProps } from './props.js';
