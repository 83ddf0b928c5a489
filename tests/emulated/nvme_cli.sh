# nvme-cli against the daemon: discovery, identities, logs, features, data, and reservations of two hosts.
load nvme_tcp crc32c_generic
members 6 120M
NQN=nqn.2024-01.example:store
printf '[nvme_tcp]\nnqn = "%s"\nlisten = ["127.0.0.1:4420"]\ntrusted_network = true\nstate = "/mnt/state"\n' \
  $NQN >/mnt/nvme.toml
serve --config /mnt/nvme.toml
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
uuid=$("$ASHLAR" status --json | jq -r '.arrays[0].uuid')
bytes=$("$ASHLAR" status --json | jq '.arrays[0].volume_bytes')
at="-t tcp -a 127.0.0.1 -s 4420"

host() { # host DIGIT: options of a host of this number
  echo "--hostnqn=nqn.2014-08.org.nvmexpress:uuid:$1$1$1$1$1$1$1$1-2222-3333-4444-555555555555" \
    "--hostid=$1$1$1$1$1$1$1$1-2222-3333-4444-555555555555"
}

appeared() { # one namespace, with its controller
  device=$(echo /dev/nvme[0-9]*n1) controller=/dev/$(ls /sys/class/nvme)
  test -b "$device"
}

connect() { # connect DIGIT OPTION...: as this host
  local digit=$1
  shift
  nvme connect $at -n $NQN $(host "$digit") "$@"
  until_so 240 appeared
}

gone() {
  test -z "$(ls /sys/class/nvme)"
}

disconnect() {
  nvme disconnect -n $NQN
  until_so 240 gone
}

holds() { # holds FILTER COMMAND...: whether its JSON is as the FILTER says
  local filter=$1
  shift
  "$@" -o json >/mnt/json
  jq -e "$filter" /mnt/json >/dev/null || { echo "FAILED: $filter in $*:"; cat /mnt/json; return 1; }
}

fails() { # fails WORDS COMMAND...: with these words
  local words=$1
  shift
  if "$@" >/mnt/refusal 2>&1; then
    echo "FAILED: it went well: $*"
    return 1
  fi
  grep -qi "$words" /mnt/refusal || { cat /mnt/refusal; return 1; }
}

say "discover, and connect to all that is found"
holds ".records | length == 1 and .[0].subnqn == \"$NQN\" and .[0].traddr == \"127.0.0.1\" and
  .[0].trsvcid == \"4420\" and .[0].subtype == \"nvme subsystem\"" nvme discover $at $(host 1)
nvme connect-all $at $(host 1)
until_so 240 appeared
holds ".Devices | length == 1 and .[0].DevicePath == \"$device\" and .[0].PhysicalSize == $bytes and
  .[0].SectorSize == 4096" nvme list
nvme list-subsys
disconnect
fails "nvme-fabrics" nvme connect $at -n nqn.2024-01.example:other $(host 1)
gone

say "the controller and the namespace"
connect 1 --hdr-digest --data-digest --nr-io-queues=2
holds ".mn | startswith(\"Ashlar\")" nvme id-ctrl $controller
holds ".cntrltype == 1 and .subnqn == \"$NQN\" and .nn > 0 and .kas > 0" nvme id-ctrl $controller
holds ".nsze == $((bytes / 4096)) and .lbafs[0].ds == 12" nvme id-ns $device
nvme ns-descs $device | tee /mnt/descriptors
grep -q "$uuid" /mnt/descriptors
nvme list-ns $controller | grep "0x1"
nvme list-ctrl $controller
nvme nvm-id-ctrl $controller
nvme nvm-id-ns $device
nvme cmdset-ind-id-ns $device -n 1
for property in 0 8 0x14 0x1c; do
  nvme get-property $controller --offset=$property
done
holds ".critical_warning == 0" nvme smart-log $controller
nvme error-log $controller >/dev/null
nvme fw-log $controller
nvme changed-ns-list-log $controller
nvme effects-log $controller >/dev/null
nvme ana-log $controller | grep -i optimized
nvme supported-log-pages $controller
for feature in 1 2 4 5 6 7 0xa 0xb 0xf 0x16 0x81 0x82 0x83; do
  nvme get-feature $controller -n 1 -f $feature -H
done
fails "invalid" nvme get-feature $controller -f 0x10
fails "invalid" nvme format $device --force
nvme ns-rescan $controller

say "data"
head -c 65536 /dev/urandom >/mnt/data
nvme write $device -s 16 -c 15 -z 65536 -d /mnt/data
nvme read $device -s 16 -c 15 -z 65536 -d /mnt/read
cmp /mnt/data /mnt/read
nvme compare $device -s 16 -c 15 -z 65536 -d /mnt/data
fails "compare" nvme compare $device -s 17 -c 14 -z 61440 -d /mnt/data
nvme flush $device -n 1
nvme write-zeroes $device -n 1 -s 16 -c 7
nvme read $device -s 16 -c 15 -z 65536 -d /mnt/read
cmp <(head -c 32768 /dev/zero; tail -c 32768 /mnt/data) /mnt/read
nvme dsm $device -n 1 --ad --slbs=16 --blocks=16
nvme read $device -s 16 -c 15 -z 65536 -d /mnt/read
cmp <(head -c 65536 /dev/zero) /mnt/read
fails "range" nvme read $device -s $((bytes / 4096)) -c 0 -z 4096 -d /mnt/read
fails "invalid" nvme verify $device -s 0 -c 0
fails "invalid" nvme write-uncor $device -s 0 -c 0
nvme reset $controller
until_so 240 grep -q live /sys/class/nvme/"${controller#/dev/}"/state
nvme read $device -s 0 -c 0 -z 4096 -d /mnt/read

say "a host reserves, another is kept out and takes over"
nvme resv-register $device -n 1 --nrkey=0x11 --rrega=0 --cptpl=3
nvme resv-acquire $device -n 1 --crkey=0x11 --rtype=1 --racqa=0
holds ".regctl == 1 and .rtype == 1" nvme resv-report $device -n 1 --eds
disconnect
connect 2
fails "reservation conflict" nvme write $device -s 0 -c 0 -z 4096 -d /mnt/data
nvme read $device -s 0 -c 0 -z 4096 -d /mnt/read
fails "reservation conflict" nvme resv-acquire $device -n 1 --crkey=0x22 --rtype=1 --racqa=0
nvme resv-register $device -n 1 --nrkey=0x22 --rrega=0
nvme resv-acquire $device -n 1 --crkey=0x22 --prkey=0x11 --rtype=3 --racqa=1
holds ".regctl == 1 and .rtype == 3 and .regctlext[0].rkey == 34" nvme resv-report $device -n 1 --eds
nvme write $device -s 0 -c 0 -z 4096 -d /mnt/data
nvme resv-release $device -n 1 --crkey=0x22 --rtype=3 --rrela=0
holds ".regctl == 1 and .rtype == 0" nvme resv-report $device -n 1 --eds
nvme resv-register $device -n 1 --crkey=0x22 --rrega=1
holds ".regctl == 0" nvme resv-report $device -n 1 --eds

say "the end"
nvme disconnect-all
until_so 240 gone
end_daemon
