# A namespace that grows under the kernel's host: it is told over the connection that it has, and the new
# room holds what is written.
load nvme_tcp
members 8 96M
NQN=nqn.2024-01.example:store
printf '[nvme_tcp]\nnqn = "%s"\nlisten = ["127.0.0.1:4420"]\ntrusted_network = true\nstate = "/mnt/state"\n' \
  $NQN >/mnt/nvme.toml
serve --config /mnt/nvme.toml
"$ASHLAR" create tank --level raid6 --strip-size 16KiB --declustered --stripe-width 5 --distributed-spares 1 \
  m0 m1 m2 m3 m4 m5
echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$NQN" >/dev/nvme-fabrics
device=/dev/nvme0n1
until_so 240 test -b $device
# The multipath head and the path below it are devices of their own.
smallest() { cat /sys/block/nvme*n*/size | sort -n | head -1; }
before=$(smallest)
is_larger() { test "$(smallest)" -gt "$before"; }
if is_larger; then false; fi
# A host that connects again gets another controller.
controller=$(cat /sys/class/nvme/nvme0/cntlid)
dd if=/dev/urandom of=/mnt/noise bs=1M count=1 status=none
dd if=/mnt/noise of=$device bs=1M oflag=direct status=none

say "the pool grows"
"$ASHLAR" grow tank --wait m6 m7
until_so 240 is_larger
after=$(smallest)
test "$((after * 512))" = "$("$ASHLAR" status --json | jq '.arrays[0].volume_bytes')"
last=$((after / 2048 - 1))
test "$last" -gt "$((before / 2048))"
dd if=/mnt/noise of=$device bs=1M seek="$last" oflag=direct status=none
for at in 0 "$last"; do
  dd if=$device of=/mnt/back bs=1M skip="$at" count=1 iflag=direct status=none
  cmp /mnt/noise /mnt/back
done
test "$(cat /sys/class/nvme/nvme0/cntlid)" = "$controller"
if dmesg | grep -iE "I/O error|critical|reconnect"; then false; fi
say "$before sectors became $after"

say "the end"
echo 1 >/sys/class/nvme/nvme0/delete_controller
end_daemon
