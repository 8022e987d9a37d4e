# Adds the line unless it is there. A file of up to 4 KiB is read by the shell itself, which drops zero bytes: where
# the count is not the size, and in larger files, grep and cat do it byte for byte.

nl='
'
text=
count=0
found=
row=
if [ "$old" ] && [ "$size" -le 4096 ]; then
  while IFS= read -r row; do
    text=$text$row$nl
    count=$((count + ${#row} + 1))
    case $row in
    "$line") found=${found:-same} ;;
    *"$blob"*) found=${found:-other} ;;
    esac
  done < $f
  # The last line, when nothing ends it.
  if [ "$row" ]; then
    text=$text$row$nl
    count=$((count + ${#row}))
    case $row in *"$blob"*) found=${found:-other} ;; esac
  fi
fi

# An earlier attempt of the same call may have put the line there, and was not heard of.
mine() {
  [ "$since" -gt 0 ] && [ "$time" -ge "$since" ] && tail -n "$recent" $f | grep -aqxF -e "$line"
}

if [ $count -ne "$size" ]; then
  grep -aqF -e "$blob" $f
  case $? in
  0)
    if mine; then keep 20; fi
    exit 22
    ;;
  1) ;;
  *) exit 80 ;;
  esac
  begin
  cat $f >&8 || failed 32
  [ "$(
    tail -c 1 $f
    echo .
  )" = "$nl." ] || echo >&8 || failed 32
  printf '%s\n' "$line" >&8 || failed 32
  land
fi

case $found in
other) exit 22 ;;
same)
  if mine; then keep 20; fi
  keep 21
  ;;
esac
begin
printf '%s%s\n' "$text" "$line" >&8 || failed 32
land
