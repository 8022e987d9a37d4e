/**
 * The images that instances start from. A template of Berth is an alias in Incus, `berth-<template>`; it moves when a
 * newer image is imported. Images of others are never removed, whatever alias they have.
 */

import { AppError } from '../../domain/errors.ts';
import { EngineError } from '../engine.ts';
import type { IncusClient } from './client.ts';
import { asEngineError } from './failures.ts';
import type { ImageFiles } from './image-build.ts';
import { checkImage } from './image-check.ts';
import { fingerprintOf, upload } from './image-upload.ts';
import { isIncusError } from './incus-error.ts';
import { imageAlias, templateOf } from './names.ts';

/** Files of an image, or an image server and what it calls the image. */
export type ImageSource =
  | { readonly kind: 'files'; readonly files: ImageFiles }
  | {
      readonly kind: 'remote';
      /** Address of a simplestreams server. */
      readonly server: string;
      readonly alias: string;
      readonly type: 'container' | 'virtual-machine';
    };

export interface ImportOptions {
  /** Take it though something is missing in it. */
  readonly unchecked?: boolean | undefined;
  readonly progress: (line: string) => void;
}

export interface TemplateImage {
  readonly template: string;
  readonly fingerprint: string;
  readonly type: string;
  readonly architecture: string;
  readonly description: string;
  readonly sizeBytes: number;
  readonly importedAt: string;
}

/** An image as Incus shows it. */
export interface ImageObject {
  readonly fingerprint: string;
  readonly type: 'container' | 'virtual-machine';
  readonly architecture: string;
  readonly size: number;
  readonly uploaded_at: string;
  readonly properties: Readonly<Record<string, string>>;
  readonly aliases: readonly { readonly name: string }[];
}

/** On images that an import has taken: these go when no alias names them. */
const ownProperty = 'berth.imported';
const pullMs = 60 * 60_000;
const imagePath = (fingerprint: string): string => `/1.0/images/${fingerprint}`;
const aliasPath = (template: string): string =>
  `/1.0/images/aliases/${encodeURIComponent(imageAlias(template))}`;

export class Images {
  readonly #client: IncusClient;
  readonly #pool: string;

  constructor(client: IncusClient, pool: string) {
    this.#client = client;
    this.#pool = pool;
  }

  async list(): Promise<TemplateImage[]> {
    const images = await this.#trying('The images could not be listed.', () =>
      this.#client.get<ImageObject[]>('/1.0/images', { query: { recursion: '1' } }),
    );
    return images
      .flatMap((image) =>
        image.aliases.flatMap(({ name }) => {
          const template = templateOf(name);
          return template === undefined ? [] : [viewOf(template, image)];
        }),
      )
      .sort((one, other) => (one.template < other.template ? -1 : 1));
  }

  /** Makes the template start from this image; the same again changes nothing. */
  async import(
    template: string,
    source: ImageSource,
    { unchecked = false, progress }: ImportOptions,
  ): Promise<TemplateImage> {
    requireName(template);
    return this.#trying('The image could not be imported.', async () => {
      const { fingerprint, isNew } = await this.#bring(source, progress);
      const image = await this.#image(fingerprint);
      if (image.properties[ownProperty] !== 'checked') {
        if (!unchecked) await this.#check(image, isNew, progress);
        await this.#markOwn(fingerprint, unchecked ? 'unchecked' : 'checked');
      }
      await this.#alias(template, fingerprint);
      return viewOf(template, await this.#image(fingerprint));
    });
  }

  async remove(template: string): Promise<void> {
    requireName(template);
    await this.#trying('The image could not be removed.', async () => {
      const fingerprint = await this.#target(template);
      if (fingerprint === undefined)
        throw new AppError(
          'not_found',
          `There is no template "${template}". List them with: berth admin image list`,
        );
      await this.#client.change('DELETE', aliasPath(template));
      await this.#removeUnused(fingerprint);
    });
  }

  async #bring(
    source: ImageSource,
    progress: (line: string) => void,
  ): Promise<{ fingerprint: string; isNew: boolean }> {
    if (source.kind === 'remote') return this.#pull(source, progress);
    const fingerprint = await fingerprintOf(source.files);
    if (await this.#isThere(fingerprint)) return { fingerprint, isNew: false };
    progress('Sending the image to Incus ...');
    await upload(this.#client, source.files);
    return { fingerprint, isNew: true };
  }

  async #pull(
    { server, alias, type }: Extract<ImageSource, { kind: 'remote' }>,
    progress: (line: string) => void,
  ): Promise<{ fingerprint: string; isNew: boolean }> {
    progress(`Incus fetches ${alias} from ${server} ...`);
    const known = new Set(await this.#fingerprints());
    const from = { type: 'image', mode: 'pull', protocol: 'simplestreams', server, alias };
    const body = { source: { ...from, image_type: type }, public: false };
    const ended = await this.#client.change('POST', '/1.0/images', body, { timeoutMs: pullMs });
    const fingerprint = fingerprintIn(ended);
    return { fingerprint, isNew: !known.has(fingerprint) };
  }

  async #fingerprints(): Promise<string[]> {
    const paths = await this.#client.get<string[]>('/1.0/images');
    return paths.map((path) => (path.split('?')[0] ?? '').split('/').at(-1) ?? '');
  }

  async #isThere(fingerprint: string): Promise<boolean> {
    return (await this.#fingerprints()).includes(fingerprint);
  }

  #image(fingerprint: string): Promise<ImageObject> {
    return this.#client.get<ImageObject>(imagePath(fingerprint));
  }

  async #markOwn(fingerprint: string, how: 'checked' | 'unchecked'): Promise<void> {
    const properties = { [ownProperty]: how };
    await this.#client.change('PATCH', imagePath(fingerprint), { properties });
  }

  /** Refuses an image that nobody could log in to, before any template names it. */
  async #check(
    image: ImageObject,
    isNew: boolean,
    progress: (line: string) => void,
  ): Promise<void> {
    progress('Looking into the image ...');
    const problems = await checkImage(this.#client, image, this.#pool);
    if (problems.length === 0) return;
    if (isNew) await this.#delete(image.fingerprint);
    throw new EngineError(
      'failed',
      `Instances of this image would not work: ${problems.join('; ')}. docs/incus.md says what an image needs. If its first start brings that, import it with --unchecked.`,
    );
  }

  async #alias(template: string, fingerprint: string): Promise<void> {
    const before = await this.#target(template);
    if (before === fingerprint) return;
    if (before === undefined) {
      const alias = { name: imageAlias(template), target: fingerprint };
      await this.#client.change('POST', '/1.0/images/aliases', alias);
      return;
    }
    await this.#client.change('PUT', aliasPath(template), { target: fingerprint });
    await this.#removeUnused(before);
  }

  /** The image that the template names; undefined: there is no such template. */
  async #target(template: string): Promise<string | undefined> {
    try {
      return (await this.#client.get<{ target: string }>(aliasPath(template))).target;
    } catch (error) {
      if (isIncusError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  /** Instances that were made from it stay as they are. */
  async #removeUnused(fingerprint: string): Promise<void> {
    const { aliases, properties } = await this.#image(fingerprint);
    if (aliases.length === 0 && properties[ownProperty] !== undefined)
      await this.#delete(fingerprint);
  }

  async #delete(fingerprint: string): Promise<void> {
    const options = { timeoutMs: 5 * 60_000 };
    await this.#client.change('DELETE', imagePath(fingerprint), undefined, options);
  }

  async #trying<T>(message: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof AppError) throw error;
      throw explained(asEngineError(error, message));
    }
  }
}

/** The operator is who reads it: what Incus said is worth knowing. */
function explained(error: EngineError): EngineError {
  const { kind, message, detail } = error;
  if (kind !== 'failed' || detail === undefined || detail === '') return error;
  return new EngineError(kind, `${message} Incus said: ${detail}`, { detail, cause: error });
}

function requireName(template: string): void {
  if (/^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/.test(template)) return;
  throw new AppError(
    'invalid_request',
    'A template has a name of at most 40 small letters, digits and "-", such as base or ubuntu-24.',
  );
}

const viewOf = (template: string, image: ImageObject): TemplateImage => ({
  template,
  fingerprint: image.fingerprint,
  type: image.type,
  architecture: image.architecture,
  description: image.properties.description ?? '',
  sizeBytes: image.size,
  importedAt: image.uploaded_at,
});

/** In what an operation ended with. */
function fingerprintIn(metadata: unknown): string {
  const found =
    typeof metadata === 'object' && metadata !== null && 'fingerprint' in metadata
      ? metadata.fingerprint
      : undefined;
  if (typeof found === 'string' && found !== '') return found;
  throw new EngineError('failed', 'Incus did not say which image it has fetched.');
}
