# The daemon is killed under a file system on a loop device, KILLS times; its successor serves the file
# below. Writers get no error, and everything is there.
load loop fuse ext4
members 3 120M
serve --fuse /mnt/volumes
"$ASHLAR" create safe --level raid5 m0 m1 m2
device=$("$ASHLAR" attach safe --via loop)
mkfs.ext4 -q "$device"
mount "$device" /mnt/at
head -c 8M /dev/urandom >/mnt/at/before
sync /mnt/at/before
(cd /mnt/at && sha256sum before) >/mnt/sums

write_on() { # write_on NAME: durable writes, long ones, until /mnt/enough
  until [ -e /mnt/enough ]; do
    dd if=/dev/urandom of="/mnt/at/$1" bs=64k count=32 conv=fsync status=none || touch /mnt/lost
  done
}
write_on one &
one=$!
write_on two &
two=$!
for number in $(seq 1 "$KILLS"); do
  # Not always at the same place.
  sleep "$((number % 2)).$((number * 7 % 10))"
  kill -KILL "$DAEMON"
  wait "$DAEMON" 2>/dev/null || true
  serve --fuse /mnt/volumes m0 m1 m2
  test "$("$ASHLAR" attach safe --via loop 2>/dev/null)" = "$device"
  head -c 256K /dev/urandom >/mnt/at/synced
  sync /mnt/at/synced
  test ! -e /mnt/lost
  say "killed and back: $number"
done
touch /mnt/enough
wait $one $two
test ! -e /mnt/lost
(cd /mnt/at && sha256sum synced) >>/mnt/sums
if dmesg | grep -E "I/O error|EXT4-fs.*error"; then false; fi
echo 3 >/proc/sys/vm/drop_caches
(cd /mnt/at && sha256sum --quiet -c /mnt/sums)
umount /mnt/at
e2fsck -fn "$device"
"$ASHLAR" scrub --wait safe >/mnt/scrub 2>&1
grep -q "0 mismatches" /mnt/scrub
"$ASHLAR" detach safe
end_daemon
