/** Why no answer came, in a few words. */

/** Codes of Node.js and of its `fetch` for a connection that was there and went away. */
const lostConnectionCodes = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

export const isLostConnection = (error: unknown): boolean => lostConnectionCodes.has(codeOf(error));

const untrusted = 'its certificate is not trusted here; name it with BERTH_CA or berth login --ca';

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'the host name is unknown',
  EAI_AGAIN: 'the host name cannot be looked up now',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ETIMEDOUT: 'the connection timed out',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name than the one in the URL',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak HTTPS there; try http://',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak HTTPS there; try http://',
};

/** Made from codes alone: the text of a foreign error could hold anything. */
export function reasonOf(error: unknown, timeoutMs: number): string {
  if (error instanceof Error && error.name === 'TimeoutError') {
    return `nothing came within ${timeoutMs / 1000} s`;
  }
  if (isLostConnection(error)) return 'the connection was lost';
  if (isForbiddenPort(error)) {
    return 'its port is one that no HTTP client may use (fetch.spec.whatwg.org, "bad port"); let the service listen on another';
  }
  const code = codeOf(error);
  return reasons[code] ?? (code === '' ? 'the request failed' : `the request failed (${code})`);
}

/** The one failure of `fetch` that has a text and no code. */
const isForbiddenPort = (error: unknown): boolean =>
  error instanceof Error && error.cause instanceof Error && error.cause.message === 'bad port';

/** `fetch` wraps what happened as `cause`; with several addresses tried, that holds `errors`. */
export function codeOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '';
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  return typeof code === 'string' ? code : codeOf(cause);
}
