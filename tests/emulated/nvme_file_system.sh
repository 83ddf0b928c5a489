# A namespace in the kernel's host: ext4, btrfs, discard, lost members, and a volume that is taken away
# under the host and comes back. FSX: the program, or nothing.
load nvme_tcp ext4 btrfs
members 6 160M
NQN=nqn.2024-01.example:store
printf '[nvme_tcp]\nnqn = "%s"\nlisten = ["127.0.0.1:4420"]\ntrusted_network = true\nstate = "/mnt/state"\n' \
  $NQN >/mnt/nvme.toml
serve --config /mnt/nvme.toml
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$NQN" >/dev/nvme-fabrics
device=/dev/nvme0n1
until_so 240 test -b $device
zero_and_discard $device

say "ext4, and durable writes"
mkfs.ext4 -q -F $device
mount $device /mnt/at
write_durably $device
scrub_btrfs $device
exercise $device

say "two members are lost under verified load"
begin_load --filename=$device --bs=4k-64k --iodepth=16 --size=16M --fsync=32
"$ASHLAR" fail tank m1
"$ASHLAR" fail tank m4
end_load

say "the volume is taken away under the host, and comes back"
refused "force" stop tank
"$ASHLAR" stop --force tank
until_so 240 test ! -e $device
"$ASHLAR" assemble m0 m2 m3 m5
until_so 240 test -b $device
mount -o ro $device /mnt/at 2>/dev/null && umount /mnt/at
head -c 65536 $device >/dev/null
echo 1 >/sys/class/nvme/nvme0/delete_controller
end_daemon
