/** Strict parsers of JSON: the exact type, no unknown field, and never null or "" for what is absent. */

import assert from 'node:assert/strict';

export type Parser<T> = (value: unknown, where: string) => T;
type Parsers = Readonly<Record<string, Parser<unknown>>>;
type Parsed<P extends Parsers> = { readonly [K in keyof P]: ReturnType<P[K]> };
export type Shape<R extends Parsers, O extends Parsers> = Parsed<R> & Partial<Parsed<O>>;

export const text: Parser<string> = (value, where) => {
  assert.equal(typeof value, 'string', `${where} is to be a string: ${JSON.stringify(value)}`);
  return value as string;
};

export const filledText: Parser<string> = (value, where) => {
  assert.notEqual(text(value, where), '', `${where} is empty`);
  return value as string;
};

export const integer: Parser<number> = (value, where) => {
  assert.ok(Number.isSafeInteger(value), `${where} is to be an integer: ${JSON.stringify(value)}`);
  return value as number;
};

export const decimal: Parser<number> = (value, where) => {
  assert.ok(Number.isFinite(value), `${where} is to be a number: ${JSON.stringify(value)}`);
  return value as number;
};

export const bool: Parser<boolean> = (value, where) => {
  assert.equal(typeof value, 'boolean', `${where} is to be a boolean: ${JSON.stringify(value)}`);
  return value as boolean;
};

export function matching(pattern: RegExp): Parser<string> {
  return (value, where) => {
    assert.match(text(value, where), pattern, where);
    return value as string;
  };
}

export function oneOf<const T extends string | boolean>(...allowed: readonly T[]): Parser<T> {
  return (value, where) => {
    assert.ok(allowed.includes(value as T), `${where} is ${JSON.stringify(value)}`);
    return value as T;
  };
}

export function listOf<T>(item: Parser<T>): Parser<T[]> {
  return (value, where) => {
    assert.ok(Array.isArray(value), `${where} is to be an array`);
    return value.map((entry, index) => item(entry, `${where}[${index}]`));
  };
}

function object(value: unknown, where: string): Record<string, unknown> {
  assert.ok(typeof value === 'object' && value !== null && !Array.isArray(value), where);
  return value as Record<string, unknown>;
}

export function mapOf<T>(item: Parser<T>): Parser<Map<string, T>> {
  return (value, where) =>
    new Map(
      Object.entries(object(value, where)).map(([key, entry]) => [
        key,
        item(entry, `${where}.${key}`),
      ]),
    );
}

/** Every required field, any of the optional ones, nothing else. */
export function fields<R extends Parsers, O extends Parsers = Record<never, never>>(
  required: R,
  optional: O = {} as O,
): Parser<Shape<R, O>> {
  return (value, where) => {
    const found = object(value, where);
    for (const name of Object.keys(required)) {
      assert.ok(Object.hasOwn(found, name), `${where}.${name} is missing`);
    }
    const parsed = Object.entries(found).map(([name, entry]) => {
      const parser = required[name] ?? optional[name];
      assert.ok(parser !== undefined, `${where}.${name} is not in the contract`);
      if (optional[name] !== undefined) assert.notEqual(entry, '', `${where}.${name} is ""`);
      return [name, parser(entry, `${where}.${name}`)] as const;
    });
    return Object.fromEntries(parsed) as Shape<R, O>;
  };
}
