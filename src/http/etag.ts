/** Does `If-None-Match` name this ETag? By weak comparison, as RFC 9110 section 13.1.2 asks. */
export function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === '*') return true;
  return header.split(',').some((candidate) => candidate.trim().replace(/^W\//, '') === etag);
}
