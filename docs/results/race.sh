#!/usr/bin/env bash
# Ashlar and Linux md on one core each, in turns, on members in memory: the figures of race.md.
#
#   docs/results/race.sh FOLDER [TURNS [SECONDS]]
#
# md runs in Linux for user mode, which FOLDER holds or gets (user-mode-linux.sh, with what it needs), its client is fio.
# Ashlar runs in the process of `ashlar bench`; for the rebuild in a daemon. Both are bound to the same core. A rate is
# requests a second, of a rebuild bytes a second. ASHLAR names the program (default: target/release/ashlar).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=${1:?a folder for the kernel} TURNS=${2:-5} SECONDS_EACH=${3:-2}
export ASHLAR
ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
WORK=$(mktemp -d)
DAEMON=
trap '[ -z "$DAEMON" ] || { kill "$DAEMON"; wait "$DAEMON" || true; }; rm -rf "$WORK"' EXIT

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

rebuild() { # one member of 1 GiB, half of it written
  local began bytes member
  export ASHLAR_SOCKET=$WORK/control.sock
  taskset -c 0 "$ASHLAR" serve --no-pin --workers 1 --nbd "unix:$WORK/nbd.sock" >"$WORK/log" 2>&1 &
  DAEMON=$!
  until "$ASHLAR" status >/dev/null 2>&1; do kill -0 "$DAEMON"; sleep 0.1; done
  # shellcheck disable=SC2046 # Six words.
  "$ASHLAR" create tank --level 6 $(yes memory:1G | head -6) >/dev/null
  member=$("$ASHLAR" status --json | jq '.arrays[0].volume_bytes / 4')
  head -c 2G /dev/urandom | nbdcopy - "nbd+unix:///tank?socket=$WORK/nbd.sock"
  bytes=$((2 * 1024 * 1024 * 1024 / 4))
  [ "$bytes" -lt "${member%.*}" ]
  "$ASHLAR" fail tank 1 >/dev/null
  began=$(date +%s%N)
  "$ASHLAR" replace tank 1 memory:1G --wait >/dev/null
  echo "log|rebuild|$((bytes * 1000 / (($(date +%s%N) - began) / 1000000)))"
  kill "$DAEMON"
  wait "$DAEMON" || true
  DAEMON=
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
