/** A server on a unix socket that says what a server of Incus would say, for tests of what is made of its words. */

import { createServer, type Server } from 'node:http';

/** `answers()`: the `metadata` of each path; what is not in there is a 404. */
export function serveAnswers(answers: () => Readonly<Record<string, unknown>>): Server {
  return createServer((request, response) => {
    const path = new URL(request.url ?? '', 'http://incus').pathname;
    const metadata = answers()[path];
    const found = metadata !== undefined;
    response.statusCode = found ? 200 : 404;
    response.end(
      JSON.stringify(
        found ? { type: 'sync', metadata } : { type: 'error', error_code: 404, error: 'not found' },
      ),
    );
  });
}
