//! A daemon of its own with members in a temporary folder, and the command line that talks to it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

/// Big enough for all areas of a member, small enough to be read whole in a test.
pub const MEMBER_BYTES: u64 = 64 << 20;

/// A running daemon.
pub struct World {
    pub folder: tempfile::TempDir,
    /// Where the control socket lies, if it lies elsewhere.
    pub socket_folder: Option<tempfile::TempDir>,
    pub daemon: Option<Child>,
    /// What it said, line by line.
    pub said: Arc<Mutex<String>>,
}

impl World {
    /// A folder, and nothing running yet.
    pub fn without_daemon() -> World {
        let folder = tempfile::tempdir().expect("temporary folder");
        World { folder, socket_folder: None, daemon: None, said: Arc::default() }
    }

    /// Where the control socket lies.
    pub fn socket_folder(&self) -> PathBuf {
        self.socket_folder.as_ref().unwrap_or(&self.folder).path().to_owned()
    }

    /// Start the daemon with further arguments, and wait until it serves.
    pub fn start(&mut self, arguments: &[&str]) {
        self.start_by(self.command(), arguments);
    }

    /// The same by a command line that begins so.
    pub fn start_by(&mut self, mut program: Command, arguments: &[&str]) {
        let are_workers_said = arguments.contains(&"--workers");
        let is_pool_said = arguments.contains(&"--pool");
        let mut daemon = program
            .arg("serve")
            .args(["--pool", "96MiB"].iter().filter(|_| !is_pool_said))
            .args(["--no-pin", "--workers", "2"].iter().filter(|_| !are_workers_said))
            .args(["--nbd", &self.nbd_address()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let output = daemon.stdout.take().expect("piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let keep = |said: &Mutex<String>, line: &str| {
            said.lock().expect("nobody panics with it").push_str(&format!("{line}\n"));
        };
        let is_serving = lines.any(|line| {
            keep(&self.said, &line);
            line.contains("control socket")
        });
        assert!(is_serving, "the daemon ended before it served");
        let said = Arc::clone(&self.said);
        std::thread::spawn(move || lines.for_each(|line| keep(&said, &line)));
        self.daemon = Some(daemon);
    }

    /// The program with this world's folder and socket.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        command.current_dir(self.folder.path());
        command.env("ASHLAR_SOCKET", self.socket_folder().join("control.sock"));
        command
    }

    fn nbd_address(&self) -> String {
        format!("unix:{}", self.folder.path().join("nbd.sock").display())
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sparse files to be members, by name.
    pub fn members(&self, count: usize) -> Vec<String> {
        let names = (0..count).map(|number| format!("m{number}"));
        names.inspect(|name| self.sparse(name, MEMBER_BYTES)).collect()
    }

    /// A sparse file.
    pub fn sparse(&self, name: &str, bytes: u64) {
        File::create(self.path(name)).and_then(|file| file.set_len(bytes)).expect("sparse file");
    }

    /// Run a command.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("the program runs")
    }

    /// Run a command that must succeed, and return what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Create an array of new sparse files of `bytes` each.
    pub fn create_of(&self, bytes: u64, members: usize, arguments: &[&str]) {
        let names: Vec<String> = (0..members).map(|number| format!("m{number}")).collect();
        names.iter().for_each(|name| self.sparse(name, bytes));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.ok(&[&["create", "tank0"], arguments, &names].concat());
    }

    /// Create an array of `members` new sparse files with these further arguments.
    pub fn create(&self, name: &str, members: usize, arguments: &[&str]) -> Vec<String> {
        let devices = self.members(members);
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        self.ok(&[&["create", name], arguments, &devices].concat());
        devices.iter().map(ToString::to_string).collect()
    }

    /// The status of everything, as JSON.
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).expect("JSON")
    }

    /// The status of the only array, as JSON.
    pub fn array(&self) -> serde_json::Value {
        self.status()["arrays"][0].clone()
    }

    /// Ask the daemon to end, and do not wait for it.
    pub fn ask_to_end(&self) {
        signal(self.daemon.as_ref().expect("it runs"), rustix::process::Signal::TERM);
    }

    /// End the daemon in order and say how it ended.
    pub fn end(&mut self) -> ExitStatus {
        self.ask_to_end();
        self.ended()
    }

    /// Wait for the end of a daemon that was asked to end.
    pub fn ended(&mut self) -> ExitStatus {
        self.daemon.take().expect("it runs").wait().expect("it ends")
    }

    /// Kill the daemon, as a crash would.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("it ran");
        daemon.wait().expect("it ends");
    }
}

fn signal(daemon: &Child, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(id, signal).expect("it runs");
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let id = rustix::process::Pid::from_child(daemon);
            // After a failed test; a daemon that is gone already is just as well. The second one is
            // for a volume in use. One that comes before the first was heard counts for nothing.
            while matches!(daemon.try_wait(), Ok(None)) {
                let _gone = rustix::process::kill_process(id, rustix::process::Signal::TERM);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            let _gone = daemon.wait();
        }
    }
}
