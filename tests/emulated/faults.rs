//! What happens to drives in the field and needs NVMe or md in the kernel, in Linux 6.12.

use crate::guest::{run, skipped};
use crate::kernel::install_missing;

#[test]
fn drives_are_told_apart_and_known_again_whatever_serials_they_show() {
    let test = "drives_are_told_apart_and_known_again_whatever_serials_they_show";
    if let Some(said) = run(test, "drives_serials.sh", &[]) {
        println!("{said}");
    }
}

#[test]
fn drives_that_change_hands_with_md_belong_to_whoever_was_given_them_last() {
    let test = "drives_that_change_hands_with_md_belong_to_whoever_was_given_them_last";
    if let Err(why) = install_missing(&[("mdadm", "mdadm")]) {
        return skipped(test, &why);
    }
    if let Some(said) = run(test, "md_remnants.sh", &[]) {
        println!("{said}");
    }
}
