# A volume of the host as a disk: what the kernel is told of it, XFS and ext4, discard, and two members
# that are lost.
load virtio_blk xfs ext4
until_so 60 test -b /dev/vda
device=/dev/vda
queue=/sys/block/vda/queue

say "limits"
for pair in logical_block_size:4096 physical_block_size:4096 minimum_io_size:16384 \
  optimal_io_size:65536 discard_granularity:65536; do
  test "$(cat "$queue/${pair%%:*}")" = "${pair##*:}" || { say "$pair: $(cat "$queue/${pair%%:*}")"; false; }
done
test "$(cat "$queue/write_cache")" = "write back"
test "$(cat "$queue/discard_max_bytes")" -gt 0
test "$(cat "$queue/write_zeroes_max_bytes")" -gt 0
test "$(ls /sys/block/vda/mq | wc -l)" = 2
test "$(tr -d '\0\n' </sys/block/vda/serial | wc -c)" = 20

say "mkfs.xfs finds stripe unit and width"
mkfs.xfs -f "$device" >/mnt/mkfs
grep -q "sunit=4 *swidth=16 blks" /mnt/mkfs
mount "$device" /mnt/at
cp -r /usr/share/doc/bash /mnt/at/
(cd /mnt/at && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/mnt/sums
sync

say "fstrim, and what is left is right"
fstrim /mnt/at
umount /mnt/at
mount "$device" /mnt/at
(cd /mnt/at && sha256sum --quiet -c /mnt/sums)
umount /mnt/at

say "zeroed blocks are zeros, a discarded device has none of its old content in whole stripes"
blkdiscard -f --zeroout --length 1M "$device"
cmp --bytes=1048576 "$device" /dev/zero
blkdiscard -f "$device"
cmp --bytes=8388608 "$device" /dev/zero

say "the driver chooses durable writes, and the other way again"
echo "write through" >/sys/block/vda/cache_type
test "$(cat "$queue/write_cache")" = "write through"
dd if=/dev/urandom of="$device" bs=64k count=4 oflag=direct status=none
echo "write back" >/sys/block/vda/cache_type
test "$(cat "$queue/write_cache")" = "write back"

say "ext4, and durable writes"
mkfs.ext4 -q -F "$device"
mount "$device" /mnt/at
dd if=/dev/urandom of=/mnt/at/file bs=64k count=16 oflag=direct,dsync status=none
cp /mnt/at/file /mnt/copy
umount /mnt/at
e2fsck -fn "$device"
mount "$device" /mnt/at
cmp /mnt/at/file /mnt/copy
umount /mnt/at

say "two members are lost under verified load"
fio --name=load --filename="$device" --direct=1 --rw=randwrite --bs=4k-256k --iodepth=16 --size=48M \
  --ioengine=io_uring --verify=crc32c --fsync=32 --eta=never --output=/mnt/fio &
load=$!
read -r _ </dev/ttyS0
wait $load || { cat /mnt/fio; false; }
if dmesg | grep -E "I/O error|critical"; then false; fi
