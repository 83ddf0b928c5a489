# What others do to the device, ends of the daemon with users, two daemons, a device that does not fit, and
# a kernel without the driver.
load fuse loop
command() { # command WORD: to the driver, past the daemon; its answer
  python3 "$SCRIPTS/ublk_command.py" "$1" "${device#/dev/ublkb}"
}
written() { # whether the kernel has written to the device
  test "$(awk '{ print $5 }' "/sys/block/$(basename "$device")/stat")" -gt 0
}
gone() { # gone DEVICE: neither its node nor its entry
  test ! -e "$1" && test ! -e "/sys/block/$(basename "$1")"
}
ublks() { # how many the daemon says it has
  "$ASHLAR" status --json | jq '[.exports[] | select(.protocol == "ublk")] | length'
}
none_left() {
  test "$(ublks)" = 0
}
members 4 64M
serve --fuse /mnt/volumes
"$ASHLAR" create tank --level raid5 --strip-size 16KiB m0 m1 m2

say "without the driver: a loop device, and a line each for why, the faster file and fstab"
refused "no ublk driver, or it is not loaded (modprobe ublk_drv)" attach --via ublk tank
device=$("$ASHLAR" attach tank 2>/mnt/way)
cat /mnt/way
test "$(wc -l </mnt/way)" = 3
grep -q "^ashlar: by a loop device: .*modprobe ublk_drv" /mnt/way
grep -q "^ashlar: the file /mnt/volumes/tank " /mnt/way
grep -q "^ashlar: for /etc/fstab: /dev/ashlar/tank$" /mnt/way
test "${device#/dev/loop}" != "$device"
test "$("$ASHLAR" attach --json tank 2>/dev/null | jq -r .via)" = loop
load ublk_drv
refused "attached by fuse already" attach --via ublk tank
test "$("$ASHLAR" attach tank 2>/dev/null)" = "$device"
"$ASHLAR" detach tank

say "stopped from outside, unused and under load: the daemon lets go, says so, and makes another"
for run in unused load; do
  device=$("$ASHLAR" attach tank 2>/dev/null)
  if [ $run = load ]; then
    dd if=/dev/zero of="$device" bs=64k count=100000 oflag=direct 2>/mnt/dd &
    load=$!
    until_so 240 written
  fi
  test "$(command stop)" = 0
  until_so 240 none_left
  until_so 240 gone "$device"
  if [ $run = load ]; then
    if wait $load; then false; fi
    cat /mnt/dd
  fi
  "$ASHLAR" events --json | grep -q attachment.ended
  "$ASHLAR" detach tank | grep -q "is not attached"
done
"$ASHLAR" status --json | jq -e '.arrays[0].state == "clean"'

say "deleted from outside"
device=$("$ASHLAR" attach tank 2>/dev/null)
test "$(command delete)" = 0
until_so 240 none_left
until_so 240 gone "$device"

say "commands in a wrong state are the driver's to refuse, and change nothing"
device=$("$ASHLAR" attach tank 2>/dev/null)
for wrong in recover end-recovery; do
  test "$(command $wrong)" -lt 0
done
if (exec 7<"/dev/ublkc${device#/dev/ublkb}") 2>/dev/null; then false; fi
head -c 65536 "$device" | cmp - <(head -c 65536 /dev/zero)

say "stop --force ends the device under a user, and nothing hangs"
exec 7<"$device"
refused "attached as $device" stop tank
timeout 300 "$ASHLAR" stop --force tank
until_so 240 gone "$device"
# Beyond what the kernel has in its cache.
if dd bs=4k skip=5000 count=1 of=/dev/null <&7 2>/mnt/dd; then false; fi
exec 7<&-
"$ASHLAR" assemble m0 m1 m2

say "the end of the daemon waits for users, and a second signal drops them"
device=$("$ASHLAR" attach tank 2>/dev/null)
exec 7<"$device"
kill -TERM "$DAEMON"
until_so 240 grep -q "waiting for users.*$device is open somewhere" /mnt/daemon.log
head -c 4096 <&7 >/dev/null
kill -TERM "$DAEMON"
wait "$DAEMON"
exec 7<&-
until_so 240 gone "$device"

say "and ends by itself when the last user is gone"
serve m0 m1 m2
device=$("$ASHLAR" attach tank 2>/dev/null)
exec 7<"$device"
kill -TERM "$DAEMON"
sleep 1
kill -0 "$DAEMON"
exec 7<&-
wait "$DAEMON"
until_so 240 gone "$device"

say "two daemons: each has its own, and takes over nothing of the other"
serve m0 m1 m2
first=$DAEMON
device=$("$ASHLAR" attach tank 2>/dev/null)
truncate -s 64M /mnt/n0 /mnt/n1
export ASHLAR_SOCKET=/run/ashlar/second.sock
serve
"$ASHLAR" create bank --level raid1 n0 n1
other=$("$ASHLAR" attach bank 2>/dev/null)
test "$other" != "$device"
kill -KILL "$first"
wait "$first" 2>/dev/null || true
if "$ASHLAR" attach tank 2>/mnt/refusal; then false; fi
dd if=/dev/zero of="$other" bs=4k count=64 oflag=direct status=none
"$ASHLAR" assemble m0 m1 m2 | tee /mnt/assembled
grep -q "$device is served again" /mnt/assembled
dd if=/dev/zero of="$device" bs=4k count=64 oflag=direct status=none
test "$(ublks)" = 2

say "a device for writing is not served by an array that may not be written: its users wait"
truncate -s 64M /mnt/p0 /mnt/p1 /mnt/p2
"$ASHLAR" create calm --level raid5 --strip-size 16KiB p0 p1 p2
calm=$("$ASHLAR" attach calm 2>/dev/null)
kill_daemon
serve
dd if=/dev/zero of="$calm" bs=4k count=1 oflag=direct status=none &
waiting=$!
"$ASHLAR" assemble --read-only p0 p1 p2 | tee /mnt/assembled
grep -q "$calm is not served, and its users wait: .*read-only" /mnt/assembled
kill -0 $waiting
"$ASHLAR" stop calm
"$ASHLAR" assemble p0 p1 p2 | grep "$calm is served again"
wait $waiting
"$ASHLAR" assemble m0 m1 m2 | grep "$device is served again"
"$ASHLAR" assemble n0 n1 | grep "$other is served again"
test "$(ublks)" = 3
"$ASHLAR" detach tank
end_daemon
until_so 240 gone "$other"
until_so 240 gone "$calm"
