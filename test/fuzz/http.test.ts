/** 20,000 generated requests: no defect shows, and every refusal has the contract's error body. */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { anyQuestion, brokenBytes, type FuzzSetting } from '../support/fuzz-requests.ts';
import { openHouse } from '../support/house.ts';
import { type Answer, ask, checkAnswer, exchange, type Question } from '../support/http.ts';
import { makeKeyPair } from '../support/keys.ts';
import { Random, seedFrom } from '../support/random.ts';
import { firstAnswer, sendRaw } from '../support/raw-socket.ts';
import { allRoutes } from '../support/routes.ts';
import { pooled } from '../support/waiting.ts';

const COUNT = Number(process.env.BERTH_FUZZ_REQUESTS ?? '20000');
const RAW_SHARE = 0.1;
const WIDTH = 12;
const RAW_TIMEOUT_MS = 300;
const MOST_DEFECTS_SHOWN = 10;

const house = await openHouse({ environment: { BERTH_LOG_LEVEL: 'error' } });
after(() => house.dispose());
const { api, service } = house;
const machine = await house.machine();
const seed = seedFrom('BERTH_TEST_SEED');
const random = new Random(seed);
const agent = new Agent({ keepAlive: true, maxSockets: WIDTH });
after(() => agent.destroy());
const statuses = new Map<number | string, number>();
const defects = new Map<string, { times: number; example: string }>();

function count(what: number | string): void {
  statuses.set(what, (statuses.get(what) ?? 0) + 1);
}

/** Defects of one sort are shown once, with the first request that had it. */
function report(error: unknown, request: string, answer: Answer | undefined): void {
  const why = error instanceof Error ? error.message : String(error);
  const sort = `${why.slice(0, 200)} (${answer?.status ?? 'no answer'})`;
  const known = defects.get(sort);
  const got = answer === undefined ? '' : `\n  answer: ${answer.text.slice(0, 200)}`;
  const example = known?.example ?? `  request: ${request.slice(0, 600)}${got}`;
  defects.set(sort, { times: (known?.times ?? 0) + 1, example });
}

/** The rules for every answer, and: nothing generated may show a defect. */
function judge(answer: Answer, request: string, headOnly: boolean): void {
  count(answer.status);
  try {
    checkAnswer(answer, headOnly);
    assert.notEqual(answer.status, 500);
    assert.ok(answer.status < 500 || !answer.text.includes('"internal"'));
  } catch (error) {
    report(error, request, answer);
  }
}

async function sendQuestion(question: Question): Promise<void> {
  const request = JSON.stringify(question);
  try {
    const answer = await askAny(question);
    if (answer !== undefined) judge(answer, request, question.method === 'HEAD');
  } catch (error) {
    report(error, request, undefined);
  }
}

/** A keep-alive connection may be closed by the service just as it is used again: such a request is sent once more. */
async function askAny(question: Question): Promise<Answer | undefined> {
  try {
    return await exchange(service.baseUrl, { ...question, agent });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (code.startsWith('ERR_')) {
      count('not sendable');
      return undefined;
    }
    return exchange(service.baseUrl, question);
  }
}

async function sendBroken(bytes: Buffer): Promise<void> {
  const received = await sendRaw(service.baseUrl, bytes, RAW_TIMEOUT_MS);
  const answer = firstAnswer(received);
  if (answer === undefined) {
    count('raw: waits or closes');
    if (received.length > 0) report('half an answer', bytes.toString('latin1'), undefined);
    return;
  }
  const isHead = bytes.subarray(0, 5).toString() === 'HEAD ';
  judge(answer, JSON.stringify(bytes.toString('latin1')), isHead);
}

async function setting(): Promise<FuzzSetting> {
  const routes = await allRoutes(service.baseUrl);
  // The organization's own token may not end in the middle of the run.
  const token = await api.createToken('fuzz');
  return { routes, token, realIds: [machine.id, machine.uuid] };
}

test(`${COUNT} generated requests (BERTH_TEST_SEED=${seed})`, async (context) => {
  const chosen = await setting();
  const started = performance.now();
  const jobs = Array.from({ length: COUNT }, (_, index) => index);
  await pooled(jobs, WIDTH, () =>
    random.chance(RAW_SHARE)
      ? sendBroken(brokenBytes(random, chosen))
      : sendQuestion(anyQuestion(random, chosen)),
  );
  const seconds = (performance.now() - started) / 1000;
  const shown = [...statuses].sort().map(([status, times]) => `${status}: ${times}`);
  context.diagnostic(`${COUNT} requests in ${seconds.toFixed(1)} s; ${shown.join(', ')}`);
  const sorts = [...defects].map(([sort, seen]) => `${seen.times} x ${sort}\n${seen.example}`);
  assert.equal(sorts.length, 0, sorts.slice(0, MOST_DEFECTS_SHOWN).join('\n\n'));
});

test('nothing of that was an error in the log', async () => {
  const lines = (await readFile(service.logFile, 'utf8')).split('\n').filter((line) => line !== '');
  const errors = lines.filter((line) => !/"level":[1-4]0,/.test(line));
  assert.deepEqual(errors.slice(0, MOST_DEFECTS_SHOWN), []);
});

test('the service is alive, healthy and works after all that', async () => {
  assert.ok(service.pid !== undefined, 'the process of the beginning');
  for (const path of ['/healthz', '/readyz']) {
    assert.equal((await ask(service.baseUrl, { method: 'GET', path })).status, 200);
  }
  assert.ok((await api.instances()).size <= 4, 'at most a handful of instances');
  const fresh = await house.machine();
  const pair = await makeKeyPair(house.keyFolder);
  await api.addKey(fresh.id, { public_key: pair.publicKey });
  const body = { ...SMALL_INSTANCE, cpu_cores: 'many' };
  await api.refused(400, 'POST', '/v1/instances/create', { body });
});
