//! What can be typed. Help, shell completions and manual pages are all made from these definitions
//! and from the `Args` of each command; nothing about a flag is written anywhere else.

use crate::cmd;
use crate::sizes::sizes;
use clap::{CommandFactory, FromArgMatches};
use std::path::PathBuf;

/// Heading of the options that every command takes.
const GLOBAL: &str = "Global options";
/// Commands that talk to no daemon. Their help does not show --socket.
const WITHOUT_DAEMON: [&str; 8] =
    ["partition", "examine", "salvage", "bench", "lab", "completions", "man", "openapi"];

/// Software RAID for servers full of drives.
///
/// An array has numbered slots. The device in a slot is a member of the array: a drive, a partition
/// or a file. Clients see the array as one volume.
///
/// The daemon `ashlar serve` runs the arrays. Most commands talk to the daemon over its control
/// socket. `partition`, `examine`, `salvage`, `bench`, `lab`, `completions`, `man`, `openapi` and
/// `events --since` need no daemon.
#[derive(clap::Parser, Debug)]
#[command(name = "ashlar", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = concat!(
    sizes!(),
    "\n\nExit codes: 0: done. 1: refused, or the command found something wrong. 2: command \
     line not understood. 3: done in part, for instance if `salvage` lost blocks. `status --check` \
     and the commands of `lab` have exit codes of their own, which their help lists."
))]
pub struct Args {
    /// Control socket of the daemon [default: /run/ashlar/control.sock for root,
    /// $XDG_RUNTIME_DIR/ashlar/control.sock for others].
    #[arg(long, global = true, env = "ASHLAR_SOCKET", value_name = "PATH", hide_env_values = true)]
    #[arg(help_heading = GLOBAL)]
    pub socket: Option<PathBuf>,

    /// Print JSON instead of text.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// The definitions with what depends on the command. Help, completions, manual pages and the
    /// parser all start here.
    pub fn definitions() -> clap::Command {
        let command = Args::command();
        let socket = command.get_arguments().find(|it| it.get_id() == "socket").cloned();
        let socket = socket.expect("--socket is defined above").hide(true);
        WITHOUT_DAEMON
            .iter()
            .fold(command, |command, name| command.mut_subcommand(name, |inner| inner.arg(&socket)))
    }

    /// What was typed.
    ///
    /// # Errors
    /// What the parser says of a command line that it does not understand; also help, as asked for.
    pub fn of_command_line() -> Result<Args, clap::Error> {
        let mut matches = Args::definitions().try_get_matches()?;
        Args::from_arg_matches_mut(&mut matches)
            .map_err(|error| error.format(&mut Args::definitions()))
    }
}

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    Serve(cmd::serve::Args),
    Create(cmd::create::Args),
    Partition(cmd::partition::Args),
    Assemble(cmd::assemble::Args),
    Stop(cmd::stop::Args),
    Destroy(cmd::destroy::Args),
    Rename(cmd::rename::Args),
    Set(cmd::set::Args),
    Status(cmd::status::Args),
    Top(cmd::top::Args),
    Volumes(cmd::volumes::Args),
    Examine(cmd::examine::Args),
    Salvage(cmd::salvage::Args),
    Fail(cmd::fail::Args),
    Locate(cmd::locate::Args),
    Replace(cmd::replace::Args),
    ReAdd(cmd::re_add::Args),
    Grow(cmd::grow::Args),
    Spare(cmd::spare::Args),
    Wipe(cmd::wipe::Args),
    Scrub(cmd::scrub::Args),
    Rebuild(cmd::rebuild::Args),
    Job(cmd::job::Args),
    Attach(cmd::attach::Args),
    Detach(cmd::detach::Args),
    Events(cmd::events::Args),
    Notify(cmd::notify::Args),
    Metrics(cmd::metrics::Args),
    Bench(cmd::bench::Args),
    /// Qualify a server and measure RAID engines.
    ///
    /// The lab measures every RAID engine from outside, through devices and files. No daemon needs
    /// to run: to measure Ashlar, the lab starts a daemon of its own.
    Lab(ashlar_lab::cli::Args),
    #[command(hide = true)]
    Keeper(cmd::keeper::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
    Openapi(cmd::openapi::Args),
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, WITHOUT_DAEMON};
    use clap::{CommandFactory, FromArgMatches, Parser};

    #[test]
    fn the_definitions_agree_with_each_other() {
        Args::definitions().debug_assert();
    }

    #[test]
    fn the_help_of_a_command_shows_the_socket_if_the_command_talks_to_a_daemon() {
        for command in Args::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = command.get_name();
            let asked = Args::definitions().try_get_matches_from(["ashlar", name, "--help"]);
            let help = asked.expect_err("help").to_string();
            assert_eq!(
                help.contains("--socket"),
                !WITHOUT_DAEMON.contains(&name),
                "{name}: {help}"
            );
            assert!(help.contains("Global options:\n"), "{name}: {help}");
        }
    }

    #[test]
    fn the_socket_is_taken_before_and_after_every_command() {
        for typed in [
            &["ashlar", "--socket", "/s", "examine", "a"] as &[&str],
            &["ashlar", "examine", "--socket", "/s", "a"],
            &["ashlar", "status", "--socket", "/s"],
            &["ashlar", "--socket", "/s", "lab", "inspect"],
        ] {
            let matches = Args::definitions().try_get_matches_from(typed).expect("understood");
            let args = Args::from_arg_matches(&matches).expect("understood");
            assert_eq!(args.socket.as_deref(), Some(std::path::Path::new("/s")), "{typed:?}");
        }
    }

    #[test]
    fn help_fits_eighty_columns() {
        for command in Args::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = command.get_name();
            let asked =
                Args::definitions().term_width(80).try_get_matches_from(["ashlar", name, "--help"]);
            let help = asked.expect_err("help").to_string();
            let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{name}: {long:#?}");
        }
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

    /// Every `ashlar ...` in a page: after a backtick, or at the start of a line of a code block.
    fn command_lines(page: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut is_code = false;
        for line in page.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
                continue;
            }
            let spans: Vec<&str> = match is_code {
                true => vec![line.trim_start().trim_start_matches("$ ")],
                // Every second part lies between backticks.
                false => line.split('`').skip(1).step_by(2).collect(),
            };
            for span in spans {
                let Some(rest) = span.strip_prefix("ashlar ") else { continue };
                // What follows two blanks, a pipe or an ampersand is not an argument any more.
                let end = ["  ", " |", " &", " >", ";"].iter().filter_map(|it| rest.find(it)).min();
                let words = rest[..end.unwrap_or(rest.len())].split_whitespace();
                found.push(words.map(str::to_owned).collect());
            }
        }
        found
    }

    /// Why the words are not a command line of ours, if they are not.
    fn wrong(words: &[String]) -> Option<String> {
        let root = Args::command();
        let mut command = &root;
        // What follows -- is another program's.
        let words = words.iter().map(|word| word.trim_matches(['[', ']', ',', '.']));
        let words = words.take_while(|word| *word != "--");
        for word in words.clone() {
            // COMMAND and the like stand for anything.
            let is_placeholder = word.chars().all(|c| c.is_ascii_uppercase());
            match command.find_subcommand(word) {
                Some(inner) => command = inner,
                None if is_placeholder || !command.has_subcommands() => break,
                None if word.starts_with('-') => break,
                None => return Some(format!("no command '{word}'")),
            }
        }
        let mut flags = words.filter_map(|word| word.strip_prefix("--"));
        let known = |flag: &str| {
            let own = command.get_arguments().chain(root.get_arguments());
            own.into_iter().any(|argument| {
                let aliases = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(flag) || aliases.contains(&flag) || flag == "help"
            })
        };
        let flag = |flag: &str| flag.split('=').next().unwrap_or(flag).to_owned();
        flags.find(|it| !known(&flag(it))).map(|flag| format!("no flag --{flag}"))
    }

    #[test]
    fn commands_and_flags_in_the_documents_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
        for folder in ["docs", "docs/adr", "docs/lab", "docs/results"] {
            let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
            pages.extend(entries.map(|entry| entry.expect("readable").path()));
        }
        let (mut seen, mut faults) = (0, Vec::new());
        for page in pages.iter().filter(|page| page.extension().is_some_and(|it| it == "md")) {
            for words in command_lines(&std::fs::read_to_string(page).expect("text")) {
                seen += 1;
                let fault =
                    wrong(&words).map(|why| format!("{}: {words:?}: {why}", page.display()));
                faults.extend(fault);
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(seen > 40, "only {seen} command lines found: are they looked for rightly?");
    }

    #[test]
    fn a_command_line_that_does_not_exist_is_found_in_a_page() {
        for (page, why) in [
            ("Run `ashlar melt tank0`.", Some("no command 'melt'")),
            ("Run `ashlar status --loud`.", Some("no flag --loud")),
            ("```\nashlar spare lend /dev/sda   for a while\n```", Some("no command 'lend'")),
            ("`ashlar scrub tank0 --wait`, `ashlar COMMAND --help`", None),
            ("```\nashlar salvage /dev/sda --to - | ssh host --x\n```", None),
        ] {
            let faults: Vec<String> =
                command_lines(page).iter().filter_map(|words| wrong(words)).collect();
            assert_eq!(faults.first().map(String::as_str), why, "{page}");
            assert!(!command_lines(page).is_empty(), "{page}");
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
