//! The kernel's parameter that allows requests over io_uring. It is the machine's, so a test
//! changes it only for a moment, one test at a time, and sets it back.

use std::fs::File;
use std::os::unix::fs::FileExt;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The parameter as it was, to be set back. Other tests wait for that.
pub struct Parameter {
    /// Locked.
    file: File,
    before: String,
}

impl Parameter {
    pub fn on() -> Parameter {
        Parameter::set("Y")
    }

    pub fn off() -> Parameter {
        Parameter::set("N")
    }

    fn set(value: &str) -> Parameter {
        let file = File::options().read(true).write(true).open(PARAMETER).unwrap();
        file.lock().unwrap();
        let before = std::fs::read_to_string(PARAMETER).unwrap();
        file.write_all_at(value.as_bytes(), 0).unwrap();
        Parameter { file, before }
    }

    /// Whether this kernel has it; if not, say which test does not run.
    pub fn is_there(test: &str) -> bool {
        let is_there = std::path::Path::new(PARAMETER).exists();
        if !is_there {
            eprintln!("skipped: {test}: over io_uring: this kernel lacks it (Linux 6.14)");
        }
        is_there
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        self.file.write_all_at(self.before.trim().as_bytes(), 0).unwrap();
    }
}
