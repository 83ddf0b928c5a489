//! `ashlar set`: tunables of a running array.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::ApiError;
use ashlar_api::v1::status::GetStatus;
use ashlar_api::v1::tuning::{SetTuning, Tuning};
use ashlar_units::ByteSize;
use serde_json::{Map, Value};

/// Show or change tunables of a running array.
///
/// Values that you set override the configuration. The daemon remembers the values after a restart
/// if the section `[start]` of the configuration sets `remember`. For limits, 0 means no limit.
/// `space_wait_s` is the time that writes wait when thinly provisioned members have no space left;
/// 0 means without a time limit.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
                  ashlar set tank0                     show all values\n  \
                  ashlar set tank0 job_floor=64M       a rebuild moves 64 MiB a second at least\n  \
                  ashlar set tank0 slow_member=avoid   reads avoid a slow member\n  \
                  ashlar set tank0 read_iops_max=0     reads have no limit")]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Names and values, as listed in ashlar.toml(5) under tuning. Without NAME=VALUE, the command
    /// shows the values in force.
    #[arg(value_name = "NAME=VALUE")]
    changes: Vec<String>,

    /// Change the values only until the array stops.
    #[arg(long)]
    not_remembered: bool,

    /// Forget all values that were set with `ashlar set`. The values stay in force until the array
    /// stops; the next start takes the values of the configuration.
    #[arg(long, conflicts_with_all = ["changes", "not_remembered"])]
    forget: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    if args.changes.is_empty() && !args.forget {
        return show(&args.array, reach);
    }
    let tuning = parse(&args.changes)?;
    let Args { array, not_remembered, forget, .. } = args;
    reach.change(&SetTuning { array, tuning, not_remembered, forget }).map(drop)
}

fn show(array: &str, reach: &Reach) -> Result<(), Fault> {
    let arrays = reach.call(&GetStatus {})?.arrays;
    let found = arrays.into_iter().find(|it| it.name == array);
    let tuning = found.ok_or_else(|| ApiError::no_array(array))?.tuning;
    reach.print(&tuning, |tuning| {
        let values = serde_json::to_value(tuning).unwrap_or_default();
        let lines = values.as_object().into_iter().flatten().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={value}")
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// `NAME=VALUE` for each tunable that is to change.
fn parse(changes: &[String]) -> Result<Tuning, Fault> {
    let mut fields = Map::new();
    for change in changes {
        let (name, value) = change.split_once('=').ok_or_else(|| {
            Fault::usage(format!("'{change}' is not NAME=VALUE"), "for example job_floor=64M")
        })?;
        let value = value_of(name, value)?;
        let alone = Map::from_iter([(name.to_owned(), value.clone())]);
        tuning(alone).map_err(|error| {
            Fault::usage(format!("{change}: {error}"), "see 'ashlar set ARRAY' for the names")
        })?;
        if fields.insert(name.to_owned(), value).is_some() {
            return Err(Fault::usage(format!("{name} is given twice"), "give it once"));
        }
    }
    Ok(tuning(fields).expect("each of them is sound"))
}

fn tuning(fields: Map<String, Value>) -> serde_json::Result<Tuning> {
    serde_json::from_value(Value::Object(fields))
}

fn value_of(name: &str, value: &str) -> Result<Value, Fault> {
    if ["job_floor", "read_rate_max", "write_rate_max"].contains(&name) {
        let size: Result<ByteSize, _> = value.parse();
        let size = size.map_err(|error| Fault::usage(error.to_string(), "for example 64M"))?;
        return Ok(size.0.into());
    }
    // A number or a truth value as it is, everything else as text.
    let parsed =
        serde_json::from_str(value).ok().filter(|it: &Value| it.is_number() || it.is_boolean());
    Ok(parsed.unwrap_or_else(|| Value::String(value.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use ashlar_api::v1::tuning::Tuning;

    fn of(changes: &[&str]) -> Result<Tuning, String> {
        let changes: Vec<String> = changes.iter().map(|it| (*it).to_owned()).collect();
        parse(&changes).map_err(|fault| fault.to_string())
    }

    #[test]
    fn changes_are_typed_as_in_the_configuration() {
        let typed = [
            "job_floor=64M",
            "slow_member=avoid",
            "pass_discards=true",
            "slow_times=5",
            "read_rate_max=200M",
            "write_iops_max=1000",
        ];
        let wanted = Tuning {
            read_rate_max: Some(200 << 20),
            write_iops_max: Some(1000),
            job_floor: Some(64 << 20),
            slow_member: Some("avoid".to_owned()),
            pass_discards: Some(true),
            slow_times: Some(5),
            ..Tuning::default()
        };
        assert_eq!(of(&typed), Ok(wanted));
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for (typed, why) in [
            (&["slow"] as &[&str], "is not NAME=VALUE"),
            (&["slow=1"], "unknown field `slow`"),
            (&["slow_after_s=9", "slow_times=x"], "slow_times=x: invalid type"),
            (&["slow_times=-1"], "slow_times=-1: invalid value"),
            (&["job_floor=x"], "x"),
            (&["slow_times=5", "slow_times=6"], "twice"),
        ] {
            let told = of(typed).expect_err(why);
            assert!(told.contains(why), "{typed:?}: {told}");
        }
    }
}
