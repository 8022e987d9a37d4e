/**
 * Reads an operator's YAML (1.2, core schema) as a tree of places that know their line and path.
 *
 * Every wrong place is reported and reading goes on, with a stand-in value, so that one look finds all problems:
 * what was read counts only while there are none. Aliases are refused unresolved, so a small text never becomes a
 * large one; duplicate fields are found here, as the library's own search for them is quadratic.
 */

import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml';
import type { Range } from './catalog.ts';
import { shorten } from './shorten.ts';

export interface Problem {
  /** Counts from 1. */
  readonly line: number;
  /** Such as `gpu_types[0].name`; empty for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

type Report = (problem: Problem) => void;
type LineOf = (node: Node | undefined) => number | undefined;

/** Undefined when the text is no YAML that could be read any further; why is in the problems then. */
export function readYaml(text: string, maxCharacters: number, report: Report): Place | undefined {
  const whole = (line: number, message: string): undefined => {
    report({ line, path: '', message });
  };
  if (text.length > maxCharacters)
    return whole(1, `The file is larger than ${maxCharacters} characters; it must be smaller.`);
  const lines = new LineCounter();
  const lineAt = (offset: number): number => Math.max(1, lines.linePos(offset).line);
  const parsed = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    uniqueKeys: false,
    // A quieter one would not tell of a second document.
    logLevel: 'error',
    schema: 'core',
    version: '1.2',
  });
  // A warning is a tag that means nothing here.
  const errors = [...parsed.errors, ...parsed.warnings];
  for (const error of errors) whole(lineAt(error.pos[0]), explainSyntax(error));
  if (errors.length > 0) return undefined;
  if (!parsed.contents) return whole(1, 'The file is empty; it must hold a catalog.');
  const lineOf: LineOf = (node) => (node?.range ? lineAt(node.range[0]) : undefined);
  return new Place({ node: parsed.contents, line: 1, path: '' }, { report, lineOf });
}

function explainSyntax({ code, message }: { code: string; message: string }): string {
  if (code === 'MULTIPLE_DOCS') return 'The file holds several documents; it must hold one.';
  if (code === 'RESOURCE_EXHAUSTION') return 'The file is nested too deeply. Write it flatter.';
  return `This is not YAML: ${shorten(message)}`;
}

interface Spot {
  /** Undefined: nothing is there, and that was reported. */
  readonly node: Node | undefined;
  /** Of a field it is the line of its name: what it holds may start further down. */
  readonly line: number;
  readonly path: string;
}

export class Place {
  readonly line: number;
  readonly path: string;
  readonly #node: Node | undefined;
  readonly #tools: { readonly report: Report; readonly lineOf: LineOf };

  constructor(spot: Spot, tools: { readonly report: Report; readonly lineOf: LineOf }) {
    this.#tools = tools;
    this.#node = spot.node;
    this.line = spot.line;
    this.path = spot.path;
  }

  problem(message: string): void {
    this.#tools.report({ line: this.line, path: this.path, message });
  }

  /** One line of text without control characters; `hint` says what the pattern means. */
  text(maxLength: number, pattern?: { readonly test: RegExp; readonly hint: string }): string {
    const read = this.#scalar();
    // A block of text (`>`) ends in a line feed.
    const value = typeof read === 'string' ? read.trim() : '';
    const isFine =
      value !== '' &&
      value.length <= maxLength &&
      !/[\p{C}\u2028\u2029]/u.test(value) &&
      (pattern?.test.test(value) ?? true);
    if (isFine) return value;
    return this.#refuse(pattern?.hint ?? `one line of text, 1 to ${maxLength} characters`, '');
  }

  integer(limits: Range): number {
    return this.integerIfAny(limits) ?? limits.min;
  }

  /** The same without a stand-in. */
  integerIfAny({ min, max }: Range): number | undefined {
    const value = this.#scalar();
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max)
      return value;
    return this.#refuse<number | undefined>(`a whole number from ${min} to ${max}`, undefined);
  }

  number({ min, max }: Range): number {
    const value = this.#scalar();
    if (typeof value === 'number' && value >= min && value <= max) return value;
    return this.#refuse(`a number from ${min} to ${max}`, min);
  }

  flag(): boolean {
    const value = this.#scalar();
    return typeof value === 'boolean' ? value : this.#refuse('true or false', false);
  }

  isMap(): boolean {
    return isMap(this.#node);
  }

  /** Nothing is there, which was reported. */
  isMissing(): boolean {
    return this.#node === undefined;
  }

  /** `what` says what the list holds. */
  list(what: string, least = 0): Place[] {
    const node = this.#node;
    if (!isSeq(node)) return this.#refuse(`a list of ${what}`, []);
    if (node.items.length < least) this.problem(`The list is empty; it must hold ${what}.`);
    return node.items.map((item, index) => this.#inside(item as Node, `[${index}]`));
  }

  /** `what` says what it describes. */
  fields(what: string): Fields {
    const node = this.#node;
    const found = new Map<string, Place>();
    if (!isMap(node)) return new Fields(this, this.#refuse(what, found), true);
    for (const { key, value } of node.items) {
      const keyPlace = this.#inside(key as Node, '');
      const name = isScalar(key) ? String(key.value) : '';
      if (!isScalar(key)) keyPlace.problem('The name of a field must be plain text.');
      else if (found.has(name)) keyPlace.problem(`The field "${shorten(name)}" is there twice.`);
      else
        found.set(
          name,
          this.#inside(value as Node | null, fieldStep(this.path, name), keyPlace.line),
        );
    }
    return new Fields(this, found, false);
  }

  /** A place for something that is missing: its readers give stand-ins and report nothing. */
  missing(): Place {
    return new Place({ node: undefined, line: this.line, path: this.path }, this.#tools);
  }

  #inside(node: Node | null, step: string, nameLine?: number): Place {
    const line = nameLine ?? this.#tools.lineOf(node ?? undefined) ?? this.line;
    const place = new Place({ node: node ?? undefined, line, path: this.path + step }, this.#tools);
    if (node) return place;
    place.problem('The value is missing.');
    return place;
  }

  #scalar(): unknown {
    return isScalar(this.#node) ? this.#node.value : undefined;
  }

  #refuse<T>(allowed: string, standIn: T): T {
    if (this.#node) this.problem(`${describe(this.#node)}, but must be ${allowed}.`);
    return standIn;
  }
}

/** The fields of one place; every known one is asked for, and `finish` reports the rest. */
export class Fields {
  readonly place: Place;
  /** It was no map at all, which was reported: nothing more is to be said of its fields. */
  readonly silent: boolean;
  readonly #found: ReadonlyMap<string, Place>;
  readonly #known: string[] = [];

  constructor(place: Place, found: ReadonlyMap<string, Place>, silent: boolean) {
    this.place = place;
    this.#found = found;
    this.silent = silent;
  }

  required(name: string): Place {
    const found = this.optional(name);
    if (!found && !this.silent) this.place.problem(`The field "${name}" is missing.`);
    return found ?? this.place.missing();
  }

  optional(name: string): Place | undefined {
    this.#known.push(name);
    return this.#found.get(name);
  }

  /** For a map whose names are not fixed. */
  entries(): [string, Place][] {
    return [...this.#found];
  }

  finish(): void {
    const known = new Set(this.#known);
    for (const [name, place] of this.#found) {
      if (known.has(name)) continue;
      place.problem(`The field is not known; known are: ${this.#known.join(', ')}.`);
    }
  }
}

const fieldStep = (path: string, name: string): string =>
  (path === '' ? '' : '.') + (/^[\w-]{1,64}$/.test(name) ? name : JSON.stringify(shorten(name)));

function describe(node: Node): string {
  if (isAlias(node)) return `This is the alias *${shorten(node.source)}`;
  if (isMap(node)) return 'This is a map of fields';
  if (isSeq(node)) return 'This is a list';
  const value = isScalar(node) ? node.value : undefined;
  if (value === null) return 'This is empty';
  return `This is ${typeof value === 'string' ? JSON.stringify(shorten(value)) : String(value)}`;
}
