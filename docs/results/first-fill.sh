#!/usr/bin/env bash
# First writes against later ones, over NBD, on ten sparse files: what becomes of a write that has to wait until a start
# would find its stripe, and of one that need not.
#
#   docs/results/first-fill.sh log|bitmap|none [FOLDER] [SOCKET_FOLDER]
#
# FOLDER (default: a temporary one) gets ten files, which are removed again. SOCKET_FOLDER (default: FOLDER) gets the
# control socket: on tmpfs, for example in /dev/shm, the daemon has a kept map. Each of the three passes writes the same
# places: SIZE_MIB (default 1024) in pieces of 1 MiB at depth 8, as much in pieces of 256 KiB at depth 4, a sixteenth of
# it at random in 4 KiB at depth 32. ALLOCATE=yes gives the files their blocks before and writes them once, so that the
# first pass waits neither for the file system nor for the disk below it.
set -euo pipefail
POLICY=${1:?which policy} ASHLAR=${ASHLAR:-target/release/ashlar} SIZE=${SIZE_MIB:-1024}
MEMBER=$((SIZE * 3 / 8 + 96))M
FOLDER=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/first-fill.XXXXXX")
SOCKETS=$(mktemp -d "${3:-$FOLDER}/first-fill.XXXXXX")
export ASHLAR_SOCKET=$SOCKETS/control.sock
DAEMON=
trap '[ -n "$DAEMON" ] && kill "$DAEMON" && wait "$DAEMON"; rm -rf "$FOLDER" "$SOCKETS"' EXIT
for member in 0 1 2 3 4 5 6 7 8 9; do
  if [ "${ALLOCATE:-no}" = yes ]; then
    head -c $MEMBER /dev/zero >"$FOLDER/m$member"
    # A virtual disk may be slower where a block is written for the first time past the page cache.
    dd if=/dev/zero of="$FOLDER/m$member" bs=1M count=${MEMBER%M} oflag=direct conv=notrunc status=none
  else
    truncate -s $MEMBER "$FOLDER/m$member"
  fi
done
sync
"$ASHLAR" serve --nbd "unix:$FOLDER/nbd.sock" --workers 2 >"$FOLDER/log" 2>&1 &
DAEMON=$!
until "$ASHLAR" status >/dev/null 2>&1; do kill -0 "$DAEMON"; done
"$ASHLAR" create a --level 6 --raid-devices 10 --policy "$POLICY" "$FOLDER"/m* >/dev/null

load() { # load WHAT UNIT FIO-OPTION...
  local what=$1 unit=$2
  shift 2
  fio --name=load --ioengine=nbd --uri="nbd+unix:///a?socket=$FOLDER/nbd.sock" --output-format=json \
    --output="$FOLDER/result" "$@" >/dev/null
  jq -r --arg what "$what" --arg unit "$unit" \
    '.jobs[0].write | "\($what): \(if $unit == "MB/s" then .bw_bytes / 1e6 else .iops end | floor) \($unit)"' "$FOLDER/result"
}
# The daemon touches its buffers for the first time here.
load "elsewhere, 1 MiB x 8" MB/s --rw=write --bs=1m --iodepth=8 --size=256m --offset=$((3 * SIZE))m
for pass in first second third; do
  load "$pass, 1 MiB x 8" MB/s --rw=write --bs=1m --iodepth=8 --size=${SIZE}m
  load "$pass, 256 KiB x 4" MB/s --rw=write --bs=256k --iodepth=4 --size=${SIZE}m --offset=${SIZE}m
  load "$pass, random 4 KiB x 32" IOPS --rw=randwrite --bs=4k --iodepth=32 --size=${SIZE}m --offset=$((2 * SIZE))m \
    --io_size=$((SIZE / 16))m --randseed=7
done
