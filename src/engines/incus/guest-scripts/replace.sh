# Puts what comes on standard input in the place of the file, if that is still the one that was read.

is=none
if [ "$old" ]; then is=$(sha256sum < $f) || exit 80; fi
[ "${is%% *}" = "$before" ] || exit 23
if [ "$before" = "$after" ]; then
  [ "$old" ] || exit 21
  keep 21
fi
begin
cat >&8 || failed 32
is=$(sha256sum < $t)
[ "${is%% *}" = "$after" ] || failed 37
land
