#!/bin/busybox sh
# The first program of a machine with Debian: mounts its root, and gives way to systemd.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in /lib/*; do
  $B insmod "$module"
done
if ! $B mount -t ext4 "$($B findfs LABEL=guest)" /new; then
  echo "the root cannot be mounted"
  $B poweroff -f
fi
$B umount /proc
$B umount /sys
$B mount --move /dev /new/dev
echo "the kernel runs"
exec $B switch_root /new /sbin/init
