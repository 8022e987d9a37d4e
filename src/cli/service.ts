/** The server's side of the CLI: loaded only by `serve` and `admin`, so that client commands start fast. */

import { CliError } from './exit-codes.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** What an operator does directly on the data, without a token. */
export interface Admin {
  createOrganization(input: { name: string; email: string }): Promise<{ id: string; name: string }>;
  createToken(input: {
    organization: string;
    name: string;
    scopes?: readonly string[];
    expiresAt?: Date;
  }): Promise<{ token: string }>;
  close(): Promise<void>;
}

interface ServiceModule {
  /** Resolves when a signal has stopped the service. */
  runService(env: Environment): Promise<void>;
  openAdmin(env: Environment): Promise<Admin>;
}

export async function loadService(): Promise<ServiceModule> {
  const service: ServiceModule = await import('../main.ts');
  return {
    runService: (env) => service.runService(env).catch(rethrowReadable),
    openAdmin: (env) => service.openAdmin(env).catch(rethrowReadable),
  };
}

/**
 * A plain `Error` is one that the service throws on purpose while it starts (the port is in use), or
 * the system's (no permission): the operator needs its message and not its stack. Defects have classes
 * of their own, such as `TypeError`.
 */
function rethrowReadable(error: unknown): never {
  if (error instanceof Error && error.constructor === Error) throw new CliError(error.message);
  throw error;
}
