# The kernel's host and the daemon prove themselves to each other by DH-HMAC-CHAP, by one group after the
# other; a host with another secret stays out.
load nvme_tcp
HOST=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
NQN=nqn.2024-01.example:store
members 6 120M

secret() { # secret SEED: 32 bytes that depend on it, as a secret
  python3 -c 'import base64, hashlib, sys, zlib
key = hashlib.sha256(sys.argv[1].encode()).digest()
print("DHHC-1:01:" + base64.b64encode(key + zlib.crc32(key).to_bytes(4, "little")).decode() + ":")' "$1"
}

serve_from() { # serve_from GROUP: the weakest group
  cat >/mnt/nvme.toml <<END
[nvme_tcp]
nqn = "$NQN"
listen = ["127.0.0.1:4420"]
trusted_network = true
state = "/mnt/state"
[[nvme_tcp.host]]
nqn = "$HOST"
secret = "/mnt/host.secret"
controller_secret = "/mnt/store.secret"
least_dh_group = "$1"
END
  serve --config /mnt/nvme.toml ${2-}
}

connect() { # connect HOST_SECRET STORE_SECRET
  echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$NQN,hostnqn=$HOST,hostid=11111111-2222-3333-4444-555555555555,dhchap_secret=$1,dhchap_ctrl_secret=$2" \
    >/dev/nvme-fabrics
}

umask 077
secret host >/mnt/host.secret
secret store >/mnt/store.secret
serve_from none
"$ASHLAR" create tank --level raid6 --strip-size 16KiB m0 m1 m2 m3 m4 m5
for group in $GROUPS_WANTED; do
  end_daemon
  serve_from "$group" "m0 m1 m2 m3 m4 m5"
  say "proofs by $group, or the weakest above it"
  connect "$(secret host)" "$(secret store)"
  until_so 240 test -b /dev/nvme0n1
  test "$(cat /sys/class/nvme/nvme0/state)" = live
  # Whatever is weaker than the weakest of them is not asked for.
  dmesg | grep "authenticated with hash" | tail -1 | grep "dhgroup ${group/none/ffdhe2048}"
  dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct status=none
  echo 1 >/sys/class/nvme/nvme0/delete_controller
  until_so 240 test ! -e /sys/class/nvme/nvme0
done
say "other secrets, on either side, are none"
for pair in "other store" "host other"; do
  set -- $pair
  if connect "$(secret "$1")" "$(secret "$2")" 2>/mnt/refusal; then
    echo "FAILED: connected with $pair"
    false
  fi
done
test ! -e /sys/class/nvme/nvme0
end_daemon
