/**
 * The end of a server. What is being answered is answered; whoever only holds a connection open (half a head, half a
 * body, no byte at all) must not keep the service from ending: `server.close()` waits for them without end, and no
 * longer looks at the time they take.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const lookEveryMs = 250;
/** For the rest of a body that is on its way. */
const bodyPatienceMs = 2000;
/** Every answer comes within this. */
const answerPatienceMs = 25_000;

export class Draining {
  readonly #sockets = new Set<Socket>();
  readonly #atWork = new Set<ServerResponse<IncomingMessage>>();
  #isClosing = false;

  get isClosing(): boolean {
    return this.#isClosing;
  }

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  /** To be called for a request that is handed on. */
  begin(response: ServerResponse<IncomingMessage>): void {
    this.#atWork.add(response);
    response.once('close', () => this.#atWork.delete(response));
  }

  /** From now on nothing new is taken; returns at once. */
  close(server: Server): void {
    this.#isClosing = true;
    const begun = performance.now();
    const timer = setInterval(() => this.#look(performance.now() - begun), lookEveryMs);
    server.once('close', () => clearInterval(timer));
    timer.unref();
  }

  #look(elapsedMs: number): void {
    for (const response of this.#atWork) {
      const isLate = elapsedMs > (response.req.complete ? answerPatienceMs : bodyPatienceMs);
      if (isLate) response.destroy();
    }
    if (this.#atWork.size > 0) return;
    for (const socket of this.#sockets) socket.destroy();
  }
}
