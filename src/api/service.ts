import { type Static, Type } from 'typebox';
import { responses } from './common.ts';

const readiness = {
  status: Type.Literal('ready', { description: 'Always ready; anything else is a 503.' }),
  engine: Type.String({ description: 'What runs the instances, such as sandbox.' }),
  capabilities: Type.Object(
    {
      snapshotPauses: Type.Boolean({
        description: 'An instance stops while its disk is copied (status SNAPPING).',
      }),
      enforcesCpu: Type.Boolean({ description: 'Instances are held to their CPU cores.' }),
      enforcesMemory: Type.Boolean({ description: 'Instances are held to their memory.' }),
      enforcesDiskSize: Type.Boolean({ description: 'Instances are held to their disk size.' }),
      ownNetwork: Type.Boolean({ description: 'Each instance has a network of its own.' }),
      publishesPorts: Type.Boolean({
        description: 'Ports of instances can be published on the host.',
      }),
      shells: Type.Boolean({ description: 'Instances can be logged in to on this host.' }),
    },
    { description: 'What the engine can do on this host.' },
  ),
  notices: Type.Array(Type.String(), {
    description: 'What is missing or weaker than it could be, and how to mend it.',
  }),
};
export const Readiness = Type.Object(readiness, {
  examples: [
    {
      status: 'ready',
      engine: 'sandbox',
      capabilities: {
        snapshotPauses: true,
        enforcesCpu: true,
        enforcesMemory: false,
        enforcesDiskSize: false,
        ownNetwork: true,
        publishesPorts: true,
        shells: true,
      },
      notices: [],
    },
  ],
});
export type Readiness = Static<typeof Readiness>;

const Alive = Type.Object(
  { status: Type.Literal('ok', { description: 'Always ok.' }) },
  { examples: [{ status: 'ok' }] },
);

const open = { tags: ['Service'], security: [] };

export const healthzOperation = {
  ...open,
  operationId: 'healthz',
  summary: 'Is the process alive?',
  description: 'Answers as long as the process does. It asks neither the database nor the engine.',
  response: responses(200, Alive, { description: 'The process is alive.', public: true }),
};

export const readyzOperation = {
  ...open,
  operationId: 'readyz',
  summary: 'Do store and engine answer?',
  description: 'Asks the database and the engine, and says what the engine can do on this host.',
  response: responses(200, Readiness, {
    description: 'The service can do its work.',
    public: true,
    errors: {
      503: 'unavailable: the database or the engine does not answer or is not usable, or the service is shutting down. The message says which.',
    },
  }),
};
