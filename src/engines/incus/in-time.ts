/** Undefined when it fails, or is not there in time; it goes on all the same. */
export function inTime<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<T | undefined>();
  const timer = setTimeout(() => resolve(undefined), ms);
  const end = (result: T | undefined) => {
    clearTimeout(timer);
    resolve(result);
  };
  work.then(end, () => end(undefined));
  return promise;
}
