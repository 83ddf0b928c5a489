# A volume of the host as a disk: what the kernel is told of it, XFS, ext4 and btrfs, discard, and two members
# that are lost. FSX: the program, or nothing.
load virtio_blk xfs ext4 btrfs
until_so 240 test -b /dev/vda
device=/dev/vda
queue=/sys/block/vda/queue

say "limits"
told "$device"
test "$(tr -d '\0\n' </sys/block/vda/serial | wc -c)" = 20
fill_xfs "$device"
trim_xfs "$device"
zero_and_discard "$device"

say "the driver chooses durable writes, and the other way again"
echo "write through" >/sys/block/vda/cache_type
test "$(cat "$queue/write_cache")" = "write through"
dd if=/dev/urandom of="$device" bs=64k count=4 oflag=direct status=none
echo "write back" >/sys/block/vda/cache_type
test "$(cat "$queue/write_cache")" = "write back"

say "ext4, and durable writes"
mkfs.ext4 -q -F "$device"
mount "$device" /mnt/at
write_durably "$device"

scrub_btrfs "$device"
exercise "$device"

say "two members are lost under verified load"
begin_load --filename="$device" --bs=4k-256k --iodepth=16 --size=48M --fsync=32
read -r _ </dev/ttyS0
end_load
if dmesg | grep -E "I/O error|critical"; then false; fi
