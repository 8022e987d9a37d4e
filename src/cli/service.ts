/** The server's side of the CLI: each part is loaded only by the command that needs it, so that commands start fast. */

import type { Admin } from '../admin.ts';
import type { EngineReport } from '../admin-engine.ts';
import type { ImageAdmin } from '../admin-images.ts';
import type { CatalogReading } from '../domain/catalog-file.ts';
import { explainStart } from './start-failures.ts';

export type { Admin, ImageAdmin };

type Environment = Readonly<Record<string, string | undefined>>;

/** Resolves when a signal has stopped the service. */
export async function runService(env: Environment): Promise<void> {
  const service = await import('../main.ts');
  await service.runService(env).catch(explained(env));
}

/** What an operator does directly on the data, without a token. */
export async function openAdmin(env: Environment): Promise<Admin> {
  const admin = await import('../admin.ts');
  return admin.openAdmin(env).catch(explained(env));
}

export async function readCatalogFile(path: string): Promise<CatalogReading> {
  const catalog = await import('../catalog-loading.ts');
  return catalog.readCatalogFile(path);
}

/** The images of the Incus engine, whether a service runs or not. */
export async function openImages(env: Environment): Promise<ImageAdmin> {
  const images = await import('../admin-images.ts');
  return images.openImages(env);
}

export async function checkEngine(env: Environment): Promise<EngineReport> {
  const engine = await import('../admin-engine.ts');
  return engine.checkEngine(env).catch(explained(env));
}

export async function printGuard(env: Environment): Promise<string> {
  const engine = await import('../admin-engine.ts');
  return engine.printGuard(env).catch(explained(env));
}

const explained = (env: Environment) => (error: unknown) => {
  throw explainStart(error, env);
};
