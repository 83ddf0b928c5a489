#!/usr/bin/env bash
# Linux md, NVMe/TCP and ublk of a kernel that runs as a program, on one core: figures of race.md and exports.md.
#
#   docs/results/user-mode-linux.sh FOLDER exports [TURNS [SECONDS]]   our NVMe/TCP and ublk beside nvmet and libublk
#   docs/results/user-mode-linux.sh FOLDER md [SECONDS]                one turn of md alone; race.sh calls it
#
# Linux for user mode is built here of Debian's package linux-source-6.12 with the configuration beside this file
# (6 minutes, once; FOLDER keeps it). One change: the kernel's AVX2 code for RAID 6, which that build leaves out.
# Everything in the guest runs on one processor. A system call costs 18 us there (natively 0.25): programs pay for it,
# kernel code does not. Members and namespaces are null_blk devices in memory; the peer of ublk is the example `null` of
# the crate libublk.
#
# Needs root and the packages linux-source-6.12 gcc make bc bison flex xz-utils libclang-dev mdadm nvme-cli fio
# jq. ASHLAR names the
# program (default: target/release/ashlar). `exports` prints rows: load, our rate, the peer's, median of the ratios, least
# and greatest. `md` prints a load, its requests (rebuild: bytes) a second,
# and three percentiles of their time.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=$(realpath "${1:?a folder for the kernel}") PART=${2:?exports or md}
case $PART in
  exports) TURNS=${3:-5} SECONDS_EACH=${4:-2} ;;
  md) TURNS=1 SECONDS_EACH=${3:-2} ;;
  *) echo "exports or md, not '$PART'" >&2; exit 2 ;;
esac
ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")

build() {
  mkdir -p "$FOLDER/source"
  tar -C "$FOLDER/source" --strip-components 1 -xf /usr/src/linux-source-6.12.tar.xz
  cd "$FOLDER/source"
  make -s ARCH=um x86_64_defconfig
  scripts/kconfig/merge_config.sh -m -O . .config "$HERE/user-mode-linux.config" >/dev/null
  make -s ARCH=um olddefconfig
  sed -i 's/ && !defined(__arch_um__)$//; s/^#ifdef CONFIG_X86$/#ifdef CONFIG_X86_64/' lib/raid6/algos.c
  sed -i 's/^#if (defined(__i386__) || \(defined(__x86_64__)\)) && !defined(__arch_um__)/#if \1/
    s/^#include <asm.fpu.api.h>/&\n#include <asm\/cpufeature.h>/' lib/raid6/x86.h
  sed -i 's/^raid6_pq-$(CONFIG_X86) /raid6_pq-$(CONFIG_X86_64) /' lib/raid6/Makefile
  nice make -s ARCH=um "-j$(nproc)" linux
  cp linux "$FOLDER/linux"
  cd "$FOLDER"
}

inside() { # the first program of the guest
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mountpoint -q /dev || mount -t devtmpfs dev /dev
  mount -t tmpfs run /run
  mount -t tmpfs mnt /mnt
  mkdir -p /dev/shm
  mount -t tmpfs shm /dev/shm
  mount -t configfs config /sys/kernel/config
  ln -sfn /proc/self/fd /dev/fd
  ip link set lo up
  cd /mnt
  case $PART in
    exports) nvme_tcp && ublk ;;
    md) md ;;
  esac
}

rate() { # rate DEVICE KIND DEPTH: requests of 4 KiB a second
  fio --name=load --filename="$1" --rw="$2" --bs=4k --iodepth="$3" --ioengine=io_uring --direct=1 --time_based \
    --iodepth_batch_submit=$((($3 + 1) / 2)) --iodepth_batch_complete_max=$((($3 + 1) / 2)) \
    --runtime="$SECONDS_EACH" --ramp_time=1 --size=200M --norandommap --output-format=json |
    jq '.jobs[0] | .read.iops + .write.iops | floor'
}

race() { # race NAME OURS PEER: in turns, and a row for each load
  local kind depth turn ours peer
  fio --name=fill --filename="$2" --rw=write --bs=1M --size=200M --direct=1 >/dev/null
  fio --name=fill --filename="$3" --rw=write --bs=1M --size=200M --direct=1 >/dev/null
  for depth in 32 1; do
    for kind in randread randwrite; do
      for turn in $(seq "$TURNS"); do
        ours=$(rate "$2" $kind $depth)
        peer=$(rate "$3" $kind $depth)
        echo "$ours $peer"
      done | jq -rRn --arg load "$1, $kind, depth $depth" '
        [inputs | split(" ") | map(tonumber)] as $turns
        | def middle: sort | .[(length - 1) / 2 | floor];
        def rounded: . * 100 | round / 100;
        [$turns[] | .[0] / .[1]] as $ratios
        | [$load, ([$turns[][0]] | middle), ([$turns[][1]] | middle), ($ratios | middle | rounded),
           "\($ratios | min | rounded) to \($ratios | max | rounded)"]
        | "| " + (map(tostring) | join(" | ")) + " |"'
    done
  done
}

serve() { # a RAID 6 8+2 in memory, by a daemon with one worker
  export ASHLAR_SOCKET=/run/control.sock
  printf '[nvme_tcp]\nlisten = ["127.0.0.1:4420"]\nnqn = "nqn.2024-01.example:ours"\ntrusted_network = true\nstate = "/mnt/state"\n' >/mnt/ashlar.toml
  "$ASHLAR" serve --config /mnt/ashlar.toml --no-pin --workers 1 --pool 128MiB >/mnt/daemon.log 2>&1 &
  until "$ASHLAR" status >/dev/null 2>&1; do sleep 0.2; done
  # shellcheck disable=SC2046 # Ten words.
  "$ASHLAR" create tank --level 6 $(yes memory:96M | head -10) >/dev/null
}

null_block() { # null_block NUMBER MEGABYTES: /dev/nullbNUMBER, in memory
  local null=/sys/kernel/config/nullb/nullb$1
  mkdir "$null"
  echo "$2" >"$null/size"
  echo 4096 >"$null/blocksize"
  echo 1 >"$null/memory_backed"
  echo 1 >"$null/power"
}

nvme_tcp() {
  local target=/sys/kernel/config/nvmet path
  null_block 0 256
  path=$target/subsystems/nqn.2024-01.example:theirs
  mkdir "$path"
  echo 1 >"$path/attr_allow_any_host"
  mkdir "$path/namespaces/1"
  echo /dev/nullb0 >"$path/namespaces/1/device_path"
  echo 1 >"$path/namespaces/1/enable"
  mkdir $target/ports/1
  echo tcp >$target/ports/1/addr_trtype
  echo ipv4 >$target/ports/1/addr_adrfam
  echo 127.0.0.1 >$target/ports/1/addr_traddr
  echo 4421 >$target/ports/1/addr_trsvcid
  ln -s "$path" "$target/ports/1/subsystems/theirs"
  serve
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2024-01.example:ours --nr-io-queues=1
  nvme connect -t tcp -a 127.0.0.1 -s 4421 -n nqn.2024-01.example:theirs --nr-io-queues=1
  sleep 2
  race "NVMe/TCP over nvmet" "$(device_of ours)" "$(device_of theirs)"
  nvme disconnect-all
}

device_of() { # device_of NAME: the block device of the subsystem
  local subsystem
  subsystem=$(grep -l ":$1\$" /sys/class/nvme-subsystem/*/subsysnqn)
  echo "/dev/$(basename "$(dirname "$subsystem")" | sed 's/-subsys//')n1"
}

ublk() {
  local device
  mkdir -p /run/ublksrvd
  "$NULL" add -n 7 -q 1 -d 128 >/mnt/null.log 2>&1 &
  device=$("$ASHLAR" attach --via ublk tank)
  until [ -b /dev/ublkb7 ]; do sleep 0.2; done
  race "ublk over libublk's null" "$device" /dev/ublkb7
}

load_md() { # load_md NAME KIND SIZE DEPTH: its requests a second; in us their 50th, 99th and 99.9th percentile
  fio --name=load --filename=/dev/md0 --rw="$2" --bs="$3" --iodepth="$4" --iodepth_batch_submit=16 \
    --iodepth_batch_complete_max=16 --ioengine=io_uring --direct=1 --time_based --runtime="$SECONDS_EACH" --ramp_time=1 \
    --size=256M --norandommap --lat_percentiles=1 --clat_percentiles=0 --percentile_list=50:99:99.9 --output-format=json |
    jq -r --arg load "$1" '.jobs[0] | [.read, .write] | max_by(.iops) | .lat_ns.percentile as $ns
      | [.iops, ($ns["50.000000", "99.000000", "99.900000"] / 1000)] | map(. * 10 | round / 10 | tostring)
      | "md|\($load)|" + join("|")'
}

md() { # RAID 6 4+2, strips of 64 KiB, no bitmap
  local number members=() began
  for number in 0 1 2 3 4 5 6; do null_block "$number" 128; done
  for number in 0 1 2 3 4 5; do members+=("/dev/nullb$number"); done
  mdadm --create /dev/md0 --run --level=6 --chunk=64 --raid-devices=6 --bitmap=none --assume-clean "${members[@]}" 2>/dev/null
  echo 4096 >/sys/block/md0/md/stripe_cache_size
  fio --name=fill --filename=/dev/md0 --rw=write --bs=1M --size=256M --direct=1 >/dev/null
  load_md "random 4 KiB reads" randread 4k 32
  load_md "random 4 KiB reads, depth 1" randread 4k 1
  load_md "random 4 KiB writes, depth 1" randwrite 4k 1
  load_md "random 4 KiB writes" randwrite 4k 32
  load_md "full-stripe writes" write 256k 32
  load_md "1 MiB reads" read 1M 8
  mdadm --fail /dev/md0 /dev/nullb1 2>/dev/null
  load_md "random 4 KiB reads, one out" randread 4k 32
  load_md "random 4 KiB writes, one out" randwrite 4k 32
  load_md "1 MiB reads, one out" read 1M 8
  mdadm --fail /dev/md0 /dev/nullb2 2>/dev/null
  load_md "random 4 KiB reads, two out" randread 4k 32
  load_md "random 4 KiB writes, two out" randwrite 4k 32
  load_md "1 MiB reads, two out" read 1M 8
  mdadm --remove /dev/md0 /dev/nullb1 /dev/nullb2 2>/dev/null
  echo 10000000 >/sys/block/md0/md/sync_speed_min
  # The memory that the device needs is there before, as it is for Ashlar's.
  dd if=/dev/zero of=/dev/nullb6 bs=1M oflag=direct 2>/dev/null || true # It ends where the device does.
  began=$(date +%s%N)
  mdadm --add /dev/md0 /dev/nullb6 2>/dev/null
  until [ "$(cat /sys/block/md0/md/dev-nullb6/state)" = in_sync ]; do sleep 0.05; done
  echo "md|rebuild|$(($(cat /sys/block/md0/md/component_size) * 1024 * 1000 / (($(date +%s%N) - began) / 1000000)))"
  mdadm --stop /dev/md0 2>/dev/null
}

if [ "$$" -eq 1 ]; then
  set +e
  (set -e; inside)
  echo "the guest ends with $?"
  halt -f
fi
mkdir -p "$FOLDER"
[ -x "$FOLDER/linux" ] || build
[ "$PART" = md ] || [ -x "$FOLDER/bin/null" ] || cargo install --quiet --locked --root "$FOLDER" libublk --version 0.4.8 --example null
cat >"$FOLDER/init" <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin ASHLAR='$ASHLAR' NULL='$FOLDER/bin/null'
exec bash '$HERE/user-mode-linux.sh' '$FOLDER' $PART $([ "$PART" = md ] || echo "$TURNS") $SECONDS_EACH
INIT
chmod +x "$FOLDER/init"
TMPDIR=/dev/shm taskset -c 0 "$FOLDER/linux" mem=4G rootfstype=hostfs rootflags=/ ro "init=$FOLDER/init" \
  con=null con0=fd:0,fd:1 quiet loglevel=4 null_blk.nr_devices=0 </dev/null
