# A volume as a ublk device: what the kernel is told of it, XFS and ext4, discard, lost members, and who
# may detach it. FSX: the program, or nothing.
load ublk_drv xfs ext4 btrfs
members 6 320M
serve --metrics 127.0.0.1:9000
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
device=$("$ASHLAR" attach tank 2>/mnt/way)
say "attached as $device"
test -b "$device"
grep -q "^ashlar: by ublk: " /mnt/way
test "$("$ASHLAR" attach tank)" = "$device"
test "$("$ASHLAR" attach --via ublk --json tank | jq -r '[.changed, .via, .device] | join(" ")')" = "false ublk $device"
"$ASHLAR" status --json | jq -e --arg device "$device" '.exports[] | select(.protocol == "ublk" and .address == $device)'
"$ASHLAR" volumes | grep -q "$device"
refused "attached by ublk already" attach --via loop tank

say "limits"
told "$device" rotational:0 fua:1 max_sectors_kb:1024
fill_xfs "$device"

say "a mounted device is not detached, and its array not stopped"
refused "is mounted at /mnt/at" detach tank
refused "attached as $device" stop tank

trim_xfs "$device"

say "a device that is open is not detached"
exec 7<"$device"
refused "is open somewhere" detach tank
exec 7<&-

zero_and_discard "$device"

say "requests of all lengths move the same bytes"
head -c 4M /dev/urandom >/mnt/large
for write in 4k 1M; do
  dd if=/mnt/large of="$device" bs=$write oflag=direct status=none
  for read in 4k 76k 1M; do
    dd if="$device" bs=$read count=4M iflag=direct,count_bytes status=none | cmp - /mnt/large
  done
  blkdiscard -f --zeroout --length 4M "$device"
done

say "ext4, and durable writes"
mkfs.ext4 -q -F "$device"
mount "$device" /mnt/at
before=$("$ASHLAR" status --json | jq '.exports[] | select(.protocol == "ublk").requests')
write_durably "$device"
test "$("$ASHLAR" status --json | jq '.exports[] | select(.protocol == "ublk").requests')" -gt "$before"
exec 8<>/dev/tcp/127.0.0.1/9000
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8
timeout 240 cat <&8 >/mnt/metrics || true
grep "^ashlar_export_requests_total{protocol=\"ublk\",address=\"$device\",array=\"tank\"} [1-9]" /mnt/metrics
exec 8<&-

scrub_btrfs "$device"
exercise "$device"

say "two members are lost under verified load"
begin_load --filename="$device" --bs=4k-64k --iodepth=16 --size=16M --fsync=32
"$ASHLAR" fail tank m1
"$ASHLAR" fail tank m4
end_load

say "detached, twice; and read-only"
"$ASHLAR" detach tank
test ! -e "$device"
"$ASHLAR" detach tank
"$ASHLAR" stop tank
"$ASHLAR" assemble --read-only m0 m2 m3 m5
device=$("$ASHLAR" attach tank)
test "$(blockdev --getro "$device")" = 1
head -c 65536 "$device" >/dev/null
if dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct status=none 2>/mnt/refusal; then false; fi
"$ASHLAR" detach tank
end_daemon
