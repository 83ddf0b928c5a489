# The daemon on the host is killed under a mounted file system and verified load; its successor finds in
# the machine what was not answered. Nobody gets an error, and everything is there.
load virtio_blk xfs
until_so 60 test -b /dev/vda
mkfs.xfs -q -f /dev/vda
mount /dev/vda /mnt/at
head -c 8M /dev/urandom >/mnt/at/before
sync /mnt/at/before
sum=$(sha256sum </mnt/at/before)

fio --name=load --directory=/mnt/at --direct=1 --rw=randwrite --bs=4k --iodepth=32 --size=24M \
  --ioengine=io_uring --verify=crc32c --verify_backlog=256 --time_based --runtime=36000 \
  --eta=never --output=/mnt/fio &
load=$!
# What is synced while nobody serves waits for the successor.
(
  number=0
  until test -e /mnt/enough; do
    number=$(((number + 1) % 8))
    head -c 256K /dev/urandom >/mnt/at/during$number
    sync /mnt/at/during$number
    sha256sum /mnt/at/during$number >/mnt/synced$number
  done
) &
syncing=$!
say "under load"
read -r _ </dev/ttyS0
touch /mnt/enough
wait $syncing
kill -0 $load
kill -INT $load
wait $load || test $? = 128
grep -q "err= 0" /mnt/fio || { cat /mnt/fio; false; }
say "no error at the disk"
if dmesg | grep -E "I/O error|XFS.*(error|corrupt|shut)"; then false; fi
sync
say "everything is written"
read -r _ </dev/ttyS0
echo 3 >/proc/sys/vm/drop_caches
test "$(sha256sum </mnt/at/before)" = "$sum"
sha256sum --quiet -c /mnt/synced*
umount /mnt/at
xfs_repair -n /dev/vda >/mnt/repair 2>&1 || { cat /mnt/repair; false; }
