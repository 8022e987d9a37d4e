/** What a command may touch of the world around it; tests hand in another one. */
export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  readonly sleep: (durationMs: number) => Promise<void>;
}

export const processTerminal: Terminal = {
  env: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  now: Date.now,
  sleep: (durationMs) => new Promise((resolve) => setTimeout(resolve, durationMs)),
};
