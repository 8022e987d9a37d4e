/**
 * Seconds of `Prefer: wait=N` (RFC 7240 section 4.3), at most `max`; the first one counts. Undefined when there is
 * none: a preference that cannot be read is passed over, as section 2 asks.
 */
export function preferredWaitSeconds(header: string | undefined, max: number): number | undefined {
  const match = /(?:^|,)[ \t]*wait[ \t]*=[ \t]*"?([0-9]{1,9})"?[ \t]*(?=[;,]|$)/i.exec(
    header ?? '',
  );
  return match ? Math.min(Number(match[1]), max) : undefined;
}
