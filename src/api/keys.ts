import { type Static, Type } from 'typebox';
import { exampleFingerprint, examplePublicKey, exampleUuid, responses } from './common.ts';
import { KeyAccess } from './instance-keys.ts';

export const AddBookKeyRequest = Type.Object(
  {
    name: Type.String({
      description:
        '1 to 64 letters, digits, spaces or any of ._@:/+-; the first a letter or digit. Names may repeat.',
    }),
    public_key: Type.String({
      description: 'One public key, one line, in OpenSSH format; the same rules as for add_key.',
    }),
  },
  { examples: [{ name: 'laptop', public_key: examplePublicKey }] },
);
export type AddBookKeyRequest = Static<typeof AddBookKeyRequest>;

const exampleKey = {
  id: '0199c0de-6a10-7b52-9c3d-4e5f60718293',
  name: 'laptop',
  public_key: examplePublicKey,
  fingerprint: exampleFingerprint,
  key_type: 'ssh-ed25519',
  created_at: 1_763_600_000,
};

/** An entry of the organization's address book of keys. */
export const BookKey = Type.Object({
  id: Type.String({ description: 'The UUID of the entry.' }),
  name: Type.String({ description: 'As it was given; several may have the same.' }),
  public_key: Type.String({ description: 'The key line as it was given, its comment included.' }),
  fingerprint: Type.String({ description: 'SHA256:..., as ssh-keygen -l prints it.' }),
  key_type: Type.String({ description: 'As the key line begins, such as ssh-ed25519.' }),
  created_at: Type.Integer({ description: 'Seconds since the Unix epoch, UTC.' }),
});
export type BookKey = Static<typeof BookKey>;

export const AddBookKeyResponse = Type.Object(
  {
    key: Type.Object(BookKey.properties, { description: 'The new entry.' }),
    message: Type.String({ description: 'One sentence for people.' }),
  },
  {
    examples: [
      { key: exampleKey, message: `"laptop" (${exampleFingerprint}) is in the address book.` },
    ],
  },
);
export type AddBookKeyResponse = Static<typeof AddBookKeyResponse>;

export const BookKeyList = Type.Array(BookKey, { examples: [[exampleKey]] });
export type BookKeyList = Static<typeof BookKeyList>;

export const BookKeyParams = Type.Object({
  id: Type.String({ description: 'The UUID of the entry.' }),
});

export const KeyPlace = Type.Object({
  uuid: Type.String({ description: 'The UUID of the instance.' }),
  identifier: Type.Integer({ description: 'The number of the instance in its organization.' }),
  name: Type.String({ description: 'The name of the instance.' }),
  status: Type.String({ description: 'The status of the instance.' }),
  presence: Type.Union(
    [
      Type.Literal('present', { description: 'In authorized_keys, and Berth put it there.' }),
      Type.Literal('unknown', {
        description: 'In authorized_keys; somebody wrote it there, or it came with a snapshot.',
      }),
      Type.Literal('missing', {
        description: 'Berth put it there, but it is gone from the file. Only with missing=true.',
      }),
      Type.Literal('recorded', {
        description: 'Berth put it there; the file cannot be read now.',
      }),
      Type.Literal('unchecked', {
        description: 'Not known to be there; the file cannot be read now, so it may be.',
      }),
    ],
    { description: 'What the real file says, or the record where the file cannot be read.' },
  ),
  access: Type.Optional(KeyAccess),
  source: Type.Optional(
    Type.String({
      description: 'supplied, generated, create or file, as in the list of keys of an instance.',
    }),
  ),
  reason: Type.Optional(Type.String({ description: 'Why the file was not read.' })),
});
export type KeyPlace = Static<typeof KeyPlace>;

export const KeyPlaceList = Type.Array(KeyPlace, {
  examples: [
    [
      {
        uuid: exampleUuid,
        identifier: 0,
        name: 'amber-fox',
        status: 'RUNNING',
        presence: 'present',
        access: 'full',
        source: 'supplied',
      },
    ],
  ],
});
export type KeyPlaceList = Static<typeof KeyPlaceList>;

export const KeyPlaceParams = Type.Object({
  id: Type.String({
    description:
      'A fingerprint, with or without "SHA256:" (a "/" in it may be encoded), or the UUID of an entry of the address book.',
    examples: [exampleFingerprint],
  }),
});

/** The same for a fingerprint with a raw "/": what follows "SHA256:", up to "/instances". */
export const KeyPlaceTailParams = Type.Object({
  '*': Type.String({ description: 'What follows "SHA256:".' }),
});

export const KeyPlaceQuery = Type.Object({
  missing: Type.Optional(
    Type.Union([Type.Literal('true'), Type.Literal('false')], {
      description:
        'true: also the instances where Berth put the key and its line is gone from the file. Default: false.',
    }),
  ),
});

const tags = ['Keys'];

export const addBookKeyOperation = {
  operationId: 'addBookKey',
  summary: 'Put a public key into the address book',
  description:
    "Keeps a public key under a name for your organization, up to 1,000 of them. Nothing attaches it by itself: to let it log in, send it to an instance's add_key.",
  tags,
  body: AddBookKeyRequest,
  response: responses(200, AddBookKeyResponse, {
    description: 'The key is in the address book.',
    readsBody: true,
    errors: {
      400: 'invalid_request: malformed JSON, a field missing or of the wrong type, a name with other characters, or a public key that is refused.',
      409: 'conflict: the key is in the address book already, whatever its comment, and the message says under which name; or the book is full.',
    },
  }),
};

export const listBookKeysOperation = {
  operationId: 'listBookKeys',
  summary: 'List the address book of keys',
  description: 'Every key in the address book of your organization, oldest first.',
  tags,
  response: responses(200, BookKeyList, { description: 'The keys; [] when there are none.' }),
};

export const deleteBookKeyOperation = {
  operationId: 'deleteBookKey',
  summary: 'Take a key out of the address book',
  description: 'Takes one entry out. Where the key is authorized it stays so.',
  tags,
  params: BookKeyParams,
  response: responses(204, Type.Null(), {
    description: 'The entry is gone.',
    readsBody: true,
    errors: { 404: 'not_found: the address book of your organization has no such entry.' },
  }),
};

export const listKeyPlacesOperation = {
  operationId: 'listKeyInstances',
  summary: 'List the instances where a key is authorized',
  description:
    'Reads the authorized_keys of every instance of your organization now, so that keys written there by hand are found too. An instance whose file cannot be read now is listed as "recorded" or "unchecked", with the reason: it is never silently left out.',
  tags,
  params: KeyPlaceParams,
  querystring: KeyPlaceQuery,
  response: responses(200, KeyPlaceList, {
    description: 'The instances, by number; [] when the key is authorized nowhere.',
    errors: {
      400: 'invalid_request: a parameter has a wrong value; the message names it.',
      404: 'not_found: this is no fingerprint, and the address book of your organization has no such entry.',
    },
  }),
};
