#!/usr/bin/env bash
# Ashlar and Linux md on one core each, in turns, on members in memory: the figures of race.md.
#
#   docs/results/race.sh FOLDER [TURNS [SECONDS]]
#
# md runs in Linux for user mode, which FOLDER holds or gets (user-mode-linux.sh, with what it needs), its client is fio.
# Ashlar runs in the process of `ashlar bench`. Both are bound to the same core. A rate is requests a second, of a
# rebuild bytes a second. A second table has medians of percentiles. ASHLAR names the program (default: target/release/ashlar).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=${1:?a folder for the kernel} TURNS=${2:-5} SECONDS_EACH=${3:-2}
export ASHLAR
ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

LOADS="random 4 KiB reads|-b 4K -d 32 --random
random 4 KiB reads, depth 1|-b 4K -d 1 --random
random 4 KiB writes, depth 1|-b 4K -d 1 --random --write
random 4 KiB writes|-b 4K -d 32 --random --write
full-stripe writes|-b 256K -d 32 --write
1 MiB reads|-b 1M -d 8
random 4 KiB reads, one out|-b 4K -d 32 --random --lost 1
random 4 KiB writes, one out|-b 4K -d 32 --random --write --lost 1
random 4 KiB reads, two out|-b 4K -d 32 --random --lost 2
random 4 KiB writes, two out|-b 4K -d 32 --random --write --lost 2
1 MiB reads, one out|-b 1M -d 8 --lost 1
1 MiB reads, two out|-b 1M -d 8 --lost 2"

bench() { # bench POLICY: each load once; rates, and in us percentiles of their times
  local load options
  while IFS='|' read -r load options; do
    # shellcheck disable=SC2086 # Several options.
    taskset -c 0 "$ASHLAR" bench -n 6 --workers 1 --policy "$1" --seconds "$SECONDS_EACH" --json $options </dev/null |
      jq -r --arg load "$load" --arg policy "$1" '[.requests_per_second, (.latency | .us_p50, .us_p99, .us_p999)]
        | map(. * 10 | round / 10 | tostring) | "\($policy)|\($load)|" + join("|")'
  done <<<"$LOADS"
}

rebuild() { # 512 MiB of one member
  taskset -c 0 "$ASHLAR" bench -n 6 --workers 1 --job rebuild --span 2G --json </dev/null |
    jq -r '"log|rebuild|\(.member_bytes_per_second | floor)"'
}

for _ in $(seq "$TURNS"); do
  "$HERE/user-mode-linux.sh" "$FOLDER" md "$SECONDS_EACH" 2>/dev/null | grep '^md|'
  bench log
  bench bitmap
  rebuild
done | tee "$WORK/figures" >&2
echo "| load | md | Ashlar, log | Ashlar, bitmap | log over md | bitmap over md |"
echo "|---|---:|---:|---:|---:|---:|"
jq -rRn '
  def middle: sort | .[(length - 1) / 2 | floor];
  def ratios($one; $other): [range([$one, $other | length] | min) | $one[.] / $other[.] * 100 | round / 100];
  def told: if . == [] then "-" else "\(middle) (\(min) to \(max))" end;
  def times: [1, 2, 3] as $columns | if . == [] then "-" else [$columns[] as $at | map(.[$at]) | middle] | join(", ") end;
  [inputs | split("|") | {who: .[0], load: .[1], figures: (.[2:] | map(tonumber))}] as $all
  | def of($who; $load): [$all[] | select(.who == $who and .load == $load).figures];
  [$all[] | select(.who == "md").load] | unique_by(.) as $loads
  | def row: "| " + (map(tostring) | join(" | ")) + " |";
  ($loads[] as $load
    | [("md", "log", "bitmap") as $who | of($who; $load) | map(.[0])] as [$md, $log, $bitmap]
    | [$load, ($md | middle), ($log | middle), ($bitmap | if . == [] then "-" else middle end),
       (ratios($log; $md) | told), (ratios($bitmap; $md) | told)] | row),
  "", "| p50, p99, p99.9 in us | md | Ashlar, log | Ashlar, bitmap |", "|---|---:|---:|---:|",
  ($loads[] | select(. != "rebuild") as $load | [$load, (("md", "log", "bitmap") as $who | of($who; $load) | times)] | row)
  ' "$WORK/figures"
