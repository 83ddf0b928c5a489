//! `ashlar grow`: more drives for a declustered array.

use super::create_domains::{DomainChoice, Grouped};
use crate::fault::Fault;
use crate::reach::{Reach, devices};
use crate::sizes::sizes;
use crate::wait;
use ashlar_api::v1::growth::{Grow, Grown};
use ashlar_api::words::span;
use ashlar_units::ByteSize;
use std::path::PathBuf;

/// Grow a declustered array over more drives. The new devices are erased. Whole drives are
/// partitioned before they join.
///
/// Clients wait for about a second when the growth begins.
/// Then part of the data moves to the new drives while the array stays online. The volume gets
/// larger when the move is complete. `ashlar status` shows the progress, and `ashlar job pause`
/// pauses the growth.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(
    sizes!(),
    "\n\nExamples:
  ashlar grow pool0 --dry-run /dev/sd[p-u]
  ashlar grow pool0 /dev/sd[p-u]"
))]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The new drives, partitions or files. Each device becomes a member.
    #[arg(required_unless_present = "domains", value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// For arrays with failure domains: which of the new drives fail together, as for `ashlar
    /// create`. Each new domain needs as many drives as the domains of the array.
    #[arg(long = "domain", value_name = "WORD|LIST")]
    domains: Vec<DomainChoice>,

    /// Accept the new drives even if data could be lost when a whole failure domain fails.
    #[arg(long)]
    other_domain: bool,

    /// Erase this device even if it holds a file system, a partition table or other RAID. Name the
    /// device among the arguments, too. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,

    /// Use whole drives as they are, without a partition. Other programs then see the drives as
    /// blank.
    #[arg(long)]
    whole: bool,

    /// Check everything and say what would happen, but write nothing.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,

    /// For the estimated duration: bytes that a new drive writes in a second.
    #[arg(long, value_name = "SIZE", default_value = "200MB")]
    drive_rate: ByteSize,

    /// Wait for the end of the growth and show its progress.
    #[arg(long)]
    wait: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let grouped = match args.domains.is_empty() {
        true => None,
        false => Some(Grouped::of(&args.domains, &args.devices)?),
    };
    let in_slot_order = grouped.as_ref().map_or(args.devices, Grouped::devices);
    let request = Grow {
        array: args.array.clone(),
        devices: devices(&in_slot_order)?,
        domains: grouped.map(|own| own.asked()),
        other_domain: args.other_domain,
        destroy: devices(&args.destroy)?,
        whole: args.whole,
        dry_run: args.dry_run,
    };
    let rate = args.drive_rate;
    reach.print(&reach.call(&request)?, |grown| text(grown, rate))?;
    if args.wait { wait::until_grown(reach, &args.array) } else { Ok(()) }
}

fn text(grown: &Grown, rate: ByteSize) -> String {
    let share = percent(grown.moved_cells, grown.cells);
    let [before, after] = [grown.volume_bytes_before, grown.volume_bytes].map(ByteSize);
    let each = ByteSize(grown.bytes_to_each_new);
    let time = span((grown.bytes_to_each_new / rate.0.max(1)).max(1));
    let mut text = format!(
        "{}\n  \
         members   {} -> {}\n  \
         volume    {before} -> {after}, at the end\n  \
         moves     {} of {} cells ({share}), at most: cells that were never written do not move\n  \
         time      at most {time} at {rate}/s a drive: each new drive gets up to {each}\n",
        grown.message, grown.members_before, grown.members, grown.moved_cells, grown.cells
    );
    for note in &grown.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// A share in percent, with one digit behind the point.
fn percent(part: u64, of: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(of.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_share_has_one_digit_behind_the_point() {
        assert_eq!(percent(6, 48), "12.5 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
