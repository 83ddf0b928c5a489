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

kill_again_and_again succeed
# Once more: what the last call of sync promised is read from the members.
kill_daemon
succeed $((KILLS + 1))
tell_load_to_end "I/O error"
grep -E "^  *(write|lat)|clat \(" /mnt/fio | head -6
end_file_system "$device"

say "a daemon that is killed while nobody uses the device"
kill_daemon
succeed $((KILLS + 2))
"$ASHLAR" events --json | grep -q attachment.resumed
mount "$device" /mnt/at
test "$(sha256sum </mnt/at/before)" = "$BEFORE"
umount /mnt/at
scrub_finds_nothing
"$ASHLAR" detach tank
end_daemon
