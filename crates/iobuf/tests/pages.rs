//! What a pool says of the pages under it, against what the kernel says of the same mapping.

use ashlar_iobuf::{Backing, BufMut, Pool, PoolClass};

const HUGE_PAGE: usize = 2 << 20;

/// What `/proc/self/smaps` says of the mapping around an address.
struct Mapping {
    page_kib: usize,
    /// Two letters each: `hg` for advised to be huge, `ht` for reserved huge pages.
    flags: Vec<String>,
}

impl Mapping {
    fn around(address: usize) -> Mapping {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
        let mut found = None;
        let mut is_inside = false;
        for line in smaps.lines() {
            if let Some((start, end)) = range(line) {
                is_inside = start <= address && address < end;
                if is_inside {
                    found = Some(Mapping { page_kib: 0, flags: Vec::new() });
                }
            }
            let Some(mapping) = found.as_mut().filter(|_| is_inside) else { continue };
            if let Some(rest) = line.strip_prefix("KernelPageSize:") {
                mapping.page_kib = rest.trim().trim_end_matches(" kB").parse().expect("a number");
            }
            if let Some(rest) = line.strip_prefix("VmFlags:") {
                mapping.flags = rest.split_whitespace().map(str::to_owned).collect();
            }
        }
        found.expect("the address is mapped")
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }
}

/// The addresses in the first line of a mapping.
fn range(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

fn is_possible() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

fn expect_truth(pool: &Pool) {
    let arena = pool.arena_addresses();
    let mapping = Mapping::around(arena.start);
    let usage = pool.usage();
    match usage.backing {
        Backing::ReservedHugePages => {
            assert!(mapping.has("ht") && mapping.page_kib == 2048, "{:?}", mapping.flags);
        }
        Backing::TransparentHugePages => {
            assert!(mapping.has("hg") && is_possible(), "{:?}", mapping.flags);
        }
        Backing::SmallPages => {
            assert!(!mapping.has("ht") && mapping.page_kib == 4, "{:?}", mapping.flags);
        }
    }
    assert_eq!(usage.on_huge_pages, usage.backing != Backing::SmallPages);
    eprintln!("the arena is on {:?}", usage.backing);
}

/// One test, in turns: what it changes is the process's.
#[test]
fn a_pool_says_on_which_pages_it_is_and_gets_the_best_there_are() {
    let make = || Pool::new(&[PoolClass { buffer_bytes: 1 << 20, count: 8 }]).expect("a pool");
    let pool = make();
    let mut all: Vec<BufMut> = (0..8).map(|_| pool.try_get(1 << 20).expect("eight")).collect();
    all.iter_mut().for_each(|buffer| buffer.fill(1));
    let arena = pool.arena_addresses();
    assert_eq!(arena.start % HUGE_PAGE, 0, "an arena begins where a huge page can");
    assert_eq!((arena.end - arena.start) % HUGE_PAGE, 0, "and ends where one can");
    expect_truth(&pool);
    if is_possible() {
        assert_ne!(pool.usage().backing, Backing::SmallPages, "huge pages were to be had");
    }
    rustix::thread::disable_transparent_huge_pages(true).expect("a process may");
    let without = make();
    expect_truth(&without);
    assert_ne!(without.usage().backing, Backing::TransparentHugePages, "they were forbidden");
    rustix::thread::disable_transparent_huge_pages(false).expect("a process may");
    assert_eq!(make().usage().backing, pool.usage().backing, "forbidden no longer");
}
