import { conflict, notFound } from '../domain/errors.ts';
import { newOrderedId, parseReference } from '../domain/ids.ts';
import { parsePublicKey } from '../domain/ssh-public-key.ts';
import { isUniqueViolation } from '../store/errors.ts';
import {
  countBookKeys,
  deleteBookKey,
  findBookKeyByFingerprint,
  insertBookKey,
  listBookKeys,
} from '../store/keys.ts';
import type { KeyRow } from '../store/schema.ts';
import { audit } from './audit.ts';
import { type Actor, type ServiceContext, shorten } from './context.ts';
import type { OnConfirm } from './kept-answers.ts';
import { requireTokenName } from './tokens.ts';

/** The list has no pages, so the book is bounded. */
const mostKeys = 1000;

/**
 * The organization's address book of keys; nothing attaches them by itself. A key is in it once, whatever its
 * comment. Names may repeat: an entry is known by its id, and a key by its fingerprint.
 */
export class KeyService {
  readonly #context: ServiceContext;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  async add(
    actor: Actor,
    name: string,
    publicKey: string,
    onConfirm?: OnConfirm<KeyRow>,
  ): Promise<KeyRow> {
    requireTokenName(name);
    const { line, type, fingerprint } = parsePublicKey(publicKey);
    const { store, now } = this.#context;
    const row: KeyRow = {
      id: newOrderedId(),
      org_id: actor.orgId,
      name,
      public_key: line,
      key_type: type,
      fingerprint,
      created_at: now(),
    };
    try {
      await store.transaction(async (tx) => {
        await insertBookKey(tx, row);
        if ((await countBookKeys(tx, actor.orgId)) > mostKeys) throw bookIsFull();
        const entry = { action: 'key_book.add', subject: fingerprint, outcome: 'done' };
        await audit(tx, actor, now(), entry);
        await onConfirm?.(tx, row);
      });
    } catch (error) {
      if (isUniqueViolation(error)) throw await this.#isThereAlready(actor, fingerprint);
      throw error;
    }
    return row;
  }

  async #isThereAlready(actor: Actor, fingerprint: string): Promise<Error> {
    const known = await findBookKeyByFingerprint(this.#context.store.db, actor.orgId, fingerprint);
    const name = known ? ` as "${known.name}"` : '';
    return conflict(
      `This key (${fingerprint}) is in the address book already${name}. Delete that entry first to give it another name.`,
    );
  }

  /** Oldest first. */
  list(actor: Actor): Promise<KeyRow[]> {
    return listBookKeys(this.#context.store.db, actor.orgId);
  }

  /** Takes it out of the book; where it is authorized it stays so. */
  async delete(actor: Actor, id: string): Promise<void> {
    const { store, now } = this.#context;
    const reference = parseReference(id);
    if (!reference || !('uuid' in reference)) throw notFound('Key', shorten(id));
    await store.freeingTransaction(async (tx) => {
      const subject = await deleteBookKey(tx, actor.orgId, reference.uuid);
      if (subject === undefined) throw notFound('Key', shorten(id));
      await audit(tx, actor, now(), { action: 'key_book.remove', subject, outcome: 'done' });
    });
  }
}

const bookIsFull = (): Error =>
  conflict(
    `The address book holds ${mostKeys} keys, which is as many as it takes. Delete one that is not needed any more.`,
  );
