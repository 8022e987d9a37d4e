/**
 * Requests and how long they took, as a Prometheus histogram. The client library's own takes as long to count one
 * request as the list's fast path to answer it, so these are plain arrays that become text when somebody asks.
 */

/** Seconds; the service answers within 25. */
const bounds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25] as const;

const name = 'berth_http_request_duration_seconds';
const help =
  'Answered requests by route pattern, method and class of status, and how long they took.';

const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The answers of one route, method and class of status. */
export class AnswerSeries {
  readonly #counts: number[] = new Array<number>(bounds.length + 1).fill(0);
  readonly #labels: string;
  #count = 0;
  #sumSeconds = 0;

  constructor(labels: string) {
    this.#labels = labels;
  }

  observe(seconds: number): void {
    let index = 0;
    while (index < bounds.length && seconds > (bounds[index] ?? 0)) index += 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    this.#sumSeconds += seconds;
  }

  lines(): string[] {
    let below = 0;
    const buckets = bounds.map((bound, index) => {
      below += this.#counts[index] ?? 0;
      return `${name}_bucket{le="${bound}",${this.#labels}} ${below}`;
    });
    return [
      ...buckets,
      `${name}_bucket{le="+Inf",${this.#labels}} ${this.#count}`,
      `${name}_sum{${this.#labels}} ${this.#sumSeconds}`,
      `${name}_count{${this.#labels}} ${this.#count}`,
    ];
  }
}

/** All series there are: as many as routes, methods and classes of status, whatever callers send. */
export class HttpStatistics {
  readonly #series = new Map<string, AnswerSeries>();

  /** `route` is a pattern and never a path: ids are no labels. */
  series(route: string, method: string, status: number): AnswerSeries {
    const shownMethod = knownMethods.has(method) ? method : 'OTHER';
    const statusClass = `${Math.floor(status / 100)}xx`;
    const labels = `method="${shownMethod}",route="${route}",status="${statusClass}"`;
    const known = this.#series.get(labels);
    if (known) return known;
    const series = new AnswerSeries(labels);
    this.#series.set(labels, series);
    return series;
  }

  text(): string {
    const lines = [...this.#series.values()].flatMap((series) => series.lines());
    return [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines, ''].join('\n');
  }
}
