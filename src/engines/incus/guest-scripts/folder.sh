# Goes to ~/.ssh, which has to be a folder of this user's and no symbolic link.
# make: not empty when a missing one is to be made.

umask 077
f=authorized_keys

# Ends with a status of two digits: where (6 home, 7 ~/.ssh, 8 the file), and what stands there.
what() {
  [ -h "$1" ] && exit "$2"1
  [ -p "$1" ] && exit "$2"2
  [ -S "$1" ] && exit "$2"3
  [ -b "$1" ] && exit "$2"4
  [ -c "$1" ] && exit "$2"4
  [ -d "$1" ] && exit "$2"5
  [ -f "$1" ] && exit "$2"6
  [ -e "$1" ] || exit "$2"7
  exit "$2"0
}

enter() {
  if [ -h "$1" ] || ! [ -d "$1" ]; then what "$1" "$2"; fi
  [ -O "$1" ] || exit "$2"8
  # Whoever closed a folder to itself has locked itself out: a key in there would never be read.
  if ! [ -r "$1" ] || ! [ -w "$1" ] || ! [ -x "$1" ]; then chmod u+rwx "$1" 2>/dev/null; fi
  cd -P "$1" 2>/dev/null || exit "$2"0
  [ "$PWD" = "$3" ] && [ -O . ] || exit "$2"7
}

# The file may be read, and reading it does not block.
sound() {
  if [ -h $f ] || ! [ -f $f ]; then what $f 8; fi
  [ -O $f ] || exit 88
  [ -r $f ] || chmod u+r $f 2>/dev/null || exit 80
}

enter "$HOME" 6 "$HOME"
# Where sshd looks, and as whom: it asks for the user's home and id. A process only where the file does not tell.
[ ~ubuntu -ef . ] || exit 39
while IFS=: read -r name _ id _; do [ "$name" = ubuntu ] && break; done 2>/dev/null </etc/passwd
[ "$id" = 1000 ] || [ "$(id -u ubuntu 2>/dev/null)" = 1000 ] || exit 39
made=
if ! [ -h .ssh ] && ! [ -e .ssh ]; then
  [ "$make" ] || exit 24
  said=$(mkdir .ssh 2>&1)
  case $said in *'No space left'* | *'uota exceeded'*) exit 32 ;; esac
  made=$HOME
fi
enter .ssh 7 "$HOME/.ssh"
