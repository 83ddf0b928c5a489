#!/bin/busybox sh
# The first program of a guest: mounts the root of the machine below it, read-only, runs a script there
# with bash, says how that ended, and switches off.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in /lib/*; do
  $B insmod "$module"
done
if ! $B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /new; then
  echo "the root cannot be mounted"
  $B poweroff -f
fi
$B mount -t proc proc /new/proc
$B mount -t sysfs sys /new/sys
$B mount -t devtmpfs dev /new/dev
$B mount -t tmpfs run /new/run
$B mount -t tmpfs mnt /new/mnt
$B ln -sfn /proc/self/fd /new/dev/fd
$B ip link set lo up
script=$($B sed -n 's/.*script=\([^ ]*\).*/\1/p' /proc/cmdline)
echo "the kernel runs"
$B chroot /new /bin/bash "$script"
echo "the script ended with $?"
$B poweroff -f
