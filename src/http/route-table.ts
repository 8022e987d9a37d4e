/** Which methods a path answers: what the router itself does not tell when a request missed. */
export class RouteTable {
  readonly #methods = new Map<string, { pattern: RegExp; methods: Set<string> }>();

  add(route: { url: string; method: string | readonly string[] }): void {
    const known = this.#methods.get(route.url) ?? {
      pattern: toPattern(route.url),
      methods: new Set<string>(),
    };
    for (const method of [route.method].flat()) known.methods.add(method);
    this.#methods.set(route.url, known);
  }

  /** Empty when no route has this path. */
  methodsFor(path: string): string[] {
    const found = [...this.#methods.values()].filter((route) => route.pattern.test(path));
    return [...new Set(found.flatMap((route) => [...route.methods]))].sort();
  }
}

function toPattern(url: string): RegExp {
  const parts = url.split('/').map((part) => {
    if (part === '*') return '.+';
    if (part.startsWith(':')) return '[^/]+';
    return part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${parts.join('/')}$`);
}
