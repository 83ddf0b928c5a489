# Drives that report how much they write whole, as members: the kernel is asked to hand blocks of a
# parity-only log to them one by one.
load nvme
drive() { # drive SERIAL: its path; the kernel numbers them as they come
  local disk
  for disk in /sys/block/nvme*n1; do
    if [ "$(tr -d ' ' <"$disk/device/serial")" = "$1" ]; then echo "/dev/${disk##*/}"; fi
  done
}
queue() { echo "/sys/block/$(basename "$(drive "$1")")/queue"; } # queue SERIAL
for serial in large0 large1 large2 large3 small; do
  until_so 60 test -b "$(drive "$serial")"
  # This emulator's drives say that they have volatile caches: the kernel is told that they have none.
  echo "write through" >"$(queue "$serial")/write_cache"
done
test "$(cat "$(queue large0)/atomic_write_unit_max_bytes")" = 4096
test "$(cat "$(queue small)/atomic_write_unit_max_bytes")" = 512
serve --nbd unix:/mnt/nbd.sock

say "a drive that reports less than is stated is refused"
refused "reports that it writes 512 B whole" create bad --level raid1 --policy log --atomic-write 4K \
  "$(drive large0)" "$(drive small)"

say "single blocks reach the drives as writes that are whole or not at all"
"$ASHLAR" create tank --level raid5 --strip-size 16KiB --policy log --atomic-write 4K \
  "$(drive large0)" "$(drive large1)" "$(drive large2)" "$(drive large3)"
"$ASHLAR" status --json | jq -e '[.arrays[0].members[] | .parity_only_log and .atomic_writes] | all' >/dev/null
tracing=/sys/kernel/tracing
mount -t tracefs tracing $tracing
# The flags of a write to a block device, and which of them says that it is whole (IOCB_ATOMIC).
echo 'p:whole blkdev_write_iter flags=+32(%di):x32' >$tracing/kprobe_events
echo 'flags & 0x40' >$tracing/events/kprobes/whole/filter
echo 1 >$tracing/events/kprobes/whole/enable
seen() { # whole writes, since they are traced
  grep -c ' whole: ' $tracing/trace || true
}
on_volume() { # on_volume FIO-ARGUMENT...
  fio --name=load --ioengine=nbd --uri="nbd+unix:///tank?socket=/mnt/nbd.sock" --eta=never --output=/mnt/fio \
    --size=960K --verify=crc32c "$@" || { cat /mnt/fio; return 1; }
}
on_volume --rw=write --bs=48k
test "$(seen)" = 0
on_volume --rw=randwrite --bs=4k --iodepth=8
records=$("$ASHLAR" status --json | jq '[.. | .parity_only_records? | numbers] | add')
say "$(seen) whole writes for $records records"
test "$records" -gt 0
test "$(seen)" -ge "$records"

say "and nothing of it is wrong"
scrub_finds_nothing
end_daemon
