# The daemon is killed under a file system on the kernel's NBD client, KILLS times. The kernel then gives the
# device up, and nbd-client ends, also with -persist: connected and mounted again, the file system has
# every synced byte.
load nbd xfs
members 6 120M
socket=/mnt/nbd.sock
serve --nbd unix:$socket
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
device=/dev/nbd0

connect() {
  # With netlink there is no -persist.
  nbd-client -nonetlink -persist -block-size 4096 -unix $socket -name tank $device
}

is_free() { # whether nobody serves the device
  ! nbd-client -c $device
}

write_synced() { # write_synced NUMBER: files, each noted once it is synced, until there is an error
  local file number=0
  until [ -e /mnt/enough ]; do
    number=$((number + 1))
    file=/mnt/at/$1-$number
    head -c $((number * 7919 % 300000 + 1)) /dev/urandom >/mnt/next
    dd if=/mnt/next of="$file" bs=64k conv=fsync status=none || return 0
    echo "$(sha256sum </mnt/next | cut -d' ' -f1)  $file" >>/mnt/synced
  done
}

connect
mkfs.xfs -q -f $device
mount $device /mnt/at
for number in $(seq 1 "$KILLS"); do
  rm -f /mnt/synced /mnt/enough
  write_synced "$number" 2>/mnt/errors &
  writer=$!
  until_so 240 test -s /mnt/synced
  # Not always at the same place.
  sleep "$((number % 2)).$((number * 7 % 10))"
  kill_daemon
  serve --nbd unix:$socket m0 m1 m2 m3 m4 m5
  touch /mnt/enough
  wait $writer
  # If the kernel's client survives, docs/exports.md says too little of it.
  grep "Input/output error" /mnt/errors
  umount /mnt/at
  nbd-client -d $device || true
  until_so 240 is_free
  connect
  mount $device /mnt/at
  sha256sum --quiet -c /mnt/synced
  say "killed, and mounted again: $number, with $(wc -l </mnt/synced) synced files"
  rm /mnt/at/*
done
umount /mnt/at
xfs_repair -n $device >/mnt/repair 2>&1 || { cat /mnt/repair; false; }
nbd-client -d $device
scrub_finds_nothing
end_daemon
