import { type Static, Type } from 'typebox';

/** Body of `POST /v1/instances/{id}/add_key`; every field is optional, and so is the body. */
export const AddKeyRequest = Type.Object({
  public_key: Type.Optional(
    Type.String({
      description: 'One public key in OpenSSH format. Left out: a key pair is generated.',
      examples: [
        'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ you@laptop',
      ],
    }),
  ),
  verify: Type.Optional(
    Type.Boolean({
      description: 'Ask the sshd of the instance whether it accepts the key before answering.',
    }),
  ),
  expires_in_seconds: Type.Optional(
    Type.Integer({
      minimum: 60,
      maximum: 31_536_000,
      description: 'The key stops to log in after this time.',
    }),
  ),
});
export type AddKeyRequest = Static<typeof AddKeyRequest>;

export const AddKeyResponse = Type.Object({
  success: Type.Boolean(),
  uuid: Type.String({ description: 'The UUID of the instance.' }),
  key: Type.String({
    description: 'The generated private key, shown once; "" when the caller sent a public key.',
  }),
  message: Type.String(),
});
export type AddKeyResponse = Static<typeof AddKeyResponse>;

/** One key line of an instance. */
export const InstanceKey = Type.Object({
  fingerprint: Type.String({ description: 'SHA256:..., as ssh-keygen -l prints it.' }),
  key_type: Type.String(),
  comment: Type.String(),
  public_key: Type.String(),
  added_at: Type.Optional(
    Type.String({ description: 'RFC 3339; left out for a key Berth did not add.' }),
  ),
  source: Type.Union([
    Type.Literal('supplied', { description: 'The caller sent the public key.' }),
    Type.Literal('generated', { description: 'Berth made the pair.' }),
    Type.Literal('create', { description: 'Given or made when the instance was created.' }),
    Type.Literal('file', {
      description: 'Found in authorized_keys; somebody wrote it there by hand.',
    }),
  ]),
});
export type InstanceKey = Static<typeof InstanceKey>;

export const InstanceKeyList = Type.Array(InstanceKey);

export const RemoveKeyParams = Type.Object({
  id: Type.String(),
  '*': Type.String({ description: 'The fingerprint, with or without "SHA256:".' }),
});
