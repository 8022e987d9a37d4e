import type { OperationKind } from './operations.ts';

const requestPoints = [
  'add_key:recorded:after',
  'add_key:written:after',
  'add_key:confirmed:after',
  'modify:configured:after',
  'modify:written:after',
];

/** Every point at which the crash suite kills the process. */
export function listCrashPoints(kinds: readonly OperationKind[]): string[] {
  const boundaries = (kind: OperationKind) => [...kind.steps.map((step) => step.name), 'outcome'];
  const points = kinds.flatMap((kind) =>
    boundaries(kind).flatMap((name) => [
      `${kind.kind}:${name}:before`,
      `${kind.kind}:${name}:after`,
    ]),
  );
  return [...points, ...requestPoints];
}

/** Kills this process the hard way when it reaches the chosen point: for the crash suite alone. */
export function crashAt(chosen: string | undefined): (point: string) => void {
  if (chosen === undefined) return () => {};
  return (point) => {
    if (point === chosen) process.kill(process.pid, 'SIGKILL');
  };
}
