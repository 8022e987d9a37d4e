# Gives the file, as far as anybody has to read it.

if ! [ -h $f ] && ! [ -e $f ]; then exit 24; fi
sound
size=$(stat -c %s $f) || exit 80
[ "$size" -lt "$most" ] || exit 89
head -c "$most" $f || exit 80
exit 25
