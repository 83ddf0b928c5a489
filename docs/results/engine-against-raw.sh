#!/usr/bin/env bash
# The engine against its raw members, in one run on the same members: fio on the members, then the engine on
# the same members, in turn, ROUNDS times; prints medians and each engine figure over its ceiling.
#
#   docs/results/engine-against-raw.sh [--rounds N] [--seconds N] [--span SIZE] MEMBER...
#
# The members (files or block devices) lose their content. Eight data and two parity strips need ten of them.
# Write them once before the first run: a block that was never written reads faster than a drive can.
#
# The ceiling of a case is the best of some raw shapes in the same round. Raw loads touch as much of each member
# as the engine does (its share of the span). Random loads have as many I/Os in flight as the engine's: two
# workers, 32 requests each, times the member I/Os of one request that run at once.
#
# Writes are measured with both policies: `bitmap`, whose member I/Os are the ceiling's, and `log`, which adds durable batches.
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
SHARE=$(($(numfmt --from=iec "$SPAN") / 8))
DESTROY=()
for member in "${MEMBERS[@]}"; do DESTROY+=(--destroy "$member"); done
FIGURES=$(mktemp)
trap 'rm -f "$FIGURES"' EXIT

fio_on_members() { # fio_on_members CASE MIX BLOCK DEPTH UNIT JOB...
  local name=$1 mix=$2 block=$3 depth=$4 unit=$5
  shift 5
  fio --output-format=json --group_reporting --thread --direct=1 --ioengine=io_uring --time_based \
    --runtime="$SECONDS_EACH" --offset=16M --size="$SHARE" --io_size=1000G --rw="$mix" --bs="$block" --iodepth="$depth" \
    --random_generator=tausworthe64 --norandommap --randrepeat=0 --file_service_type=random "$@" |
    jq -r --arg key "raw	$name	$mix $block x $depth x $(($# / 2)) jobs" --arg unit "$unit" '.jobs[0] | [$key,
      (if $unit == "bytes" then .read.bw_bytes + .write.bw_bytes else .read.iops + .write.iops end)] | join("\t")' |
    sed "s/^/$round	/" >>"$FIGURES"
}

each() { # each CASE MIX BLOCK DEPTH UNIT: one job for each member
  local jobs=() member
  for member in "${MEMBERS[@]}"; do jobs+=("--name=$member" "--filename=$member"); done
  fio_on_members "$@" "${jobs[@]}"
}

both() { # both CASE MIX BLOCK DEPTH UNIT: two jobs, each on all members, as the engine's workers are
  local all
  all=$(IFS=:; echo "${MEMBERS[*]}")
  fio_on_members "$@" --name=one "--filename=$all" --name=two "--filename=$all"
}

engine() { # engine CASE UNIT OPTION...: RAID 6 of the same members
  local name=$1 unit=$2
  shift 2
  "$ASHLAR" bench --json -d 32 -s "$SECONDS_EACH" --workers 2 --span "$SPAN" "$@" "${DESTROY[@]}" "${MEMBERS[@]}" |
    jq -r --arg key "engine	$name	-" --arg unit "$unit" '[$key,
      (if $unit == "bytes" then .bytes_per_second else .requests_per_second end),
      .cpu_seconds / .requests * 1e6, .member_reads_per_request, .member_writes_per_request] | join("\t")' |
    sed "s/^/$round	/" >>"$FIGURES"
}

for ((round = 0; round < ROUNDS; round++)); do
  for shape in "64k 64" "512k 4" "512k 16"; do
    read -r block depth <<<"$shape"
    each write write "$block" "$depth" bytes
    each read read "$block" "$depth" bytes
  done
  # The engine's clients are 64 streams: for a member that is 64 KiB here and there.
  each write randwrite 64k 51 bytes
  each read randread 64k 51 bytes
  engine "full stripes" bytes --write -b 512K --policy bitmap
  engine "full stripes, log" bytes --write -b 512K --policy log
  engine "sequential reads" bytes -b 512K
  engine "sequential reads, two out" bytes -b 512K --lost 2
  each "random reads" randread 4k 6 ios
  both "random reads" randread 4k 32 ios
  engine "random reads" ios --random -b 4K
  each "random mix" randrw 4k 19 ios
  both "random mix" randrw 4k 96 ios
  engine "random writes" ios --random --write -b 4K --policy bitmap
  engine "random writes, log" ios --random --write -b 4K --policy log
done

awk -F'\t' '
  function median(list,   n, i, j, t, a) {
    n = split(list, a, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
  }
  function row(engine, raw, factor, unit, scale, aim,   at, ratios, ceilings) {
    for (at = 0; at < rounds; at++) {
      ratios = ratios " " figure[at, engine] / (best[at, raw] * factor)
      ceilings = ceilings " " best[at, raw] * factor
    }
    printf "| %s | %.4g %s | %.4g %s | %.2f | %s | %.1f us | %.2f + %.2f |\n", engine, median(all[engine]) / scale, unit,
      median(ceilings) / scale, unit, median(ratios), aim, median(cpu[engine]), reads[engine], writes[engine]
  }
  { if ($1 >= rounds) rounds = $1 + 1 }
  $2 == "engine" { figure[$1, $3] = $5; all[$3] = all[$3] " " $5; cpu[$3] = cpu[$3] " " $6; reads[$3] = $7; writes[$3] = $8 }
  $2 == "raw" {
    if ($5 > best[$1, $3]) best[$1, $3] = $5
    shape = $3 " | " $4
    if (!(shape in shapes)) order[++shape_count] = shape
    shapes[shape] = shapes[shape] " " $5
  }
  END {
    print "| case | engine | ceiling | median of ratios | aim | CPU a request | member I/Os a request |"
    print "|---|---:|---:|---:|---:|---:|---:|"
    row("full stripes", "write", 0.8, "GB/s", 1e9, "0.90")
    row("full stripes, log", "write", 0.8, "GB/s", 1e9, "-")
    row("sequential reads", "read", 1, "GB/s", 1e9, "0.95")
    row("sequential reads, two out", "read", 1, "GB/s", 1e9, "0.85")
    row("random reads", "random reads", 1, "k/s", 1e3, "0.95")
    row("random writes", "random mix", 1 / 6, "k/s", 1e3, "0.80")
    row("random writes, log", "random mix", 1 / 6, "k/s", 1e3, "-")
    print "\n| raw case | shape: order, block x depth x jobs | median |"; print "|---|---|---:|"
    for (at = 1; at <= shape_count; at++) {
      is_random = order[at] ~ /^random/
      printf "| %s | %.4g %s |\n", order[at], median(shapes[order[at]]) / (is_random ? 1e3 : 1e9), is_random ? "k/s" : "GB/s"
    }
  }' "$FIGURES"
cp "$FIGURES" "${KEEP:-/dev/null}"
