/** What a token may do, and how much of that a member's role allows. */
import { invalidRequest } from './errors.ts';
import { shorten } from './shorten.ts';

export const allScopes = [
  'instances:read',
  'instances:write',
  'keys:write',
  'snapshots:read',
  'snapshots:write',
  'admin',
] as const;

/** `admin` covers every other one, and tokens, members and the audit log besides. */
export type Scope = (typeof allScopes)[number];

/** What a route asks for: any one of these, or `any` for every valid token. */
export type RequiredScope = Scope | readonly Scope[] | 'any';

export const allRoles = ['owner', 'member', 'viewer'] as const;
export type Role = (typeof allRoles)[number];

const scopesOfRole: Readonly<Record<Role, readonly Scope[]>> = {
  owner: ['admin'],
  member: ['instances:read', 'instances:write', 'keys:write', 'snapshots:read', 'snapshots:write'],
  viewer: ['instances:read', 'snapshots:read'],
};

export const isScope = (text: string): text is Scope => allScopes.some((scope) => scope === text);

/** Scopes as a caller names them; throws the 400 that says which one is wrong, and which there are. */
export function parseScopes(texts: readonly string[]): Scope[] {
  const allowed = `It must be a list of at least one of: ${allScopes.join(', ')}.`;
  if (texts.length === 0) throw invalidRequest(`The field "scopes" is empty. ${allowed}`);
  const unknown = texts.find((text) => !isScope(text));
  if (unknown !== undefined)
    throw invalidRequest(`The field "scopes" has "${shorten(unknown)}". ${allowed}`);
  const repeated = texts.find((text, index) => texts.indexOf(text) !== index);
  if (repeated !== undefined)
    throw invalidRequest(`The field "scopes" has "${repeated}" more than once. ${allowed}`);
  return texts.filter(isScope);
}

/** Does a token with these scopes have that one? */
export function covers(scopes: readonly string[], scope: Scope): boolean {
  return scopes.includes('admin') || scopes.includes(scope);
}

export function allows(scopes: readonly string[], required: RequiredScope): boolean {
  if (required === 'any') return true;
  const choices = typeof required === 'string' ? [required] : required;
  return choices.some((scope) => covers(scopes, scope));
}

/** A token's scopes as far as its member's role still goes: a demoted member's tokens shrink with them. */
export function limitToRole(scopes: readonly string[], role: Role): Scope[] {
  const most = scopesOfRole[role];
  if (most.includes('admin')) return scopes.filter(isScope);
  return most.filter((scope) => covers(scopes, scope));
}

export const mostOfRole = (role: Role): readonly Scope[] => scopesOfRole[role];
