#!/usr/bin/env bash
# What the stripe intent log and the checksums of blocks cost: each load with and without them, in turns, in one
# run on the same members; prints medians, and each over the first of its load.
#
#   docs/results/promise-costs.sh [--rounds N] [--seconds N] [--span SIZE] [--loads REGEX] [--limits READS:WRITES:BYTES] [--workers N]
#     [--latency-us READ:WRITE] [MEMBER...]
#
# Without members: RAID 6 of six members in memory, one worker, which is compared by the CPU time of a request. With
# --latency-us 80:15 they answer as late as drives do: 80 us after a read, 15 us after any other command.
# With members (files or block devices, which lose their content): RAID 6 of them, two workers unless told otherwise, compared
# by the rate.
# With limits: a control group holds each member, which must be a block device, to so many reads and so many writes a
# second, and so many bytes a second each way; as root. The first of the three that is reached is what bounds a load then.
set -euo pipefail
ROUNDS=5 SECONDS_EACH=3 SPAN=256M LOADS=. LIMITS= WORKERS=2 LATENCY=() ASHLAR=${ASHLAR:-target/release/ashlar}
while [[ ${1:-} == --* ]]; do
  case $1 in
    --rounds) ROUNDS=$2 ;; --seconds) SECONDS_EACH=$2 ;; --span) SPAN=$2 ;; --loads) LOADS=$2 ;; --limits) LIMITS=$2 ;; --workers) WORKERS=$2 ;;
    --latency-us) LATENCY=(--latency-us "$2") ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
MEMBERS=()
for member in "$@"; do MEMBERS+=(--destroy "$member" "$member"); done
if [ $# -eq 0 ]; then SHAPE=(-n 6 --workers 1 "${LATENCY[@]}") STRIPE=256K; else SHAPE=(--workers "$WORKERS") STRIPE=$((64 * ($# - 2)))K; fi
FIGURES=$(mktemp)
GROUP=
trap 'rm -f "$FIGURES"; [ -z "$GROUP" ] || rmdir "$GROUP"' EXIT

limit() { # limit READS WRITES BYTES MEMBER...: of each member, a second, for whoever is in the group
  local reads=$1 writes=$2 bytes=$3 member number old=/sys/fs/cgroup/blkio new=/sys/fs/cgroup
  shift 3
  [ $# -gt 0 ] || { echo "--limits needs members that are block devices" >&2; exit 2; }
  [ -d "$old" ] && GROUP=$old/promise-costs || GROUP=$new/promise-costs
  [ -d "$old" ] || echo +io >"$new/cgroup.subtree_control"
  mkdir "$GROUP"
  for member in "$@"; do
    number=$(lsblk --noheadings --nodeps --output MAJ:MIN "$member" | tr -d ' ')
    if [ -d "$old" ]; then
      echo "$number $reads" >"$GROUP/blkio.throttle.read_iops_device"
      echo "$number $writes" >"$GROUP/blkio.throttle.write_iops_device"
      echo "$number $bytes" >"$GROUP/blkio.throttle.read_bps_device"
      echo "$number $bytes" >"$GROUP/blkio.throttle.write_bps_device"
    else
      echo "$number riops=$reads wiops=$writes rbps=$bytes wbps=$bytes" >"$GROUP/io.max"
    fi
  done
}
if [ -n "$LIMITS" ]; then
  IFS=: read -r reads writes bytes <<<"$LIMITS"
  limit "$reads" "$writes" "$bytes" "$@"
fi

bench() { # bench OPTION...: in the group, if there is one
  if [ -n "$GROUP" ]; then echo "$BASHPID" >"$GROUP/cgroup.procs"; fi
  exec "$ASHLAR" bench --json "$@"
}

one() { # one LOAD VARIANT OPTION...
  local load=$1 variant=$2
  shift 2
  bench -s "$SECONDS_EACH" --span "$SPAN" "${SHAPE[@]}" "$@" "${MEMBERS[@]}" |
    jq -r --arg key "$load	$variant" '[$key, ([.shares[].cpu_seconds] | add) / .requests * 1e9,
      .requests_per_second, .log_batches_per_request, .log_bytes_per_request] | @tsv' | sed 's/\\t/\t/g' >>"$FIGURES"
}

policies() { # policies LOAD OPTION...: the promise after a crash
  local load=$1
  shift
  [[ $load =~ $LOADS ]] || return 0
  one "$load" bitmap --policy bitmap "$@"
  one "$load" log --policy log "$@"
  one "$load" "log, parity-only" --policy log --atomic-write "$@"
}

checksums() { # checksums LOAD OPTION...: the promise about silent corruption
  local load=$1
  shift
  [[ $load =~ $LOADS ]] || return 0
  one "$load" off --policy log --checksums off "$@"
  one "$load" "checksums on" --policy log --checksums on "$@"
}

for ((round = 1; round <= ROUNDS; round++)); do
  policies "random 4 KiB writes, depth 32" --random --write -b 4K -d 32
  policies "random 4 KiB writes, depth 64" --random --write -b 4K -d 64
  policies "random 4 KiB writes, depth 128" --random --write -b 4K -d 128
  policies "whole stripes, depth 1" --write -b "$STRIPE" -d 1
  policies "whole stripes, depth 8" --write -b "$STRIPE" -d 8
  checksums "random 4 KiB reads, depth 32, checksums" --random -b 4K -d 32
  checksums "256 KiB reads in sequence, depth 8, checksums" -b 256K -d 8
  checksums "random 4 KiB writes, depth 32, checksums" --random --write -b 4K -d 32
  checksums "random 4 KiB, 70 % reads, depth 32, checksums" --random --write --reads 70 -b 4K -d 32
  checksums "whole stripes, depth 8, checksums" --write -b "$STRIPE" -d 8
done

# A median for each figure of each variant; ratios to the load's first variant: of CPU time (without over with) and of rates.
python3 - "$FIGURES" <<'PYTHON'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    load, variant, *figures = line.rstrip("\n").split("\t")
    runs.setdefault(load, {}).setdefault(variant, []).append([float(figure) for figure in figures])
print("| load | variant | CPU time of a request | requests a second | batches, bytes of log a request | ratio of CPU time | ratio of rates |")
print("|---|---|---:|---:|---:|---:|---:|")
for load, variants in runs.items():
    first = None
    for variant, figures in variants.items():
        cpu, rate, batches, log_bytes = (statistics.median(column) for column in zip(*figures))
        first = first or (cpu, rate)
        print(f"| {load} | {variant} | {cpu:,.0f} ns | {rate:,.0f} | {batches:.2f}, {log_bytes:,.0f} | {first[0] / cpu:.2f} | {rate / first[1]:.2f} |")
PYTHON
