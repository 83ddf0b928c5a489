# The daemon on the host is killed under a mounted file system and verified load; its successor finds in
# the machine what was not answered. Nobody gets an error, and everything is there.
load virtio_blk xfs
until_so 240 test -b /dev/vda
begin_file_system /dev/vda
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
kill -0 "$LOAD"
tell_load_to_end "I/O error"
sync
say "everything is written"
read -r _ </dev/ttyS0
end_file_system /dev/vda
