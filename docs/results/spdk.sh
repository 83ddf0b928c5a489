#!/usr/bin/env bash
# Ashlar and SPDK's raid5f on one core each, in turns, on members in memory: figures of race.md.
#
#   docs/results/spdk.sh FOLDER [TURNS [SECONDS]]
#
# FOLDER/spdk is a checkout of https://github.com/spdk/spdk at v24.01 with its submodule isa-l. It is built here (10
# minutes, once) with Debian's DPDK, which is a later bug-fix release than SPDK lets through: one line of it changes.
# Members are SPDK's malloc devices and Ashlar's memory devices; each copies every byte once. Both run in the process of
# their own benchmark, without an export. SPDK polls all the time.
#
# Needs root and the packages libdpdk-dev libssl-dev libaio-dev libnuma-dev uuid-dev nasm autoconf automake libtool gcc
# make jq. ASHLAR names the program (default: target/release/ashlar). Prints rows: load, SPDK's and Ashlar's requests a
# second, the median of the ratios, least and greatest.
set -euo pipefail
SPDK=$(realpath "${1:?a folder with spdk}")/spdk TURNS=${2:-5} SECONDS_EACH=${3:-2}
ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
CORE=1
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

build() {
  cd "$SPDK"
  ./configure --with-dpdk --with-raid5f --without-vhost --without-virtio --disable-tests --disable-unit-tests --disable-apps \
    >/dev/null || true # It ends at modules that are not needed, after their settings are written.
  sed -i 's/^CONFIG_\(IPSEC_MB\|ISAL_CRYPTO\)?=y/CONFIG_\1?=n/' mk/config.mk
  sed -i 's/if (minor > 4) {/if (minor > 99) {/' lib/env_dpdk/pci_dpdk.c
  nice make -s "-j$(nproc)"
  cd - >/dev/null
}
[ -x "$SPDK/build/examples/bdevperf" ] || build

members() { # five of 64 MiB, and RAID 5 of them
  local number names=()
  for number in 0 1 2 3 4; do
    printf '{"method":"bdev_malloc_create","params":{"name":"m%s","num_blocks":16384,"block_size":4096}},' "$number"
    names+=("\"m$number\"")
  done
  printf '{"method":"bdev_raid_create","params":{"name":"array","raid_level":"raid5f","strip_size_kb":64,"base_bdevs":[%s]}},' \
    "$(IFS=, && echo "${names[*]}")"
  printf '{"method":"bdev_wait_for_examine"}'
}
echo "{\"subsystems\":[{\"subsystem\":\"bdev\",\"config\":[$(members)]}]}" >"$WORK/array.json"

LOADS="full-stripe writes (256 KiB)|write|262144|8|0
1 MiB reads|read|1048576|8|0
random 4 KiB reads|randread|4096|32|0
1 MiB reads, one out|read|1048576|8|1
random 4 KiB reads, one out|randread|4096|32|1
random 4 KiB writes|randwrite|4096|32|0"

spdk() { # spdk KIND BYTES DEPTH LOST: its requests a second; nothing if it fails them
  local server="$WORK/spdk.sock" process
  export LD_LIBRARY_PATH=$SPDK/build/lib PYTHONPATH=$SPDK/python
  "$SPDK/build/examples/bdevperf" -z -r "$server" -c "$WORK/array.json" --no-pci --no-huge -s 3072 -m "[$CORE]" \
    -q 1 -o 262144 -w write -t 1 -T array >"$WORK/spdk.log" 2>&1 &
  process=$!
  until "$SPDK/scripts/rpc.py" -s "$server" bdev_get_bdevs -b array >/dev/null 2>&1; do
    kill -0 $process || { cat "$WORK/spdk.log" >&2; exit 1; }
    sleep 0.2
  done
  sleep 1 # The benchmark is ready a little later than its array.
  tests 1 -w write -o 262144 -q 8 -t 2 # All memory is there before, as it is for Ashlar.
  [ "$4" = 0 ] || "$SPDK/scripts/rpc.py" -s "$server" bdev_malloc_delete m1 >/dev/null
  tests 2 -w "$1" -o "$2" -q "$3" -t "$SECONDS_EACH"
  kill $process
  wait $process || true
  tr -d '\r' <"$WORK/spdk.log" | awk '$1 == "Total" && ++tests == 2 && $5 == "0.00" { print int($3) }'
}

tests() { # tests NUMBER OPTION...: run the benchmark, the NUMBER-th time
  local number=$1
  shift
  "$SPDK/examples/bdev/bdevperf/bdevperf.py" -s "$server" perform_tests "$@" >/dev/null 2>&1 || true
  # It answers before it prints.
  until [ "$(grep -c 'Total  *:' "$WORK/spdk.log")" -ge "$number" ]; do sleep 0.1; done
}

ashlar() { # ashlar KIND BYTES DEPTH LOST
  local options=()
  case $1 in *write) options+=(--write) ;; esac
  case $1 in rand*) options+=(--random) ;; esac
  taskset -c $CORE "$ASHLAR" bench --json --level 5 -n 5 --workers 1 --span 256M --seconds "$SECONDS_EACH" --bytes "$2" \
    --depth "$3" --lost "$4" "${options[@]}" | jq '.requests_per_second | floor'
}

echo "| load | SPDK raid5f | Ashlar | ratio |"
echo "|---|---:|---:|---:|"
while IFS='|' read -r load kind bytes depth lost; do
  for _ in $(seq "$TURNS"); do
    echo "$(spdk "$kind" "$bytes" "$depth" "$lost" </dev/null | grep . || echo 0) $(ashlar "$kind" "$bytes" "$depth" "$lost" </dev/null)"
  done | jq -rRn --arg load "$load" '
    [inputs | split(" ") | map(tonumber)] as $turns
    | def middle: sort | .[(length - 1) / 2 | floor];
    def rounded: . * 100 | round / 100;
    [$turns[] | select(.[0] > 0) | .[1] / .[0]] as $ratios
    | [$load, (if $ratios == [] then "refused" else ([$turns[][0]] | middle) end), ([$turns[][1]] | middle),
       (if $ratios == [] then "-" else "\($ratios | middle | rounded) (\($ratios | min | rounded) to \($ratios | max | rounded))" end)]
    | "| " + (map(tostring) | join(" | ")) + " |"'
done <<<"$LOADS"
