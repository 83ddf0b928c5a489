
# A disk that grows under its guest: the kernel is told, and the new room holds what is written.
load virtio_blk
until_so 240 test -b /dev/vda
size=/sys/block/vda/size
before=$(cat "$size")
is_larger() { test "$(cat "$size")" -gt "$before"; }
if is_larger; then false; fi

say "the pool grows"
read -r _ </dev/ttyS0
until_so 240 is_larger
after=$(cat "$size")
last=$((after / 2048 - 1))
test "$last" -gt "$((before / 2048))"
mount -t tmpfs none /mnt/at
dd if=/dev/urandom of=/mnt/at/noise bs=1M count=1 status=none
dd if=/mnt/at/noise of=/dev/vda bs=1M seek="$last" oflag=direct status=none
dd if=/dev/vda of=/mnt/at/back bs=1M skip="$last" count=1 iflag=direct status=none
cmp /mnt/at/noise /mnt/at/back
if dmesg | grep -E "I/O error|critical"; then false; fi
say "$before sectors became $after"
