# Drives that change hands between md and Ashlar: who was given them last has them, and finds nothing of the other.
load loop raid456
members 4 64M
DRIVES=()
for number in 0 1 2 3; do DRIVES+=("$(losetup -f --show --direct-io=on m$number)"); done
make_md() { # make_md VERSION
  mdadm --create /dev/md7 --run --metadata "$1" --level 6 --raid-devices 4 --assume-clean --bitmap=none "${DRIVES[@]}"
}
until_stopped() { # udev is not here: nobody holds it for long
  until_so 60 mdadm --stop /dev/md7
}

say "a superblock at the end (1.0) goes with --destroy"
make_md 1.0
until_stopped
printf '[start]\nscan = true\ndevices = ["/dev/loop*"]\ngrace_s = 1\nremember = true\n' >/mnt/ashlar.toml
serve --config /mnt/ashlar.toml --state /mnt/state
refused linux_raid_member create tank --level raid6 "${DRIVES[@]}"
destroyed=()
for drive in "${DRIVES[@]}"; do destroyed+=(--destroy "$drive"); done
"$ASHLAR" create tank --level raid6 "${destroyed[@]}" "${DRIVES[@]}"
"$ASHLAR" stop tank
for drive in "${DRIVES[@]}"; do
  if mdadm --examine "$drive" || mdadm --incremental "$drive"; then false; fi
  test "$(blkid -p -o value -s TYPE "$drive")" != linux_raid_member
done
"$ASHLAR" assemble "${DRIVES[@]}"
end_daemon

say "md was given the drives (1.2): the daemon that remembers the array leaves them alone"
make_md 1.2
dd if=/dev/urandom of=/mnt/noise bs=1M count=16 status=none
dd if=/mnt/noise of=/dev/md7 bs=1M oflag=direct status=none
until_stopped
cat m? | sha256sum >/mnt/before
serve --config /mnt/ashlar.toml --state /mnt/state
sleep 5
"$ASHLAR" status | grep "given to somebody else"
end_daemon
cat m? | sha256sum | cmp - /mnt/before
mdadm --assemble --run /dev/md7 "${DRIVES[@]}"
cmp --bytes=16777216 /dev/md7 /mnt/noise
until_stopped
