# The daemon is killed under a mounted file system and verified load, KILLS times; its successor takes
# the device over. Nobody gets an error, and everything is there.
load ublk_drv xfs
members 6 120M
serve
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
device=$("$ASHLAR" attach tank)
mkfs.xfs -q -f "$device"
mount "$device" /mnt/at
head -c 8M /dev/urandom >/mnt/at/before
sync /mnt/at/before
sum=$(sha256sum </mnt/at/before)

taken_over() { # taken_over TIMES: so often by now
  test "$(grep -c "$device is served again" /mnt/daemon.log)" -ge "$1"
}

# Until it is told to end.
fio --name=load --directory=/mnt/at --direct=1 --rw=randwrite --bs=4k --iodepth=32 --size=24M \
  --ioengine=io_uring --verify=crc32c --verify_backlog=256 --time_based --runtime=36000 \
  --eta=never --output=/mnt/fio &
load=$!
for number in $(seq 1 "$KILLS"); do
  # Not always at the same place.
  sleep "$((number % 3)).$((number * 7 % 10))"
  kill -KILL "$DAEMON"
  wait "$DAEMON" 2>/dev/null || true
  # What is synced while nobody serves waits for the successor.
  { head -c 256K /dev/urandom >/mnt/at/during$((number % 8)) && sync /mnt/at/during$((number % 8)); } &
  sync=$!
  # Before it is synced nobody knows its sum.
  serve m0 m1 m2 m3 m4 m5
  until_so 240 taken_over "$number"
  test "$("$ASHLAR" attach tank 2>/dev/null)" = "$device"
  wait $sync
  sha256sum /mnt/at/during$((number % 8)) >/mnt/synced
  kill -0 $load
  say "killed and taken over: $number"
done
# Once more: what the last call of sync promised is read from the members.
kill -KILL "$DAEMON"
wait "$DAEMON" 2>/dev/null || true
serve m0 m1 m2 m3 m4 m5
until_so 240 taken_over $((KILLS + 1))
kill -INT $load
wait $load || test $? = 128
grep -E "err=|^  *(write|lat)|clat \(" /mnt/fio | head -6
grep -q "err= 0" /mnt/fio
say "no error at the device"
if dmesg | grep -E "I/O error|XFS.*(error|corrupt|shut)"; then false; fi
echo 3 >/proc/sys/vm/drop_caches
test "$(sha256sum </mnt/at/before)" = "$sum"
sha256sum --quiet -c /mnt/synced
umount /mnt/at
xfs_repair -n "$device" >/mnt/repair 2>&1 || { cat /mnt/repair; false; }

say "a daemon that is killed while nobody uses the device"
kill -KILL "$DAEMON"
wait "$DAEMON" 2>/dev/null || true
serve m0 m1 m2 m3 m4 m5
until_so 240 taken_over $((KILLS + 2))
"$ASHLAR" events --json | grep -q attachment.resumed
mount "$device" /mnt/at
test "$(sha256sum </mnt/at/before)" = "$sum"
umount /mnt/at
"$ASHLAR" scrub --wait tank >/mnt/scrub 2>&1
tail -c 60 /mnt/scrub
grep -q "0 mismatches" /mnt/scrub
"$ASHLAR" detach tank
end_daemon
