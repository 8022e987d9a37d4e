/** A caller's text for a message: never long, never with control characters. */
export function shorten(text: string): string {
  const clean = text.replace(/[\p{C}\u2028\u2029]/gu, '?');
  return clean.length > 80 ? `${clean.slice(0, 80)}...` : clean;
}
