import type { Command } from 'commander';
import { integerBetween } from '../options.ts';
import { runService } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface ServeFlags {
  readonly data?: string;
  readonly host?: string;
  readonly port?: number;
  readonly engine?: string;
  readonly catalog?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsSelfSigned?: boolean;
  readonly trustedProxies?: string;
  readonly rateLimitToken?: string;
  readonly rateLimitAddress?: string;
  readonly rateLimitFailedAuth?: string;
  readonly metricsAddress?: string;
}

/** The setting that a flag stands for. */
const settings: Readonly<Record<keyof ServeFlags, string>> = {
  data: 'BERTH_DATA',
  host: 'BERTH_HOST',
  port: 'BERTH_PORT',
  engine: 'BERTH_ENGINE',
  catalog: 'BERTH_CATALOG',
  tlsCert: 'BERTH_TLS_CERT',
  tlsKey: 'BERTH_TLS_KEY',
  tlsSelfSigned: 'BERTH_TLS_SELF_SIGNED',
  trustedProxies: 'BERTH_TRUSTED_PROXIES',
  rateLimitToken: 'BERTH_RATE_LIMIT_TOKEN',
  rateLimitAddress: 'BERTH_RATE_LIMIT_ADDRESS',
  rateLimitFailedAuth: 'BERTH_RATE_LIMIT_FAILED_AUTH',
  metricsAddress: 'BERTH_METRICS_ADDRESS',
};

const examples = `
Examples:
  $ berth serve
  $ berth serve --data /var/lib/berth --port 9000
  $ berth serve --host 0.0.0.0 --tls-cert /etc/berth/cert.pem --tls-key /etc/berth/key.pem
  $ berth serve --tls-self-signed
  $ berth serve --engine incus

Every flag goes before the setting of the same name, such as BERTH_DATA or BERTH_TLS_CERT; docs/operations.md
lists them all. A token for the metrics is taken from BERTH_METRICS_TOKEN alone: flags can be read by everybody
on this machine. The certificate is read anew when its files change and on SIGHUP. Ctrl-C stops the service.`;

export function addServeCommand(program: Command, terminal: Terminal): void {
  const command = program
    .command('serve')
    .description('run the service in the foreground')
    .option('--data <dir>', 'folder of the database and the instances (default: .berth)')
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option(
      '--port <port>',
      'port to listen on; 0 takes any (default: 8080)',
      integerBetween(0, 65_535),
    )
    .option('--engine <name>', 'where instances live: sandbox (default) or incus')
    .option(
      '--catalog <file>',
      'what instances can be, and its price (default: no GPUs, no price)',
    );
  withEdgeOptions(command)
    .addHelpText('after', examples)
    .action(async (flags: ServeFlags) => {
      await runService({ ...terminal.env, ...overrides(flags) });
    });
}

function withEdgeOptions(command: Command): Command {
  return command
    .option('--tls-cert <file>', 'answer HTTPS with this certificate (PEM, with its chain)')
    .option('--tls-key <file>', 'the private key of the certificate (PEM, not encrypted)')
    .option('--tls-self-signed', 'answer HTTPS with a certificate made here, for trials')
    .option(
      '--trusted-proxies <networks>',
      'proxies whose X-Forwarded-For is believed (default: none)',
    )
    .option(
      '--rate-limit-token <n/seconds>',
      'requests per token, or off (default: 6000/60; not for this machine)',
    )
    .option(
      '--rate-limit-address <n/seconds>',
      'requests per address, or off (default: 12000/60; not for this machine)',
    )
    .option(
      '--rate-limit-failed-auth <n/seconds>',
      'wrong tokens per address, or off (default: 60/60; not for this machine)',
    )
    .option(
      '--metrics-address <host:port>',
      'serve /metrics for Prometheus there (default: nowhere)',
    );
}

/** The flags as the settings that they stand for; without those not given. */
export function overrides(flags: ServeFlags): Record<string, string> {
  const given = Object.entries(settings).flatMap(([flag, setting]) => {
    const value = flags[flag as keyof ServeFlags];
    return value === undefined ? [] : [[setting, String(value)] as const];
  });
  return Object.fromEntries(given);
}
