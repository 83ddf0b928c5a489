#!/usr/bin/env bash
# What sequential writes cost whose pieces are no stripes: the figures of streams.md.
#
#   docs/results/streams.sh [TURNS [SECONDS [GROUP...]]]
#
# Each turn measures whole stripes, the pieces, and the pieces without merging. A group is counts, shapes, late, mixed or
# exports (default: all). The last needs what `ashlar bench --via` needs; an export that is not to be had here is left
# out. ASHLAR names the program (default: target/release/ashlar). Figures are medians of the turns.
set -euo pipefail
TURNS=${1:-5} SECONDS_EACH=${2:-1} ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
shift $(($# < 2 ? $# : 2))
GROUPS_ASKED="${*:-counts shapes late mixed exports}"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# group|what|options|whole stripe|pieces, each perhaps with a start
ROWS="counts|null 4+2, one stream|-n 6 --null -d 32|256K|192K 200K 96K 36K 256K+4K
counts|memory 4+2, one stream|-n 6 -d 32|256K|192K 200K 96K 36K 256K+4K
counts|memory 4+2, one stream, depth 8|-n 6 -d 8|256K|192K 96K
counts|memory 4+2, 4 streams|-n 6 -d 32 --streams 4|256K|192K 96K
counts|memory 4+2, 16 streams|-n 6 -d 32 --streams 16|256K|192K 200K 36K
counts|memory 4+2, 4 streams, depth 8|-n 6 -d 8 --streams 4|256K|192K 96K 36K
shapes|null 8+2, one stream|-n 10 --null -d 32|512K|384K 200K
shapes|null 20+4, strips of 32K|-n 24 --null -d 32 --level n+m --parity 4 --strip-size 32K|640K|480K 200K
shapes|memory 8+2, one stream|-n 10 -d 32|512K|384K 200K
shapes|memory 20+4, strips of 32K|-n 24 -d 32 --level n+m --parity 4 --strip-size 32K|640K|480K 200K
late|late 4+2, one stream|-n 6 -d 32 --latency-us 80:15|256K|192K 96K 36K
late|late 4+2, one stream, depth 8|-n 6 -d 8 --latency-us 80:15|256K|192K 96K
late|late 4+2, 4 streams|-n 6 -d 32 --streams 4 --latency-us 80:15|256K|192K 96K
late|late 4+2, 16 streams|-n 6 -d 32 --streams 16 --latency-us 80:15|256K|192K 36K
mixed|memory 4+2, 70 % reads|-n 6 -d 32 --reads 70|256K|192K 96K
mixed|memory 4+2, 70 % writes, 4 streams|-n 6 -d 32 --reads 30 --streams 4|256K|192K 96K
mixed|late 4+2, 70 % reads|-n 6 -d 32 --reads 70 --latency-us 80:15|256K|192K 96K
mixed|late 4+2, 70 % writes, 4 streams|-n 6 -d 32 --reads 30 --streams 4 --latency-us 80:15|256K|192K 96K
exports|nbd|--via nbd -n 6 -d 16 --turns 1|256K|192K 96K
exports|nvme-tcp|--via nvme-tcp -n 6 -d 16 --turns 1|256K|192K 96K
exports|vhost-user|--via vhost-user -n 6 -d 16 --turns 1|256K|192K 96K
exports|fuse|--via fuse -n 6 -d 16 --turns 1|256K|192K 96K
exports|ublk|--via ublk -n 6 -d 16 --turns 1|256K|192K 96K"

measure() { # measure WHICH PIECE OPTION...: one line of figures
  local which=$1 bytes=${2%+*} start=0
  [[ $2 == *+* ]] && start=${2#*+}
  shift 2
  "$ASHLAR" bench --write --workers 1 --span 1G --seconds "$SECONDS_EACH" --json -b "$bytes" --start "$start" "$@" |
    jq -c --arg which "$which" --argjson kib "${bytes%K}" '
      if .via then {which: $which, rate: (.export.requests_per_second * $kib * 1024), p99: .export.us_p99,
                    cpu: (.export.cpu_ns_per_request / $kib), full: .export.full_stripe_percent, read: null}
      else {which: $which, rate: .bytes_per_second, p99: .latency.us_p99, cpu: (.cpu_seconds * 1e9 / .bytes * 1024),
            full: (.stripe_writes | .full * 100 / ([.full + .read_modify + .reconstruct, 1] | max)),
            read: .member_bytes_read_per_byte} end'
}

row() { # row WHAT WHOLE PIECE OPTION...
  local what=$1 whole=$2 piece=$3
  shift 3
  for _ in $(seq "$TURNS"); do
    measure whole "$whole" "$@" && measure merged "$piece" "$@" && measure apart "$piece" "$@" --merge-wait-us 0
  done >"$WORK/figures" 2>"$WORK/errors" || { echo "$what: $(head -1 "$WORK/errors")" >&2; return 0; }
  jq -rs --arg what "$what" --arg piece "$piece" '
    def middle: sort | if . == [] then 0 else .[(length - 1) / 2 | floor] end;
    def of($which; f): [.[] | select(.which == $which) | f];
    def ratios(f): [of("merged"; f), of("whole"; f)] | transpose | map(.[0] / .[1]);
    def rounded($by): . * $by | round / $by;
    [$what, $piece, (of("whole"; .rate) | middle / 1e9 | rounded(100)), (of("merged"; .rate) | middle / 1e9 | rounded(100)),
     (ratios(.rate) | "\(middle | rounded(100)) (\(min | rounded(100)) to \(max | rounded(100)))"),
     (ratios(.cpu) | 1 / middle | rounded(100)), (of("merged"; .full) | middle | rounded(10)),
     (of("apart"; .rate) | middle / 1e9 | rounded(100)),
     ([of("whole"; .p99), of("merged"; .p99), of("apart"; .p99)] | map(middle | round) | join(", "))]
    | "| " + (map(tostring) | join(" | ")) + " |"' "$WORK/figures"
}

echo "| members, load | pieces | whole, GB/s | merged, GB/s | ratio | of CPU | full % | apart, GB/s | p99 us: whole, merged, apart |"
echo "|---|---|---:|---:|---:|---:|---:|---:|---|"
while IFS='|' read -r group what options whole pieces; do
  [[ " $GROUPS_ASKED " == *" $group "* ]] || continue
  for policy in bitmap log; do
    [[ $options == *--null* && $policy == log ]] && continue
    for piece in $pieces; do
      # shellcheck disable=SC2086 # Several options.
      row "$what, \`$policy\`" "$whole" "$piece" --policy "$policy" $options </dev/null
    done
  done
done <<<"$ROWS"
