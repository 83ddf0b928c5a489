# The daemon is killed under a file system on NVMe/TCP and verified load, KILLS times. The kernel's host
# connects again by itself. Nobody gets an error, and everything is there.
load nvme_tcp xfs
ip link set lo up
members 6 120M
NQN=nqn.2024-01.example:store
printf '[nvme_tcp]\nnqn = "%s"\nlisten = ["127.0.0.1:4420"]\ntrusted_network = true\nstate = "/mnt/state"\n' \
  $NQN >/mnt/nvme.toml
serve --config /mnt/nvme.toml
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
# Without end, and a second between two attempts.
echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$NQN,ctrl_loss_tmo=-1,reconnect_delay=1,keep_alive_tmo=30" \
  >/dev/nvme-fabrics
until_so 240 test -b /dev/nvme0n1
begin_file_system /dev/nvme0n1

connected() { # whether the host has found this daemon
  test "$(cat /sys/class/nvme/nvme0/state)" = live &&
    test "$("$ASHLAR" status --json | jq '[.exports[] | select(.protocol | startswith("nvme")) | .clients] | add')" -ge 1
}

succeed() {
  serve --config /mnt/nvme.toml m0 m1 m2 m3 m4 m5
  until_so 240 connected
}

kill_again_and_again succeed
tell_load_to_end "I/O error, dev"
sync
# Once more: what the last call of sync promised is read from the members.
kill_daemon
succeed
end_file_system /dev/nvme0n1
echo 1 >/sys/class/nvme/nvme0/delete_controller
scrub_finds_nothing
end_daemon
