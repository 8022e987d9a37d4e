/** The server's side of the CLI: loaded only by `serve` and `admin`, so that client commands start fast. */

import { explainStart } from './start-failures.ts';

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
  const explained = (env: Environment) => (error: unknown) => {
    throw explainStart(error, env);
  };
  return {
    runService: (env) => service.runService(env).catch(explained(env)),
    openAdmin: (env) => service.openAdmin(env).catch(explained(env)),
  };
}
