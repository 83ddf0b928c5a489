# Drives whose serials say little: namespaces of one subsystem and drives in a dock that shows one serial are
# devices of their own; drives that show other serials behind another adapter are accepted once.
load nvme_loop
mount -t configfs config /sys/kernel/config
TARGET=/sys/kernel/config/nvmet
mkdir $TARGET/ports/1
echo loop >$TARGET/ports/1/addr_trtype

plug() { # plug NAME SERIAL FILE...: a subsystem with these namespaces, connected
  local name=$1 subsystem=$TARGET/subsystems/$1 number=0 file
  mkdir "$subsystem"
  echo 1 >"$subsystem/attr_allow_any_host"
  echo "$2" >"$subsystem/attr_serial"
  shift 2
  for file in "$@"; do
    number=$((number + 1))
    mkdir "$subsystem/namespaces/$number"
    echo -n "$file" >"$subsystem/namespaces/$number/device_path"
    echo 1 >"$subsystem/namespaces/$number/enable"
  done
  ln -s "$subsystem" "$TARGET/ports/1/subsystems/$name"
  echo "transport=loop,nqn=$name" >/dev/nvme-fabrics
  until_so 60 test -b "$(namespace "$name" $number)"
}

namespace() { # namespace NAME NUMBER: its path
  local controller
  for controller in /sys/class/nvme/nvme*; do
    if test "$(cat "$controller/subsysnqn")" = "$1"; then echo "/dev/${controller##*/}n$2"; fi
  done
}

pull() { # pull NAME
  local controller namespace
  for controller in /sys/class/nvme/nvme*; do
    if test "$(cat "$controller/subsysnqn")" = "$1"; then echo 1 >"$controller/delete_controller"; fi
  done
  rm "$TARGET/ports/1/subsystems/$1"
  for namespace in "$TARGET/subsystems/$1"/namespaces/*; do rmdir "$namespace"; done
  rmdir "$TARGET/subsystems/$1"
}

dock() { # dock LETTER...: the drives, each in a subsystem whose serial begins with its letter
  local number=0 letter
  DRIVES=()
  for letter in "$@"; do
    plug "drive$number" "$letter$number" /mnt/m$number
    DRIVES+=("$(namespace drive$number 1)")
    number=$((number + 1))
  done
}

undock() {
  for number in 0 1 2 3; do pull drive$number; done
}

members 4 96M
serve --nbd unix:/mnt/nbd.sock

say "four namespaces of one subsystem"
plug jbof JBOF1 /mnt/m0 /mnt/m1 /mnt/m2 /mnt/m3
"$ASHLAR" create tank --level raid6 "$(namespace jbof 1)" "$(namespace jbof 2)" "$(namespace jbof 3)" \
  "$(namespace jbof 4)"
"$ASHLAR" stop tank
pull jbof

say "four drives in a dock that shows one serial"
for number in 0 1 2 3; do
  rm m$number
  truncate -s 96M m$number
  plug same$number DD20160323 /mnt/m$number
done
"$ASHLAR" create tank --level raid6 "$(namespace same0 1)" "$(namespace same1 1)" "$(namespace same2 1)" \
  "$(namespace same3 1)"
"$ASHLAR" stop tank
for number in 0 1 2 3; do pull same$number; rm m$number; done

say "all drives show another serial: refused until it is accepted, once"
members 4 96M
dock A A A A
"$ASHLAR" create tank --level raid6 "${DRIVES[@]}"
"$ASHLAR" stop tank
undock
dock B B B B
refused "assemble --accept-serials" assemble "${DRIVES[@]}"
"$ASHLAR" assemble --accept-serials "${DRIVES[@]}"
"$ASHLAR" stop tank
"$ASHLAR" assemble "${DRIVES[@]}" 2>&1 | tee /mnt/started
if grep -q degraded /mnt/started; then false; fi
"$ASHLAR" stop tank

say "one drive of them does: taken back once"
undock
dock B B B C
"$ASHLAR" assemble "${DRIVES[@]}" 2>&1 | tee /mnt/started
grep -q "degraded: slot 3 out" /mnt/started
"$ASHLAR" re-add tank "${DRIVES[3]}" --wait
"$ASHLAR" stop tank
"$ASHLAR" assemble "${DRIVES[@]}" 2>&1 | tee /mnt/started
if grep -q degraded /mnt/started; then false; fi
scrub_finds_nothing
end_daemon
