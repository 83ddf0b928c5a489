//! Devices that do not answer, and what becomes of commands that no task awaits any more.
//!
//! A frozen file system holds writes back for as long as the test likes. That needs root, a loop
//! device and mount. Without them, the test says so by its name.

use std::fs;
use std::time::Duration;

use ashlar_device::{
    Access, Fault, FaultControl, FaultyDevice, MemDevice, Opened, Opener, PathOpener, flush, read,
    write,
};
use ashlar_iobuf::{BufMut, Pool, PoolClass};

use crate::block::Mounted;
use crate::world::{pattern, run, run_on_ring};

const BYTES: usize = 64 << 10;

/// Looks until something has been under way at three of them.
async fn look_thrice(device: &dyn ashlar_device::Device, handle: &ashlar_ring::Handle) {
    for _ in 0..24_000 {
        if device.look_at_commands().oldest_looks >= 3 {
            return;
        }
        handle.sleep(Duration::from_millis(5)).await;
    }
    panic!("nothing stays under way");
}

#[test]
fn a_write_that_was_given_up_keeps_its_buffer_and_its_device_until_the_kernel_is_done() {
    let test = "a_write_that_was_given_up_keeps_its_buffer_and_its_device_until_the_kernel_is_done";
    let Some(mounted) = Mounted::new(test) else { return };
    let path = mounted.at.path().join("member");
    fs::write(&path, vec![0; BYTES]).expect("written");
    fs::File::open(&path).expect("there").sync_all().expect("on the disk");
    let name = path.to_str().expect("a plain name");
    let opener = PathOpener::new();
    let opened = opener.open(name, Access::Exclusive).expect("free");
    if !mounted.freeze() {
        return;
    }
    let pool = Pool::new(&[PoolClass { buffer_bytes: BYTES, count: 1 }]).expect("memory");
    run_on_ring(async |handle, supply| {
        let device = opened.attach(&handle);
        drop(opened);
        let mut buffer = pool.try_get(BYTES).expect("one");
        buffer.copy_from_slice(&pattern(BYTES, 1));
        let lost_at = buffer.address();
        let writing = write(&*device, &supply, 0, buffer.freeze());
        look_thrice(&*device, &handle).await;
        device.give_up();
        assert_eq!(writing.await, Err(Fault::TIMED_OUT));
        assert_eq!(flush(&*device, &supply).await, Err(Fault::TIMED_OUT));
        let refused = read(&*device, &supply, 0, BufMut::zeroed(512)).await.expect_err("given up");
        assert_eq!((refused.fault, refused.buffer.len()), (Fault::TIMED_OUT, 512));
        assert_eq!(device.look_at_commands().under_way, 0, "nobody waits");
        let stand_in = pool.try_get(BYTES).expect("another one in its place");
        assert_ne!(stand_in.address(), lost_at, "the kernel has it still");
        drop((stand_in, device));

        let refused = opener.open(name, Access::Exclusive).err().expect("not yet").to_string();
        assert!(refused.contains("did not answer in time and still has"), "{refused}");
        mounted.thaw();
        let mut reopened = opener.open(name, Access::Exclusive);
        for _ in 0..24_000 {
            if reopened.is_ok() {
                break;
            }
            handle.sleep(Duration::from_millis(5)).await;
            reopened = opener.open(name, Access::Exclusive);
        }
        let device = reopened.expect("its commands are back").attach(&handle);
        let usage = pool.usage().classes[0];
        assert_eq!((usage.in_use, usage.written_off), (0, 0), "the buffer is back");
        let got = read(&*device, &supply, 0, BufMut::zeroed(BYTES)).await.expect("answers again");
        let is_one = |wanted: &[u8]| got[..] == *wanted;
        assert!(is_one(&pattern(BYTES, 1)) || is_one(&[0; BYTES]), "the late write, whole or not");
    });
}

#[test]
fn a_ring_ends_though_a_device_never_answers() {
    let test = "a_ring_ends_though_a_device_never_answers";
    let Some(mounted) = Mounted::new(test) else { return };
    let path = mounted.at.path().join("member");
    fs::write(&path, vec![0; BYTES]).expect("written");
    fs::File::open(&path).expect("there").sync_all().expect("on the disk");
    let opener = PathOpener::new();
    let opened =
        opener.open(path.to_str().expect("a plain name"), Access::Exclusive).expect("free");
    if !mounted.freeze() {
        return;
    }
    // The thread itself ends only when the kernel is done; what it was to do is done before.
    let (ended, is_ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        run_on_ring(async |handle, supply| {
            let device = opened.attach(&handle);
            let writing = write(&*device, &supply, 0, pattern(BYTES, 1).freeze());
            look_thrice(&*device, &handle).await;
            device.give_up();
            assert_eq!(writing.await, Err(Fault::TIMED_OUT));
        });
        ended.send(()).expect("somebody waits");
    });
    let in_time = is_ended.recv_timeout(Duration::from_secs(120));
    mounted.thaw();
    thread.join().expect("no panic");
    in_time.expect("a ring does not wait for ever");
}

#[test]
fn a_delayed_command_that_was_given_up_never_reaches_the_device() {
    run(async |handle, supply| {
        let memory = MemDevice::new("mem:a", 1 << 20);
        let control = FaultControl::new();
        let opened = FaultyDevice::new(std::sync::Arc::new(memory.clone()), control.clone());
        let device = opened.attach(&handle);
        control.delay(Duration::from_secs(60));
        let writing = write(&*device, &supply, 0, pattern(4096, 1).freeze());
        assert_eq!(device.look_at_commands().under_way, 1);
        device.give_up();
        assert_eq!(writing.await, Err(Fault::TIMED_OUT));
        control.heal();
        assert_eq!(flush(&*device, &supply).await, Err(Fault::TIMED_OUT));
        handle.sleep(Duration::from_secs(120)).await;
        let mut bytes = [1; 512];
        memory.peek(0, &mut bytes);
        assert_eq!(bytes, [0; 512]);
    });
}
