import { type Static, Type } from 'typebox';
import {
  engineErrors,
  exampleFingerprint,
  examplePrivateKey,
  examplePublicKey,
  exampleUuid,
  InstanceParams,
  noStore,
  noSuchInstance,
  responses,
} from './common.ts';

/** Body of `POST /v1/instances/{id}/add_key`; every field is optional, and so is the body. */
export const AddKeyRequest = Type.Object(
  {
    public_key: Type.Optional(
      Type.String({
        description:
          'One public key, one line, in OpenSSH format: ssh-ed25519, ecdsa-sha2-nistp256/384/521, ssh-rsa of 2048 bits or more, or an sk- form. Its comment is kept. Left out: a key pair is generated. An empty string is refused.',
        examples: [examplePublicKey],
      }),
    ),
    verify: Type.Optional(
      Type.Boolean({
        description:
          'Prove the login before answering: the sshd of the instance is asked whether it accepts this key, with a random key as negative control. Default: false.',
      }),
    ),
    expires_in_seconds: Type.Optional(
      Type.Integer({
        minimum: 60,
        maximum: 31_536_000,
        description:
          'The key stops to log in after this time, from 60 seconds to 365 days, even while the service is down. Left out: it does not end by itself.',
      }),
    ),
  },
  { examples: [{ public_key: examplePublicKey, verify: true }] },
);
export type AddKeyRequest = Static<typeof AddKeyRequest>;

export const AddKeyResponse = Type.Object(
  {
    success: Type.Boolean({ description: 'Always true.' }),
    uuid: Type.String({ description: 'The UUID of the instance.' }),
    key: Type.String({
      description:
        'The generated private key in OpenSSH format, ending in a newline, shown this once; "" when the caller sent a public key.',
    }),
    message: Type.String({ description: 'One sentence with the SHA256 fingerprint of the key.' }),
  },
  {
    examples: [
      {
        success: true,
        uuid: exampleUuid,
        key: '',
        message: `The key ${exampleFingerprint} was added to instance 0.`,
      },
      {
        success: true,
        uuid: exampleUuid,
        key: examplePrivateKey,
        message: `A new key ${exampleFingerprint} was added to instance 0; its private half is shown this once.`,
      },
    ],
  },
);
export type AddKeyResponse = Static<typeof AddKeyResponse>;

/** What a line of authorized_keys lets its key do; as in `domain/key-line-access.ts`. */
export const KeyAccess = Type.Union(
  [
    Type.Literal('full', { description: 'It logs in.' }),
    Type.Literal('limited', {
      description: 'It logs in within limits, such as from=, command= or restrict.',
    }),
    Type.Literal('signer', {
      description: 'cert-authority: it does not log in, but certificates that it signed do.',
    }),
    Type.Literal('expired', { description: 'Its expiry-time is over.' }),
    Type.Literal('ignored', {
      description: 'sshd passes over the line: an option it cannot read, or a DSA key.',
    }),
  ],
  { description: 'What the line lets the key do. Left out when there is no line.' },
);

/** One key line of an instance. */
export const InstanceKey = Type.Object({
  fingerprint: Type.String({ description: 'SHA256:..., as ssh-keygen -l prints it.' }),
  key_type: Type.String({ description: 'As the key line begins, such as ssh-ed25519.' }),
  comment: Type.String({ description: 'What follows the key in its line; "" when nothing does.' }),
  public_key: Type.String({ description: 'The key in OpenSSH format.' }),
  added_at: Type.Optional(
    Type.String({ description: 'RFC 3339; left out for a key Berth did not add.' }),
  ),
  source: Type.Union(
    [
      Type.Literal('supplied', { description: 'The caller sent the public key.' }),
      Type.Literal('generated', { description: 'Berth made the pair.' }),
      Type.Literal('create', { description: 'Given or made when the instance was created.' }),
      Type.Literal('file', {
        description: 'Found in authorized_keys; somebody wrote it there by hand.',
      }),
    ],
    { description: 'Where the key comes from.' },
  ),
  presence: Type.Optional(
    Type.Union(
      [
        Type.Literal('present', { description: 'In the file, and Berth put it there.' }),
        Type.Literal('missing', { description: 'Berth put it there, but its line is gone.' }),
        Type.Literal('unknown', { description: 'In the file, but Berth did not put it there.' }),
      ],
      { description: 'Only with presence=true: how the file and the records agree.' },
    ),
  ),
  access: Type.Optional(KeyAccess),
  expires_at: Type.Optional(
    Type.String({ description: 'RFC 3339; only with presence=true, from an expiry-time.' }),
  ),
});
export type InstanceKey = Static<typeof InstanceKey>;

export const InstanceKeyList = Type.Array(InstanceKey, {
  examples: [
    [
      {
        fingerprint: exampleFingerprint,
        key_type: 'ssh-ed25519',
        comment: 'you@laptop',
        public_key: examplePublicKey,
        added_at: '2025-11-20T00:53:20.000Z',
        source: 'supplied',
      },
    ],
  ],
});

/** docs/decisions/0009-key-presence.md says why this has to be asked for. */
export const ListKeysQuery = Type.Object({
  presence: Type.Optional(
    Type.Union([Type.Literal('true'), Type.Literal('false')], {
      description:
        'true: each item says its presence and access; keys that Berth put there and whose line is gone follow as "missing", and cert-authority lines are listed too. Default: false.',
    }),
  ),
});

export const RemoveKeyParams = Type.Object({
  id: InstanceParams.properties.id,
  '*': Type.String({
    description:
      'The fingerprint of the key, with or without "SHA256:"; a "/" in it may be encoded.',
  }),
});

const tags = ['Instance keys'];
const guestConflict =
  'something that a user of the instance made at ~/.ssh is in the way (a link, a directory, a file too large); the message says what.';

export const addKeyOperation = {
  operationId: 'addKey',
  summary: 'Add an SSH key to a running instance',
  description:
    'Appends a public key to the authorized_keys of the login user "ubuntu". Keys that are there, whoever put them there, stay byte for byte; a key that is there already, whatever its comment, is a success that changes nothing. Without "public_key" an Ed25519 pair is generated and its private half is returned, once: it is never stored and never logged. Send an "Idempotency-Key" to be able to ask for the same answer again for ten minutes; it is kept sealed, and only your token opens it. The body is optional. Repeating a request that sent a public key does no harm.',
  tags,
  params: InstanceParams,
  body: AddKeyRequest,
  response: responses(200, AddKeyResponse, {
    description:
      'The line is in the file, flushed to disk, and sshd reads that file; with "verify", that sshd has accepted the key.',
    headers: noStore,
    readsBody: true,
    errors: {
      400: 'invalid_request: malformed JSON, a field of the wrong type or out of bounds, or a public key that is refused (DSA, short RSA, a certificate, options before the key, several lines, a private key). The message says why and how to mend it.',
      404: noSuchInstance,
      409: `conflict: the instance is not RUNNING, or ${guestConflict}`,
      502: 'engine_error: what runs the instance refused or failed. login_refused: "verify" was asked for and sshd did not accept the key. Nothing of this request is left behind.',
      504: engineErrors[504],
    },
  }),
};

export const listKeysOperation = {
  operationId: 'listInstanceKeys',
  summary: 'List the keys in authorized_keys',
  description:
    'Every key that stands in the authorized_keys of the instance now, those written there by hand included. With presence=true it says of each whether it is recorded, and what is recorded but missing.',
  tags,
  params: InstanceParams,
  querystring: ListKeysQuery,
  response: responses(200, InstanceKeyList, {
    description: 'The keys, in the order of the file; possibly none.',
    errors: {
      400: 'invalid_request: a parameter has a wrong value; the message names it.',
      404: noSuchInstance,
      409: `conflict: ${guestConflict}`,
      ...engineErrors,
    },
  }),
};

export const removeKeyOperation = {
  operationId: 'removeKey',
  summary: 'Remove one key from authorized_keys',
  description:
    'Takes the line of one key away, and only that line. Sessions that are open stay open. The instance must be RUNNING or STOPPED.',
  tags,
  params: RemoveKeyParams,
  response: responses(204, Type.Null(), {
    description: 'The key is gone from the file; it does not log in any more.',
    readsBody: true,
    errors: {
      404: 'not_found: no instance of your organization has this number or UUID, or it has no such key.',
      409: `conflict: a change of the instance is under way, or ${guestConflict}`,
      ...engineErrors,
    },
  }),
};
