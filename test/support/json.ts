/**
 * JSON read as Go's encoding/json reads it into typed structs with DisallowUnknownFields: together with a parser of
 * `shape.ts`, a whole number is one that is written as such. 1.0 and 1e3 are whole to JavaScript and refused by Go.
 */

import assert from 'node:assert/strict';
import type { Parser } from './shape.ts';

const INTEGER = /^-?(?:0|[1-9]\d*)$/;

export function decode<T>(parser: Parser<T>, text: string, where: string): T {
  const check = (key: string, value: unknown, context: { source?: string }): unknown => {
    if (typeof value !== 'number' || !Number.isInteger(value)) return value;
    assert.match(context.source ?? '', INTEGER, `${where}: ${key} is written ${context.source}`);
    return value;
  };
  return parser(JSON.parse(text, check as (key: string, value: unknown) => unknown), where);
}
