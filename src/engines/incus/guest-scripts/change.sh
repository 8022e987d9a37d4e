# Takes the lock, looks at what is there, and has the steps to put a new file in its place.
# until, patience, nonce: as the main part got them. Where until is 0, nothing is changed: it is only asked.

t=.authorized_keys.new
said=
ours=

failed() {
  [ "$ours" ] && rm -f $t
  case $said in *'No space left'* | *'uota exceeded'*) exit 32 ;; esac
  exit "$1"
}

# sshd, which walks the way from its start, comes to the file $1.
verify() {
  if [ -h "$HOME/.ssh" ] || ! [ "$HOME/.ssh" -ef . ] || [ -h $f ] || ! [ $f -ef "$1" ]; then exit 35; fi
}

# What changes with every change of the file by whoever it is; nothing where there is none.
state() {
  stat -c '%s %.Z %i' $f 2>/dev/null
}

# The file stays. Who wrote it may not have flushed it, or left it open to others.
keep() {
  [ "$until" -gt 0 ] || exit "$1"
  [ $((0$mode)) -eq $want ] || chmod "$(printf %o $want)" $f || exit 80
  said=$(sync $f . $made 2>&1) || failed 33
  verify $f
  exit "$1"
}

# Opens the new file as 8. Its name is always the same: what a crash left is cleared away by the next change.
begin() {
  [ "$until" -gt 0 ] || exit 31
  for left in $t $t.*; do
    if [ -h "$left" ] || [ -f "$left" ] || [ -p "$left" ]; then rm -f "$left"; fi
  done
  if [ -h $t ] || [ -e $t ]; then t=$t.$nonce; fi
  set -C
  if ! true > $t; then
    [ -w . ] && exit 32
    exit 70
  fi
  ours=1
  exec 8>>$t
}

# 384 is 0600, which the umask has given it.
land() {
  [ $want -eq 384 ] || chmod "$(printf %o $want)" $t
  said=$(sync $t 2>&1) || failed 33
  [ "$(date +%s)" -le "$until" ] || failed 31
  # Whoever edits the file by hand takes no lock, and a flush is long.
  [ "$(state)" = "$seen" ] || failed 23
  said=$(mv -fT $t $f 2>&1) || failed 36
  ours=
  said=$(sync . $made 2>&1) || exit 34
  verify /proc/self/fd/8
  exit 20
}

exec 9<.
flock -w "$patience" 9 || {
  [ $? -eq 1 ] && exit 30
  exit 38
}

# Everything in one look: modes of home, folder and file, the file's size, times and number.
if [ -h $f ] || [ -e $f ]; then
  sound
  old=$f
  set -- $(stat -c '%a %s %Y %.Z %i' .. . $f)
  [ $# -eq 15 ] || what $f 8
  seen="${12} ${14} ${15}"
else
  old=
  set -- $(stat -c '%a %s %Y %.Z %i' .. .) 600 0 0 0 0
  [ $# -eq 15 ] || exit 38
  seen=
fi
mode=${11}
size=${12}
time=${13}
# sshd turns every key away when others may write to these.
[ $((0$1 & 022)) -eq 0 ] || chmod go-w .. || exit 60
[ $((0$6 & 022)) -eq 0 ] || chmod go-w . || exit 70
[ "$size" -le 1048576 ] || exit 89
want=$(((0$mode & 0777 & ~022) | 0400))
