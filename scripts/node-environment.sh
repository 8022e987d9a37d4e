# For whatever starts Berth's Node.js (bin/berth, run.sh): read by a POSIX shell, before it becomes that.

# Compiled code is kept between runs: a start takes half the time. Never in the folder of another user, as under sudo.
if [ -O "${HOME:-}" ]; then
  export NODE_COMPILE_CACHE="${NODE_COMPILE_CACHE:-$HOME/.cache/berth/node}"
fi
# A core dump, or a debugger that a signal lets in, would show tokens and private keys. The filter holds where the limit
# does not: for a program that the kernel pipes cores to, and when the limit is raised later.
ulimit -S -c 0
{ echo 0 >/proc/self/coredump_filter; } 2>/dev/null || true
