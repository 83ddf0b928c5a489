# What a ublk device costs: next to nothing while nobody uses it; a request, as the program measures it.
load ublk_drv
members 3 64M
serve
"$ASHLAR" create tank --level raid5 --strip-size 16KiB m0 m1 m2
device=$("$ASHLAR" attach tank)
test -b "$device"
say "a daemon whose device nobody uses"
idles 25
"$ASHLAR" detach tank
end_daemon
rm /mnt/m?

say "what a request costs beyond the engine; nothing is left behind"
TMPDIR=/mnt "$ASHLAR" bench --via ublk --level 1 --raid-devices 2 --workers 2 --span 16M --seconds 1 --turns 1 \
  --random --depth 4 --json >/mnt/bench
cat /mnt/bench
jq -e '.via == "ublk" and .export.requests_per_second > 0 and .export.cpu_ns_per_request > 0
  and .export.us_p50 > 0 and .export.operations_per_request > 0' /mnt/bench
test ! -e /sys/block/ublkb0
test -z "$(find /mnt -maxdepth 1 -name 'ashlar-bench*')"
