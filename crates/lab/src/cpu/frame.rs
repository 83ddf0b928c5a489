//! One frame of a stack as text: `symbol`, ` [module]` when it is not the kernel itself, `_[k]` on
//! kernel frames.
//!
//! This is FlameGraph's own spelling with the module in between, so any flame graph program reads
//! it, and the groups match the same text whether it came from a live run, from `perf script` or
//! from a folded file. What must stay true: `parse(compose(x)) == x` for what perf prints; no input
//! panics.

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frame<'a> {
    /// Name of the function without the compiler's `.isra.0` and the like; empty if perf did not
    /// know it.
    pub symbol: &'a str,
    /// Kernel module, program or library; empty for the kernel itself or if nothing is said.
    pub module: &'a str,
}

/// What compilers append to the name of a function they cut up.
const CLONES: [&str; 6] = [".isra.", ".constprop.", ".part.", ".cold", ".llvm.", ".lto_priv."];

impl<'a> Frame<'a> {
    /// Take a frame's text apart. Text without a module is a bare symbol.
    pub fn parse(text: &'a str) -> Frame<'a> {
        let bare = ["_[k]", "_[i]", "_[j]", "_[w]"]
            .iter()
            .find_map(|mark| text.strip_suffix(mark))
            .unwrap_or(text);
        let (symbol, module) = match bare.strip_suffix(']').and_then(|it| it.rsplit_once('[')) {
            Some(("", module)) => ("", module),
            Some((symbol, module)) if symbol.ends_with(' ') => (symbol.trim_end(), module),
            _ => (bare, ""),
        };
        let end = CLONES.iter().filter_map(|mark| symbol.find(mark)).min();
        Frame { symbol: &symbol[..end.unwrap_or(symbol.len())], module }
    }
}

/// Write a frame's text into `text`: what perf printed as symbol and shared object.
pub fn compose(text: &mut String, symbol: &str, object: &str) {
    text.clear();
    let is_kernel_itself = object.starts_with("[kernel")
        || object.ends_with("/vmlinux")
        || object.contains("[guest.kernel");
    let is_kernel = is_kernel_itself
        || (object.starts_with('[') && !object.starts_with("[unknown") && object != "[vdso]")
        || object.ends_with(".ko")
        || object.contains(".ko.");
    let name = object.rsplit('/').next().unwrap_or(object);
    let module = name.trim_start_matches('[').trim_end_matches(']');
    let module = module.split(".ko").next().unwrap_or(module);
    match (symbol, is_kernel_itself) {
        ("[unknown]" | "", true) => text.push_str("[kernel]"),
        ("[unknown]" | "", false) => {
            text.push('[');
            push_clean(text, module);
            text.push(']');
        }
        (symbol, true) => push_clean(text, symbol),
        (symbol, false) => {
            push_clean(text, symbol);
            if !module.is_empty() {
                text.push_str(" [");
                push_clean(text, module);
                text.push(']');
            }
        }
    }
    if is_kernel {
        text.push_str("_[k]");
    }
}

/// `;` parts frames and a line ends a stack: neither may be inside a name.
fn push_clean(text: &mut String, name: &str) {
    text.extend(name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }));
}

#[cfg(test)]
mod tests {
    use super::{Frame, compose};

    fn composed(symbol: &str, object: &str) -> String {
        let mut text = String::new();
        compose(&mut text, symbol, object);
        text
    }

    #[test]
    fn frames_of_the_kernel_of_modules_and_of_programs_are_told_apart() {
        for (symbol, object, text) in [
            ("do_idle", "[kernel.kallsyms]", "do_idle_[k]"),
            ("raid5d", "[raid456]", "raid5d [raid456]_[k]"),
            ("zio_execute", "/lib/modules/6.1/extra/zfs.ko.xz", "zio_execute [zfs]_[k]"),
            ("fio_io", "/usr/bin/fio", "fio_io [fio]"),
            ("[unknown]", "/usr/lib/libc.so.6", "[libc.so.6]"),
            ("[unknown]", "[unknown]", "[unknown]"),
            ("a;b", "/x", "a:b [x]"),
        ] {
            assert_eq!(composed(symbol, object), text);
        }
    }

    #[test]
    fn what_was_composed_is_taken_apart_again() {
        let frame = |text| {
            let Frame { symbol, module } = Frame::parse(text);
            (symbol, module)
        };
        assert_eq!(frame("raid5d [raid456]_[k]"), ("raid5d", "raid456"));
        assert_eq!(frame("lo_rw_aio.isra.0_[k]"), ("lo_rw_aio", ""));
        assert_eq!(frame("[libc.so.6]"), ("", "libc.so.6"));
        assert_eq!(frame("operator[]"), ("operator[]", ""));
        assert_eq!(frame("raid5_make_request"), ("raid5_make_request", ""));
        assert_eq!(frame("]"), ("]", ""));
    }
}
