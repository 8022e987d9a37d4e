#!/bin/sh
# Installs the npm packages when package-lock.json changed since the last time, then runs a script with the
# Node.js that the lock file pins. Any npm from 7 on will do; the Node.js that came with it does not matter.
set -eu
cd "$(dirname "$0")/.."
script=$1
shift

stamp=node_modules/.installed-from
wanted=$(cksum <package-lock.json)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
  echo "Installing npm packages (once; a minute at the most) ..." >&2
  npm ci --loglevel=error >&2
  printf '%s\n' "$wanted" >"$stamp"
fi

node=node_modules/.bin/node
if ! "$node" --version >/dev/null 2>&1; then
  echo "The pinned Node.js does not run on this machine ($(uname -sm)). Berth needs Linux with glibc, x64 or arm64." >&2
  exit 1
fi
exec "$node" --disable-warning=ExperimentalWarning "$script" "$@"
