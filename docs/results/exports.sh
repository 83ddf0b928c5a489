#!/usr/bin/env bash
# What exports cost and how they compare with others that serve memory, all in turns: the figures of exports.md.
#
#   docs/results/exports.sh [TURNS [SECONDS]]
#
# Needs root, /dev/fuse and losetup; nbdkit, qemu-nbd and qemu-storage-daemon if they are to be compared. Ratios are of
# one turn each, and their medians are printed. With 5 turns of one second it takes 10 minutes on a quiet machine.
# ASHLAR names the program (default: target/release/ashlar). A measurement that fails is named and left out.
set -euo pipefail
TURNS=${1:-5} SECONDS_EACH=${2:-1} ASHLAR=$(realpath "${ASHLAR:-target/release/ashlar}")
FOLDER=$(mktemp -d)
DAEMON= FAILED=0
trap '[ -z "$DAEMON" ] || { kill "$DAEMON"; wait "$DAEMON" || true; }; rm -rf "$FOLDER"' EXIT

measure() { # measure WHAT VIA BENCH-OPTION...
  local what=$1 via=$2
  shift 2
  if ! "$ASHLAR" bench --via "$via" --turns "$TURNS" --seconds "$SECONDS_EACH" --json "$@" >"$FOLDER/result"; then
    echo "$via, $what: failed" >&2
    FAILED=1
    return 0
  fi
  jq -r --arg what "$what" '
    def rounded: . * 100 | round / 100;
    (if .peers == [] then [{name: "-", requests_per_second: 0, us_p50: 0, export_over_peer: 0, each_turn: []}]
     else .peers end)[] as $peer
    | [.via, $what, (.export.requests_per_second | floor), (.export.us_p50 | floor), $peer.name,
       ($peer.requests_per_second | floor), ($peer.us_p50 | floor), ($peer.export_over_peer | rounded),
       ($peer.each_turn | if . == [] then "-" else "\(min | rounded) to \(max | rounded)" end),
       (.export.beyond_engine_ns_per_request / 10 | round / 100), (.export.look_ns_per_request / 10 | round / 100),
       (.export.system_calls_per_request | rounded), (.export.sleeps_per_request | rounded),
       (.export.looks_of_use_per_request | rounded), (.export.hops_per_request | rounded)]
    | "| " + (map(tostring) | join(" | ")) + " |"' "$FOLDER/result"
}

# The CPU time that a daemon takes while nobody asks for anything.
idle() {
  local config=$FOLDER/idle.toml before after
  printf '[nvme_tcp]\nlisten = ["127.0.0.1:44209"]\ntrusted_network = true\nstate = "%s/nvme"\n' "$FOLDER" >"$config"
  export ASHLAR_SOCKET=$FOLDER/control.sock
  "$ASHLAR" serve --config "$config" --nbd "unix:$FOLDER/nbd.sock" --fuse "$FOLDER/volumes" \
    --vhost-user "$FOLDER/vhost" --metrics 127.0.0.1:44210 >"$FOLDER/log" 2>&1 &
  DAEMON=$!
  until "$ASHLAR" status >/dev/null 2>&1; do kill -0 "$DAEMON"; done
  "$ASHLAR" create idle --level 6 memory:256M memory:256M memory:256M memory:256M >/dev/null
  "$ASHLAR" attach --file idle >/dev/null
  sleep 5
  before=$(cat /proc/"$DAEMON"/task/*/schedstat | awk '{ nanos += $1 } END { printf "%.0f", nanos }')
  sleep 30
  after=$(cat /proc/"$DAEMON"/task/*/schedstat | awk '{ nanos += $1 } END { printf "%.0f", nanos }')
  echo "idle: $(awk -v nanos=$((after - before)) 'BEGIN { printf "%.3f", nanos / 30e9 * 100 }') % of a core"
  "$ASHLAR" detach idle >/dev/null
  kill "$DAEMON"
  wait "$DAEMON" || true
  DAEMON=
}

uptime
columns="export | load | /s | us | peer | /s | us | ratio | turns | us CPU beyond the engine | us of that in looks"
echo "| $columns | system calls | sleeps | looks of use | hops |"
echo "|---|---|---:|---:|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|"
for depth in 32 1; do
  measure "4 KiB random reads, depth $depth" loop --random --depth $depth
  measure "4 KiB random writes, depth $depth" loop --random --depth $depth --write
  measure "4 KiB random reads, depth $depth" fuse --random --depth $depth
  measure "4 KiB random reads, depth $depth" nbd --random --depth $depth
  measure "4 KiB random writes, depth $depth" nbd --random --depth $depth --write
  measure "4 KiB random reads, depth $depth" vhost-user --random --depth $depth
  measure "4 KiB random writes, depth $depth" vhost-user --random --depth $depth --write
  measure "4 KiB random reads, depth $depth" nvme-tcp --random --depth $depth
done
measure "1 MiB reads, depth 8" loop --bytes 1M --depth 8
measure "1 MiB writes, depth 8" loop --bytes 1M --depth 8 --write
measure "1 MiB reads, depth 8" fuse --bytes 1M --depth 8
idle
uptime
exit $FAILED
