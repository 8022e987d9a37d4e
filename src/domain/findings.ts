/** What an operator is told about an engine: what is there, what is not, and how to mend it. */
export interface Finding {
  readonly topic: string;
  /** `weak`: it works without. `missing`: it does not. */
  readonly state: 'good' | 'weak' | 'missing';
  readonly found: string;
  /** What to do about it; left out when it is good. */
  readonly advice?: string;
}

export const good = (topic: string, found: string): Finding => ({ topic, state: 'good', found });

export const weak = (topic: string, found: string, advice: string): Finding => ({
  topic,
  state: 'weak',
  found,
  advice,
});

export const missing = (topic: string, found: string, advice: string): Finding => ({
  topic,
  state: 'missing',
  found,
  advice,
});
