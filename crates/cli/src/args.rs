//! What can be typed. Help, shell completions and manual pages are all made from these definitions and
//! from the `Args` of each command; nothing about a flag is written anywhere else.

use crate::cmd;
use std::path::PathBuf;

/// RAID for servers full of drives: drives in, volumes out.
///
/// One `ashlar serve` owns the arrays. All other commands ask it over its control socket, except `examine`,
/// `salvage` and `bench`, which need no daemon.
#[derive(clap::Parser, Debug)]
#[command(name = "ashlar", version, max_term_width = 100, subcommand_required = true)]
#[command(
    after_help = "Sizes take units: 64K, 1.5TiB, 500GB. Exit code 0: done; 1: refused; 2: not understood; 3: salvaged in part."
)]
pub struct Args {
    /// Control socket of the daemon.
    ///
    /// The default is /run/ashlar/control.sock for root, and ashlar/control.sock below $XDG_RUNTIME_DIR for
    /// everybody else.
    #[arg(long, global = true, env = "ASHLAR_SOCKET", value_name = "PATH", hide_env_values = true)]
    pub socket: Option<PathBuf>,

    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    Serve(cmd::serve::Args),
    Create(cmd::create::Args),
    Assemble(cmd::assemble::Args),
    Stop(cmd::stop::Args),
    Status(cmd::status::Args),
    Volumes(cmd::volumes::Args),
    Examine(cmd::examine::Args),
    Salvage(cmd::salvage::Args),
    Fail(cmd::fail::Args),
    Replace(cmd::replace::Args),
    ReAdd(cmd::re_add::Args),
    Spare(cmd::spare::Args),
    Scrub(cmd::scrub::Args),
    Rebuild(cmd::rebuild::Args),
    Attach(cmd::attach::Args),
    Detach(cmd::detach::Args),
    Events(cmd::events::Args),
    Metrics(cmd::metrics::Args),
    Bench(cmd::bench::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

#[cfg(test)]
mod tests {
    use super::{Args, Command};
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_definitions_agree_with_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_flag_has_help() {
        for command in Args::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{} says nothing", command.get_name());
            let flags = command.get_subcommands().flat_map(clap::Command::get_arguments);
            for argument in command.get_arguments().chain(flags) {
                let name = argument.get_id();
                assert!(
                    argument.get_help().is_some(),
                    "{} {name} says nothing",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn what_users_of_mdadm_type_is_understood() {
        let typed = ["ashlar", "create", "tank0", "-l", "6", "-n", "4", "--chunk", "64K"];
        let args =
            Args::try_parse_from(typed.into_iter().chain(["a", "b", "c", "d"])).expect("parsed");
        let Command::Create(create) = args.command else { panic!("not create") };
        let request = create.request().expect("sound");
        assert_eq!(request.strip_bytes, Some(65_536));
        assert_eq!(request.devices.len(), 4);
    }
}
