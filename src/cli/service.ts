/** The server's side of the CLI: loaded only by `serve` and `admin`, so that client commands start fast. */

import type { CatalogReading } from '../domain/catalog-file.ts';
import type { Admin, EngineReport, ImageAdmin } from '../main.ts';
import { explainStart } from './start-failures.ts';

export type { Admin, ImageAdmin };

type Environment = Readonly<Record<string, string | undefined>>;

interface ServiceModule {
  /** Resolves when a signal has stopped the service. */
  runService(env: Environment): Promise<void>;
  /** What an operator does directly on the data, without a token. */
  openAdmin(env: Environment): Promise<Admin>;
  readCatalogFile(path: string): CatalogReading;
  /** The images of the Incus engine, whether a service runs or not. */
  openImages(env: Environment): ImageAdmin;
  checkEngine(env: Environment): Promise<EngineReport>;
  printGuard(env: Environment): Promise<string>;
}

export async function loadService(): Promise<ServiceModule> {
  const service: ServiceModule = await import('../main.ts');
  const explained = (env: Environment) => (error: unknown) => {
    throw explainStart(error, env);
  };
  return {
    runService: (env) => service.runService(env).catch(explained(env)),
    openAdmin: (env) => service.openAdmin(env).catch(explained(env)),
    readCatalogFile: service.readCatalogFile,
    openImages: service.openImages,
    checkEngine: (env) => service.checkEngine(env).catch(explained(env)),
    printGuard: (env) => service.printGuard(env).catch(explained(env)),
  };
}
