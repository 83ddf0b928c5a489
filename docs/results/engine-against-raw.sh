#!/usr/bin/env bash
# The engine against its raw members, in one run on the same members: fio on the members, then the engine on
# the same members, in turn, ROUNDS times; prints medians and each engine figure over its ceiling.
#
#   docs/results/engine-against-raw.sh [--rounds N] [--seconds N] [--span SIZE] MEMBER...
#
# The members (files or block devices) lose their content. Eight data and two parity strips need ten of them.
# The raw load has as many I/Os in flight as the engine's: two workers, 32 requests each, times the member
# I/Os of one request that run at once.
set -euo pipefail
ROUNDS=5 SECONDS_EACH=3 SPAN=4G ASHLAR=${ASHLAR:-target/release/ashlar}
while [[ ${1:-} == --* ]]; do
  case $1 in
    --rounds) ROUNDS=$2 ;; --seconds) SECONDS_EACH=$2 ;; --span) SPAN=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
MEMBERS=("$@")
[ "${#MEMBERS[@]}" -eq 10 ] || { echo "name ten members; nothing was written" >&2; exit 2; }
DESTROY=()
for member in "${MEMBERS[@]}"; do DESTROY+=(--destroy "$member"); done
FIGURES=$(mktemp)
trap 'rm -f "$FIGURES"' EXIT

raw() { # raw CASE MIX BLOCK DEPTH_PER_MEMBER UNIT: fio on all members at once
  local jobs=() member
  for member in "${MEMBERS[@]}"; do jobs+=("--name=$member" "--filename=$member"); done
  fio --output-format=json --group_reporting --thread --direct=1 --ioengine=io_uring --time_based \
    --runtime="$SECONDS_EACH" --size=100% --offset=16M --io_size=100G --rw="$2" --bs="$3" --iodepth="$4" \
    --random_generator=tausworthe64 --norandommap --randrepeat=0 "${jobs[@]}" |
    jq -r --arg case "raw $1" --arg unit "$5" \
      '.jobs[0] | [$case, (if $unit == "bytes" then .read.bw_bytes + .write.bw_bytes else .read.iops + .write.iops end)] | @tsv' >>"$FIGURES"
}

engine() { # engine CASE UNIT OPTION...: RAID 6 of the same members
  local name=$1 unit=$2
  shift 2
  "$ASHLAR" bench --json -d 32 -s "$SECONDS_EACH" --span "$SPAN" "$@" "${DESTROY[@]}" "${MEMBERS[@]}" |
    jq -r --arg case "engine $name" --arg unit "$unit" \
      '[$case, (if $unit == "bytes" then .bytes_per_second else .requests_per_second end), .cpu_seconds / .requests * 1e9] | @tsv' >>"$FIGURES"
}

for ((round = 0; round < ROUNDS; round++)); do
  raw write write 64k 64 bytes
  engine "full stripes" bytes --write -b 512K
  raw read read 64k 64 bytes
  engine "sequential reads" bytes -b 512K
  engine "sequential reads, two out" bytes -b 512K --lost 2
  raw "random reads" randread 4k 6 ios
  engine "random reads" ios --random -b 4K
  raw "random mix" randrw 4k 19 ios
  engine "random writes" ios --random --write -b 4K
done

awk -F'\t' '
  function median(name,   n, i, j, t, a) {
    n = split(list[name], a, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
  }
  function ratio(engine, raw, factor,   n, e, r, i, all) {
    n = split(list["engine " engine], e, " "); split(list["raw " raw], r, " ")
    for (i = 1; i <= n; i++) all = all " " e[i] / (r[i] * factor)
    list["ratio " engine] = all
    return median("ratio " engine)
  }
  function row(engine, raw, factor, unit, scale, aim) {
    printf "| %s | %.4g %s | %.4g %s | %.2f | %s |\n", engine, median("engine " engine) / scale, unit, median("raw " raw) * factor / scale, unit, ratio(engine, raw, factor), aim
  }
  { list[$1] = list[$1] " " $2 }
  END {
    print "| case | engine | ceiling | median of ratios | aim |"; print "|---|---:|---:|---:|---:|"
    row("full stripes", "write", 0.8, "GB/s", 1e9, "0.90")
    row("sequential reads", "read", 1, "GB/s", 1e9, "0.95")
    row("sequential reads, two out", "read", 1, "GB/s", 1e9, "0.85")
    row("random reads", "random reads", 1, "k/s", 1e3, "0.95")
    row("random writes", "random mix", 1 / 6, "k/s", 1e3, "0.80")
  }' "$FIGURES"
cp "$FIGURES" "${KEEP:-/dev/null}"
