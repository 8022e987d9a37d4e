/** What a keyword of a schema asks for, in words for somebody who never saw the schema. */

type Parameters = Readonly<Record<string, unknown>>;

const typeNames: Readonly<Record<string, string>> = {
  integer: 'a whole number',
  number: 'a number',
  string: 'text',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
};

const rules: Readonly<Record<string, (parameters: Parameters) => string>> = {
  type: ({ type }) => `must be ${[type].flat().map(typeName).join(' or ')}`,
  minimum: ({ limit }) => `must be at least ${limit}`,
  maximum: ({ limit }) => `must be at most ${limit}`,
  enum: ({ allowedValues }) => `must be one of: ${[allowedValues].flat().join(', ')}`,
  minLength: ({ limit }) => `must be text of at least ${count(limit, 'character')}`,
  maxLength: ({ limit }) => `must be text of at most ${count(limit, 'character')}`,
  minItems: ({ limit }) => `must be a list of at least ${count(limit, 'item')}`,
  maxItems: ({ limit }) => `must be a list of at most ${count(limit, 'item')}`,
  uniqueItems: () => 'must not have anything twice',
};

/** The end of a sentence that begins with the field: `must be a whole number`. */
export function sayRule(keyword: string, parameters: Parameters): string {
  return rules[keyword]?.(parameters) ?? 'is not valid. See /docs for what it may be';
}

const typeName = (type: unknown): string => typeNames[String(type)] ?? String(type);

const count = (limit: unknown, noun: string): string => `${limit} ${noun}${limit === 1 ? '' : 's'}`;
