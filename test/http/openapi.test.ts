/** The OpenAPI document says of every operation what a client writer has to know. */

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import packageJson from '../../package.json' with { type: 'json' };
import { openApiText } from '../../scripts/openapi.ts';
import { WORDS } from '../support/http.ts';

interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
}

interface Media {
  readonly schema?: Schema;
  readonly example?: unknown;
  readonly examples?: unknown;
}

interface Described {
  readonly description?: string;
  readonly content?: Readonly<Record<string, Media>>;
  readonly headers?: Readonly<Record<string, { readonly description?: string }>>;
}

interface Operation extends Described {
  readonly operationId?: string;
  readonly summary?: string;
  readonly tags?: readonly string[];
  readonly security?: readonly object[];
  readonly parameters?: readonly (Described & { readonly name: string; readonly in: string })[];
  readonly requestBody?: Described & { readonly required?: boolean };
  readonly responses: Readonly<Record<string, Described>>;
}

interface Document {
  readonly info: { readonly version: string };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string; readonly description?: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

let document: Document;
let operations: { name: string; method: string; path: string; operation: Operation }[];

before(async () => {
  document = JSON.parse(await openApiText()) as Document;
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method} ${path}`,
      method,
      path,
      operation,
    })),
  );
});

const isText = (text: string | undefined): boolean => (text ?? '').length > 3;
const schemasOf = (part: Described): Schema[] =>
  Object.values(part.content ?? {}).flatMap((media) => media.schema ?? []);

test('every operation has an id of its own, a summary, a description and a known tag', () => {
  assert.ok(operations.length >= 18);
  const known = document.tags.filter((tag) => isText(tag.description)).map((tag) => tag.name);
  for (const { name, operation } of operations) {
    const { operationId, summary, description, tags = [] } = operation;
    assert.ok(isText(operationId) && isText(summary) && isText(description), name);
    assert.ok(tags.length > 0 && tags.every((tag) => known.includes(tag)), name);
  }
  const ids = operations.map(({ operation }) => operation.operationId);
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(
    document.servers.map((server) => server.url),
    ['/'],
  );
});

test('every response and every header of one is described', () => {
  for (const { name, operation } of operations) {
    const codes = Object.keys(operation.responses);
    assert.equal(codes.filter((code) => code.startsWith('2')).length, 1, name);
    for (const [code, response] of Object.entries(operation.responses)) {
      assert.ok(isText(response.description), `${name} ${code}`);
      assert.notEqual(response.description, 'Default Response', `${name} ${code}`);
      for (const header of Object.values(response.headers ?? {})) {
        assert.ok(isText(header.description), `${name} ${code}`);
      }
      if (code >= '400')
        assert.equal(schemasOf(response)[0]?.$ref, '#/components/schemas/ErrorBody');
    }
  }
});

const PUBLIC_PATHS = [
  ...['/healthz', '/readyz'],
  ...['/v1/specs', '/v1/status', '/v1/pricing', '/v1/thunder-templates'],
];

test('an operation answers 401 unless it is public, and only errors that can happen', () => {
  for (const { name, method, path, operation } of operations) {
    const codes = Object.keys(operation.responses);
    const isPublic = operation.security?.length === 0;
    assert.equal(isPublic, PUBLIC_PATHS.includes(path), name);
    assert.equal(codes.includes('401'), !isPublic, name);
    assert.equal(codes.includes('404'), path.includes('{') || hasReference(operation), name);
    for (const code of ['413', '415']) {
      assert.equal(codes.includes(code), method !== 'get', `${name} ${code}`);
    }
    for (const code of ['500', '503']) assert.ok(codes.includes(code), `${name} ${code}`);
  }
});

/** Any valid token may ask these. */
const ANY_SCOPE = ['validateToken', 'listTokens', 'deleteToken'];

test('403, 422 and 429 stand where scopes, idempotency keys and rate limits are', () => {
  for (const { name, method, path, operation } of operations) {
    const codes = Object.keys(operation.responses);
    const isPublic = operation.security?.length === 0;
    const anyScope = ANY_SCOPE.includes(operation.operationId ?? '');
    if (!anyScope) assert.equal(codes.includes('403'), !isPublic, `${name} 403`);
    const isKeyed = method === 'post' || method === 'patch';
    const headers = (operation.parameters ?? []).filter((one) => one.in === 'header');
    assert.equal(codes.includes('422'), isKeyed, `${name} 422`);
    assert.equal(
      headers.some((one) => one.name === 'idempotency-key'),
      isKeyed,
      name,
    );
    if (isKeyed) assert.ok(codes.includes('409'), `${name} 409`);
    const unlimited = path === '/healthz' || path === '/readyz';
    assert.equal(codes.includes('429'), !unlimited, `${name} 429`);
    if (unlimited) continue;
    const wanted = ['Retry-After', 'RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'];
    const given = Object.keys(operation.responses['429']?.headers ?? {});
    assert.deepEqual(given.sort(), wanted.sort(), name);
  }
});

test('every body of a request or a response has an example', () => {
  for (const { name, operation } of operations) {
    const { requestBody, responses } = operation;
    const parts = [...Object.entries(responses), ...(requestBody ? [['body', requestBody]] : [])];
    for (const [code, part] of parts as [string, Described][]) {
      for (const media of Object.values(part.content ?? {})) {
        assert.ok(media.example !== undefined || media.examples !== undefined, `${name} ${code}`);
        if (code < '400' || code === 'body') continue;
        const example = media.example as { code: number; error: string };
        assert.equal(example.code, Number(code), `${name} ${code}`);
        assert.ok((WORDS[example.code] ?? []).includes(example.error), `${name} ${example.error}`);
      }
    }
  }
});

/** Names something that may not exist in its body: an instance to copy, a token to delete. */
const hasReference = (operation: Operation): boolean =>
  ['createSnapshot', 'deleteToken'].includes(operation.operationId ?? '');

test('a body is required exactly where one of its fields is', () => {
  for (const { name, operation } of operations) {
    if (!operation.requestBody) continue;
    const required = schemasOf(operation.requestBody).flatMap((schema) => schema.required ?? []);
    assert.equal(operation.requestBody.required, required.length > 0, name);
  }
  const addKey = document.paths['/v1/instances/{id}/add_key']?.post;
  assert.equal(addKey?.requestBody?.required, false);
  const create = document.paths['/v1/instances/create']?.post;
  assert.equal(create?.requestBody?.required, true);
});

test('every parameter and every field is described', () => {
  for (const { name, path, operation } of operations) {
    const { parameters = [], requestBody } = operation;
    for (const parameter of parameters) {
      assert.ok(isText(parameter.description), `${name} ${parameter.name}`);
    }
    const inPath = parameters.filter((parameter) => parameter.in === 'path');
    const named = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
    assert.deepEqual(inPath.map((parameter) => parameter.name).sort(), named.sort(), name);
    const parts = [...Object.values(operation.responses), ...(requestBody ? [requestBody] : [])];
    for (const schema of parts.flatMap(schemasOf)) checkFields(schema, name);
  }
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    checkFields(schema, name);
  }
});

function checkFields(schema: Schema, where: string): void {
  for (const [field, inner] of Object.entries(schema.properties ?? {})) {
    assert.ok(isText(inner.description), `${where}: ${field}`);
    checkFields(inner, `${where}: ${field}`);
  }
  if (schema.items) checkFields(schema.items, where);
  if (typeof schema.additionalProperties === 'object') {
    checkFields(schema.additionalProperties, where);
  }
}

test('every reference leads somewhere', () => {
  const text = JSON.stringify(document);
  const references = [...text.matchAll(/"\$ref":"([^"]+)"/g)].map((match) => match[1] ?? '');
  assert.ok(references.length > 0);
  for (const reference of new Set(references)) {
    const steps = reference.replace(/^#\//, '').split('/');
    const target = steps.reduce<unknown>(
      (value, step) => Object(value)[step.replaceAll('~1', '/').replaceAll('~0', '~')],
      document,
    );
    assert.ok(target, reference);
  }
});

test('the list says how to ask again cheaply, and a secret that it is not stored', () => {
  const list = document.paths['/v1/snapshots/list']?.get;
  assert.ok(list?.responses['200']?.headers?.ETag && list.responses['304']?.headers?.ETag);
  assert.ok(list.parameters?.some((parameter) => parameter.name === 'if-none-match'));
  assert.ok(list.responses['401']?.headers?.['WWW-Authenticate']);
  const addKey = document.paths['/v1/instances/{id}/add_key']?.post;
  assert.ok(addKey?.responses['200']?.headers?.['Cache-Control']);
});

test('no example holds the body of a private key', () => {
  const text = JSON.stringify(document);
  assert.match(text, /BEGIN OPENSSH PRIVATE KEY-----\\n\.\.\.\\n-----END/);
  assert.doesNotMatch(text, /b3BlbnNzaC1rZXktdjEA/);
});

test('the document has the version of the program', () => {
  assert.equal(document.info.version, packageJson.version);
});
