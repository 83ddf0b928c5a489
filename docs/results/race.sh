#!/usr/bin/env bash
# Ashlar and Linux md on one core each, in turns, on members in memory: the figures of race.md.
#
#   docs/results/race.sh FOLDER [TURNS [SECONDS]]
#
# md runs in Linux for user mode, which FOLDER holds or gets (user-mode-linux.sh, with what it needs), its client is fio.
# Ashlar runs in the process of `ashlar bench`. Both are bound to the same core. A rate is requests a second, of a
# rebuild bytes a second. ASHLAR names the program (default: target/release/ashlar).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=${1:?a folder for the kernel} TURNS=${2:-5} SECONDS_EACH=${3:-2}
export ASHLAR
ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

LOADS="random 4 KiB reads|-b 4K -d 32 --random
random 4 KiB writes|-b 4K -d 32 --random --write
full-stripe writes|-b 256K -d 32 --write
1 MiB reads|-b 1M -d 8
random 4 KiB reads, one out|-b 4K -d 32 --random --lost 1
1 MiB reads, one out|-b 1M -d 8 --lost 1
1 MiB reads, two out|-b 1M -d 8 --lost 2"

bench() { # bench POLICY: each load once
  local load options
  while IFS='|' read -r load options; do
    # shellcheck disable=SC2086 # Several options.
    taskset -c 0 "$ASHLAR" bench -n 6 --workers 1 --policy "$1" --seconds "$SECONDS_EACH" --json $options </dev/null |
      jq -r --arg load "$load" --arg policy "$1" '"\($policy)|\($load)|\(.requests_per_second | floor)"'
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
  [inputs | split("|") | {who: .[0], load: .[1], rate: (.[2] | tonumber)}] as $all
  | def of($who; $load): [$all[] | select(.who == $who and .load == $load).rate];
  [$all[] | select(.who == "md").load] | unique_by(.)[] as $load
  | of("md"; $load) as $md | of("log"; $load) as $log | of("bitmap"; $load) as $bitmap
  | [$load, ($md | middle), ($log | middle), ($bitmap | if . == [] then "-" else middle end),
     (ratios($log; $md) | told), (ratios($bitmap; $md) | told)]
  | "| " + (map(tostring) | join(" | ")) + " |"' "$WORK/figures"
