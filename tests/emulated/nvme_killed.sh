# The daemon is killed under a file system on NVMe/TCP and verified load, KILLS times. The kernel's host
# connects again by itself. Nobody gets an error, and everything is there.
load nvme_tcp xfs
ip link set lo up
members 6 120M
NQN=nqn.2024-01.example:store
printf '[nvme_tcp]\nnqn = "%s"\nlisten = ["127.0.0.1:4420"]\ntrusted_network = true\nstate = "/mnt/state"\n' \
  $NQN >/mnt/nvme.toml
serve --config /mnt/nvme.toml
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
# Without end, and a second between two attempts.
echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$NQN,ctrl_loss_tmo=-1,reconnect_delay=1,keep_alive_tmo=5" \
  >/dev/nvme-fabrics
until_so 60 test -b /dev/nvme0n1
mkfs.xfs -q -f /dev/nvme0n1
mount /dev/nvme0n1 /mnt/at
head -c 8M /dev/urandom >/mnt/at/before
sync /mnt/at/before
sum=$(sha256sum </mnt/at/before)

connected() { # whether the host has found this daemon
  test "$(cat /sys/class/nvme/nvme0/state)" = live &&
    test "$("$ASHLAR" status --json | jq '[.exports[] | select(.protocol | startswith("nvme")) | .clients] | add')" -ge 1
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
  serve --config /mnt/nvme.toml m0 m1 m2 m3 m4 m5
  until_so 240 connected
  wait $sync
  sha256sum /mnt/at/during$((number % 8)) >/mnt/synced
  kill -0 $load
  say "killed and connected again: $number"
done
kill -INT $load
wait $load || test $? = 128
grep -q "err= 0" /mnt/fio || { cat /mnt/fio; false; }
say "no error at the device"
if dmesg | grep -E "I/O error, dev|XFS.*(error|corrupt|shut)"; then false; fi
sync
# Once more: what the last call of sync promised is read from the members.
kill -KILL "$DAEMON"
wait "$DAEMON" 2>/dev/null || true
serve --config /mnt/nvme.toml m0 m1 m2 m3 m4 m5
until_so 240 connected
echo 3 >/proc/sys/vm/drop_caches
test "$(sha256sum </mnt/at/before)" = "$sum"
sha256sum --quiet -c /mnt/synced
umount /mnt/at
xfs_repair -n /dev/nvme0n1 >/mnt/repair 2>&1 || { cat /mnt/repair; false; }
echo 1 >/sys/class/nvme/nvme0/delete_controller
"$ASHLAR" scrub --wait tank >/mnt/scrub 2>&1
tail -c 60 /mnt/scrub
grep -q "0 mismatches" /mnt/scrub
end_daemon
