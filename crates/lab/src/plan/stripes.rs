//! How the stripes of an array lie over its drives: over all of them, in groups side by side (RAID
//! 50 and 60), declustered, beside spares.
//!
//! What must stay true: drives that hold no data of a stripe are its parity only if the plan leaves
//! no other way to read it; else nothing is calculated from them.

use super::file::{Array, Plan};
use crate::metrics::baseline::Code;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    pub data: u32,
    pub drives: u32,
    /// Those that are no spares.
    pub active: u32,
    /// Data and parity of one stripe; none if the plan does not say enough.
    pub code: Option<Code>,
}

impl Stripes {
    /// Those of `array`; `drives` are the plan's. `None` if the data of a stripe is not known.
    pub fn of(array: &Array, drives: &[PathBuf]) -> Option<Stripes> {
        if let Some(code) = array.code() {
            let drives = code.members();
            return Some(Stripes { data: code.data, drives, active: drives, code: Some(code) });
        }
        let drives = u32::try_from(drives.len()).ok()?;
        let data = array.data_members?;
        let active = drives.checked_sub(array.spares)?;
        // More than two are groups, or narrower stripes; as many as data may be mirrors.
        let rest = active.checked_sub(data).filter(|rest| [1, 2].contains(rest) && *rest != data);
        let parity = array.parity_members.or(rest.filter(|_| !array.declustered));
        let code = parity.map(|parity| Code { data, parity });
        let fits = |code: &Code| {
            let width = code.members();
            let is_whole = active % width == 0 || array.declustered;
            data >= 2 && code.parity > 0 && active >= width && is_whole
        };
        Some(Stripes { data, drives, active, code: code.filter(fits) })
    }

    /// Part of what is written that is data.
    pub fn share(&self) -> Option<f64> {
        self.code.map(|code| f64::from(code.data) / f64::from(code.members()))
    }

    /// Drives' worth of data: of 42 drives with stripes of 8+2 33.6.
    pub fn data_drives(&self) -> Option<f64> {
        self.share().map(|share| f64::from(self.active) * share)
    }

    /// The part of the raw drives that is at work with `lost` of them out.
    pub fn at_work(&self, lost: u32) -> f64 {
        f64::from(self.active.saturating_sub(lost)) / f64::from(self.drives.max(1))
    }
}

/// What the plan says of its arrays' stripes that cannot be.
pub(super) fn wrong(plan: &Plan) -> Option<String> {
    plan.arrays.iter().find_map(|array| {
        let (data, parity) = (array.data_members, array.parity_members);
        let is_told = parity.is_some() || array.spares > 0 || array.declustered;
        let stripes = Stripes::of(array, &plan.drives);
        if is_told && array.is_made() && !array.is_handed_over() {
            let said = "the lab knows the stripes of an array that it makes: \
                        no parity_members, spares or declustered";
            return Some(said.to_owned());
        }
        let is_known = plan.drives.is_empty() || stripes.is_some_and(|it| it.code.is_some());
        let parity = parity.filter(|_| !is_known)?;
        Some(format!(
            "{}: stripes of {} data and {parity} parity members do not fill {} drives with {} \
             spares; data_members are those of one stripe; narrower stripes on changing \
             drives are declustered = true",
            array.name(),
            data.unwrap_or(0),
            plan.drives.len(),
            array.spares
        ))
    })
}

#[cfg(test)]
mod tests {
    use crate::plan::file::Plan;

    fn plan(drives: usize, keys: &str) -> Result<Plan, crate::Refusal> {
        let drives: Vec<String> = (0..drives).map(|at| format!("\"d{at}\"")).collect();
        Plan::parse(&format!(
            "question = \"q\"\ndrives = [{}]\n[[arrays]]\npath = \"a\"\n{keys}\n\
             [[stages]]\nkind = \"zone\"\n",
            drives.join(", ")
        ))
    }

    fn parity(drives: usize, keys: &str) -> Option<u32> {
        let plan = plan(drives, keys).unwrap();
        super::Stripes::of(&plan.arrays[0], &plan.drives)?.code.map(|code| code.parity)
    }

    #[test]
    fn drives_without_data_are_parity_only_if_there_is_no_other_way_to_read_the_plan() {
        assert_eq!(parity(6, "data_members = 5"), Some(1));
        assert_eq!(parity(10, "data_members = 8"), Some(2));
        assert_eq!(parity(11, "data_members = 8\nspares = 1"), Some(2));
        assert_eq!(parity(10, "data_members = 6"), None, "RAID 60 of 2 x (3+2)?");
        assert_eq!(parity(10, "data_members = 3"), None);
        assert_eq!(parity(4, "data_members = 2"), None, "mirrors, or RAID 6");
        assert_eq!(parity(42, "data_members = 32"), None);
        assert_eq!(parity(10, "data_members = 3\nparity_members = 2"), Some(2));
        assert_eq!(parity(42, "data_members = 8\nparity_members = 2\ndeclustered = true"), Some(2));
        let plan = plan(42, "data_members = 8\nparity_members = 2\nspares = 2").unwrap();
        let stripes = super::Stripes::of(&plan.arrays[0], &plan.drives).unwrap();
        assert_eq!((stripes.active, stripes.data_drives()), (40, Some(32.0)));
    }

    #[test]
    fn stripes_that_do_not_fill_the_drives_are_refused() {
        let said = plan(10, "data_members = 6\nparity_members = 2").unwrap_err().to_string();
        assert!(said.contains("6 data and 2 parity members do not fill 10 drives"), "{said}");
        let made = "question = \"q\"\n[[arrays]]\nmembers = [\"a\", \"b\", \"c\", \"d\"]\n\
                    engine = \"btrfs\"\nspares = 1\n[[stages]]\nkind = \"rebuild\"\n";
        assert!(Plan::parse(made).unwrap_err().to_string().contains("no parity_members"));
    }
}
