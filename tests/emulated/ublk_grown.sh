# A volume that grows under its device: the device has its size, or an event says that it has not. RESIZES says
# whether this kernel's driver can: yes from Linux 6.16 on.
load ublk_drv
members 8 160M
serve
"$ASHLAR" create tank --level 6 --declustered --stripe-width 5 --distributed-spares 1 m0 m1 m2 m3 m4 m5
device=$("$ASHLAR" attach --via ublk tank 2>/dev/null)
size=/sys/block/$(basename "$device")/size
before=$(cat "$size")
exec 7<"$device"
is_told() { "$ASHLAR" events --json | grep -q attachment.not_grown; }
is_larger() { test "$(cat "$size")" -gt "$before"; }
if is_told || is_larger; then false; fi

say "the pool grows"
"$ASHLAR" grow tank --wait m6 m7
volume=$(($("$ASHLAR" status --json | jq '.arrays[0].volume_bytes') / 512))
test "$volume" -gt "$before"
if [ "$RESIZES" = yes ]; then
  say "under its user"
  until_so 240 is_larger
else
  say "not in this kernel, which is told"
  until_so 240 is_told
  test "$(cat "$size")" = "$before"
  exec 7<&-
  "$ASHLAR" detach tank
  device=$("$ASHLAR" attach --via ublk tank 2>/dev/null)
  size=/sys/block/$(basename "$device")/size
fi
test "$(cat "$size")" = "$volume"

say "the new room holds what is written"
last=$((volume / 2048 - 1))
dd if=/dev/urandom of=/mnt/noise bs=1M count=1 status=none
dd if=/mnt/noise of="$device" bs=1M seek="$last" oflag=direct status=none
dd if="$device" of=/mnt/back bs=1M skip="$last" count=1 iflag=direct status=none
cmp /mnt/noise /mnt/back

say "and outlives a killed daemon"
exec 7<&-
kill_daemon
serve m0 m1 m2 m3 m4 m5 m6 m7
dd if="$device" of=/mnt/back bs=1M skip="$last" count=1 iflag=direct status=none
cmp /mnt/noise /mnt/back
test "$(cat "$size")" = "$volume"
"$ASHLAR" detach tank
end_daemon
