# One word for each thing a developer does. `just` is optional: each line works by hand.

# format, lints, style, the tests that find most
check:
    ./check

# everything, as CI runs it
full:
    ./check --full

# all tests of one crate: just test layout
test crate:
    cargo test -p ashlar-{{crate}}

# the documents as a site in target/book; needs `cargo install mdbook`
docs:
    mdbook build docs

# one universe of the simulator, with its story: just sim 7 --story
sim seed *options:
    cargo run --release -p ashlar-universe -- {{seed}} {{options}}

# so many universes of every aim, option, policy and class: just all-aims 60 --from 1000
all-aims count="60" *options:
    cargo run --release -p ashlar-universe -- --all-aims {{count}} {{options}}

# many universes: just sim-many 20000
sim-many count *options:
    cargo run --release -p ashlar-universe -- --many {{count}} {{options}}

# every crash state of small workloads on the engine: just crash-states --long
crash-states *options:
    cargo run --release -p ashlar-universe -- --exhaustive --jobs 2 {{options}}

# faults planted in the engine, each to be found by universes
canaries:
    cargo test --release -p ashlar-universe -p ashlar-engine \
        --features ashlar-universe/canaries,ashlar-engine/canaries --test canaries -- --nocapture

# the formal model of intent log, restarts and generations; `just formal --long`, `just formal --trail 6`
formal *options:
    formal/check-formal {{options}}

# hostile bytes for so many seconds, by libFuzzer under AddressSanitizer: just fuzz 60, just fuzz 60 log
# (fuzz/Cargo.toml lists the targets; needs a nightly compiler and `cargo install cargo-fuzz`)
fuzz seconds target="parity_calls":
    ASHLAR_FUZZ_CORPUS={{justfile_directory()}}/fuzz/corpus cargo test -p ashlar-ondisk -p ashlar-nbd -p ashlar-fuse -p ashlar-nvme-protocol -p ashlar-vhost-user -p ashlar-ublk -p ashlar-api hostile_
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}

# member sets changed by accident or on purpose, from number `from` on: just member-sets 100000
member-sets count from="0":
    ASHLAR_MEMBER_SETS={{count}} ASHLAR_MEMBER_SETS_FROM={{from}} cargo test --release -p ashlar-universe --test hostile -- --nocapture

# the parity crate's pointers under Miri, on the backends without intrinsics
# (needs `rustup +nightly component add miri`)
miri:
    cargo +nightly miri test -p ashlar-parity --test hostile

# every parity kernel's instructions, held to their limits
speed:
    cargo bench --locked -p ashlar-parity --bench kernels -- --gate

# Debian packages, into target/deb: apt install ./target/deb/ashlar_*.deb
deb:
    packaging/build-deb

# an RPM package, into target/rpm; needs rpmbuild
rpm:
    packaging/build-rpm

# two members destroyed under load, nothing lost
demo:
    ./ashlar-demo

# documentation of all crates
rustdoc:
    cargo doc --workspace --no-deps

# write lower counts of unsafe code and lint exceptions down
ratchet:
    cargo xtask tidy --ratchet
