# The daemon is killed under a mounted file system and verified load, KILLS times; its successor takes
# the device over. Nobody gets an error, and everything is there.
load ublk_drv xfs
members 6 120M
serve
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
device=$("$ASHLAR" attach tank)
begin_file_system "$device"

taken_over() { # taken_over TIMES: so often by now
  test "$(grep -c "$device is served again" /mnt/daemon.log)" -ge "$1"
}

succeed() { # succeed TIMES: so often by now
  serve m0 m1 m2 m3 m4 m5
  until_so 240 taken_over "$1"
  test "$("$ASHLAR" attach tank 2>/dev/null)" = "$device"
}

write_synced() { # files by large requests under the load, each noted once it is synced
  local number
  for number in $(seq 1 12); do
    head -c 3M /dev/urandom |
      dd of=/mnt/at/large$number bs=1M iflag=fullblock oflag=direct conv=fsync status=none
    sha256sum /mnt/at/large$number >>/mnt/synced_under_load
  done
}

kill_again_and_again succeed
say "killed between large writes that are synced one by one"
write_synced &
writer=$!
until_so 240 test -s /mnt/synced_under_load
kill_daemon
cp /mnt/synced_under_load /mnt/synced_before_kill
succeed $((KILLS + 1))
wait $writer
test "$(wc -l </mnt/synced_under_load)" = 12
test "$(wc -l </mnt/synced_before_kill)" -lt 12
# Once more: what the last call of sync promised is read from the members.
kill_daemon
succeed $((KILLS + 2))
tell_load_to_end "I/O error"
grep -E "^  *(write|lat)|clat \(" /mnt/fio | head -6
end_file_system "$device"

say "a daemon that is killed while nobody uses the device"
kill_daemon
succeed $((KILLS + 3))
"$ASHLAR" events --json | grep -q attachment.resumed
mount "$device" /mnt/at
test "$(sha256sum </mnt/at/before)" = "$BEFORE"
umount /mnt/at
scrub_finds_nothing
"$ASHLAR" detach tank
end_daemon
