# A volume as a ublk device: what the kernel is told of it, XFS and ext4, discard, lost members, and who
# may detach it.
load ublk_drv xfs ext4
members 6 320M
serve --metrics 127.0.0.1:9000
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
device=$("$ASHLAR" attach tank 2>/mnt/way)
say "attached as $device"
test -b "$device"
grep -q "^ashlar: by ublk: " /mnt/way
test "$("$ASHLAR" attach tank)" = "$device"
test "$("$ASHLAR" attach --via ublk --json tank | jq -r '[.changed, .via, .device] | join(" ")')" = "false ublk $device"
"$ASHLAR" status --json | jq -e --arg device "$device" '.exports[] | select(.protocol == "ublk" and .address == $device)'
"$ASHLAR" volumes | grep -q "$device"
refused "attached by ublk already" attach --via loop tank
queue=/sys/block/$(basename "$device")/queue

say "limits"
for pair in logical_block_size:4096 physical_block_size:4096 minimum_io_size:16384 \
  optimal_io_size:65536 discard_granularity:65536 rotational:0 fua:1 max_sectors_kb:1024; do
  test "$(cat "$queue/${pair%%:*}")" = "${pair##*:}" || { say "$pair: $(cat "$queue/${pair%%:*}")"; false; }
done
test "$(cat "$queue/write_cache")" = "write back"
test "$(cat "$queue/discard_max_bytes")" -gt 0
test "$(cat "$queue/write_zeroes_max_bytes")" -gt 0
test "$(ls "/sys/block/$(basename "$device")/mq" | wc -l)" = 2

say "mkfs.xfs finds stripe unit and width"
mkfs.xfs -f "$device" >/mnt/mkfs
grep -q "sunit=4 *swidth=16 blks" /mnt/mkfs
mount "$device" /mnt/at
cp -r /usr/share/doc/bash /mnt/at/
(cd /mnt/at && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/mnt/sums
sync

say "a mounted device is not detached, and its array not stopped"
refused "is mounted at /mnt/at" detach tank
refused "attached as $device" stop tank

say "fstrim, and what is left is right"
fstrim /mnt/at
umount /mnt/at
mount "$device" /mnt/at
(cd /mnt/at && sha256sum --quiet -c /mnt/sums)
umount /mnt/at

say "a device that is open is not detached"
exec 7<"$device"
refused "is open somewhere" detach tank
exec 7<&-

say "zeroed blocks are zeros, a discarded device has none of its old content in whole stripes"
blkdiscard -f --zeroout --length 1M "$device"
cmp --bytes=1048576 "$device" /dev/zero
blkdiscard -f "$device"
cmp --bytes=8388608 "$device" /dev/zero

say "ext4, and durable writes"
mkfs.ext4 -q -F "$device"
mount "$device" /mnt/at
before=$("$ASHLAR" status --json | jq '.exports[] | select(.protocol == "ublk").requests')
dd if=/dev/urandom of=/mnt/at/file bs=64k count=16 oflag=direct,dsync status=none
cp /mnt/at/file /mnt/copy
umount /mnt/at
e2fsck -fn "$device"
mount "$device" /mnt/at
cmp /mnt/at/file /mnt/copy
umount /mnt/at
test "$("$ASHLAR" status --json | jq '.exports[] | select(.protocol == "ublk").requests')" -gt "$before"
exec 8<>/dev/tcp/127.0.0.1/9000
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8
timeout 20 cat <&8 >/mnt/metrics || true
grep "^ashlar_export_requests_total{protocol=\"ublk\",address=\"$device\",array=\"tank\"} [1-9]" /mnt/metrics
exec 8<&-

say "two members are lost under verified load"
fio --name=load --filename="$device" --direct=1 --rw=randwrite --bs=4k-64k --iodepth=16 --size=16M \
  --ioengine=io_uring --verify=crc32c --fsync=32 --output=/mnt/fio &
load=$!
"$ASHLAR" fail tank m1
"$ASHLAR" fail tank m4
wait $load || { cat /mnt/fio; false; }

say "detached, twice; and read-only"
"$ASHLAR" detach tank
test ! -e "$device"
"$ASHLAR" detach tank
"$ASHLAR" stop tank
"$ASHLAR" assemble --read-only m0 m2 m3 m5
device=$("$ASHLAR" attach tank)
test "$(blockdev --getro "$device")" = 1
head -c 65536 "$device" >/dev/null
if dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct status=none 2>/mnt/refusal; then false; fi
"$ASHLAR" detach tank
end_daemon
