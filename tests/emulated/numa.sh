# Two NUMA nodes: processors 0 to 3 and three NVMe drives on node 0, 4 to 7 and three on node 1. Where workers
# run, where their buffers lie, and which processors the interrupts of their drives reach.
load nvme ublk_drv

disk() { # disk SERIAL: its device
  local serial
  serial=$(grep -l "^$1 *$" /sys/block/nvme*/device/serial)
  basename "${serial%/device/serial}"
}

serve_placed() { # serve_placed ARGUMENT...: the daemon, with workers that are bound
  "$ASHLAR" serve --pool 256MiB "$@" >>/mnt/daemon.log 2>&1 &
  DAEMON=$!
  until_so 240 "$ASHLAR" status
}

cores_of_workers() { # what the kernel lets each run on, in order
  local task name
  for task in /proc/"$DAEMON"/task/*; do
    { read -r name <"$task/comm"; } 2>/dev/null || continue # It has ended meanwhile.
    case $name in ashlar-worker-*) echo "${name##*-} $(awk '/^Cpus_allowed_list:/ { print $2 }' "$task/status")" ;; esac
  done | sort -n | awk '{ printf "%s%s", (NR > 1 ? " " : ""), $2 }'
}

workers_are_on() { # workers_are_on "CORE..."
  say "workers on $(cores_of_workers)"
  test "$(cores_of_workers)" = "$1"
}

pages() { # pages NODE: of the mappings that are to be on that node, how many are there and how many elsewhere
  awk -v node="$1" '$2 == "prefer:" node {
    for (field = 3; field <= NF; field++)
      if ($field ~ /^N[0-9]+=/) { split($field, pair, "="); count[pair[1] == "N" node] += pair[2] }
  } END { print count[1] + 0, count[0] + 0 }' /proc/"$DAEMON"/numa_maps
}

buffers_are_on() { # buffers_are_on NODE
  say "pages of buffers on node $1, and elsewhere: $(pages "$1")"
  case $(pages "$1") in 0\ * | *\ [1-9]*) return 1 ;; esac
}

pools_are_beside_workers() { # each pool of a worker is on the worker's node
  "$ASHLAR" status --json | jq -ce '(.workers | map({key: "worker\(.worker)", value: .node}) | from_entries) as $nodes
    | [.pools[] | select(.name | startswith("worker")) | {name, node, wanted: $nodes[.name | split(".")[0]]}]
    | (length > 0) and all(.node != null and .node == .wanted)'
}

interrupts() { # interrupts DISK...: of their queues for reads and writes, on each processor
  local names=" ${*//n1/} "
  awk -v names="$names" 'match($NF, /^nvme[0-9]+q[1-9]/) && index(names, " " substr($NF, 1, index($NF, "q") - 1) " ") {
    for (cpu = 0; cpu < 8; cpu++) count[cpu] += $(cpu + 2)
  } END { for (cpu = 0; cpu < 8; cpu++) printf "%d ", count[cpu] }' /proc/interrupts
}

volume_of() { # volume_of DEVICE: it is written and read while the interrupts of DISKS are counted, in COUNTED
  local before after cpu
  head -c 16M /dev/urandom >/mnt/data
  before=($(interrupts $DISKS))
  dd if=/mnt/data of="$1" bs=64k oflag=direct conv=fsync status=none
  dd if="$1" bs=64k count=16M iflag=direct,count_bytes status=none | cmp - /mnt/data
  after=($(interrupts $DISKS))
  COUNTED=()
  for cpu in {0..7}; do COUNTED+=($((after[cpu] - before[cpu]))); done
  say "interrupts of the drives on each processor: ${COUNTED[*]}"
}

reached() { # reached CPU...: all of these were interrupted
  local cpu
  for cpu in "$@"; do test "${COUNTED[cpu]}" -gt 0; done
}

reached_only() { # reached_only CPU...: no other was
  local cpu
  for cpu in {0..7}; do
    case " $* " in *" $cpu "*) ;; *) test "${COUNTED[cpu]}" = 0 ;; esac
  done
}

say "the machine is what it is meant to be"
test "$(cat /sys/devices/system/node/node0/cpulist) $(cat /sys/devices/system/node/node1/cpulist)" = "0-3 4-7"
until_so 60 disk n1d2
NEAR="$(disk n0d0) $(disk n0d1) $(disk n0d2)"
FAR="$(disk n1d0) $(disk n1d1) $(disk n1d2)"
for disk in $NEAR; do test "$(cat "/sys/block/$disk/device/numa_node")" = 0; done
for disk in $FAR; do test "$(cat "/sys/block/$disk/device/numa_node")" = 1; done
# A queue for each processor, and one for the administrator.
for disk in $NEAR $FAR; do test "$(grep -c " ${disk%n1}q[0-9]*$" /proc/interrupts)" = 9; done
far_drives=$(printf '/dev/%s ' $FAR)

say "no array, and nothing said: a worker on each core"
serve_placed
workers_are_on "0 1 2 3 4 5 6 7"
"$ASHLAR" create far --level 5 $far_drives
end_daemon
far_members=$(printf '/dev/%sp1 ' $FAR)

say "drives on node 1, and nothing said"
serve_placed $far_members
workers_are_on "4 5 6 7"
grep 'workers on cores 4, 5, 6, 7: the drives are on NUMA node 1$' /mnt/daemon.log
"$ASHLAR" status --limits | grep '^ *0 *4 (node 1) '
test "$("$ASHLAR" status far --members | grep -c 'node 1')" = 3
pools_are_beside_workers
DISKS=$FAR volume_of "$("$ASHLAR" attach far)"
reached_only 4 5 6 7
buffers_are_on 1
test "$(pages 0)" = "0 0"
end_daemon

say "two of the workers, one on each node, by name"
serve_placed --workers 1,6 $far_members
workers_are_on "1 6"
pools_are_beside_workers
DISKS=$FAR volume_of "$("$ASHLAR" attach far)"
reached 1 6
# Flushes as well: the kernel's threads that carry them out have the affinity of their worker.
reached_only 1 6
buffers_are_on 0
buffers_are_on 1
end_daemon

say "a number of workers: those near the drives come first"
serve_placed --workers 5 $far_members
workers_are_on "4 5 6 7 0"
end_daemon

say "not bound"
serve_placed --no-pin --workers 2 $far_members
workers_are_on "0-7 0-7"
test "$(pages 0) $(pages 1)" = "0 0 0 0"
end_daemon
