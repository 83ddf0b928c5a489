//! Intel's ISA-L as Debian ships it, behind safe calls: the oracle of the tests and the peer of the
//! benchmark.
//!
//! The environment variable `ASHLAR_LIBISAL` names another build of it, such as a newer one with
//! GFNI.
//!
//! What must stay true: the library is found when the program runs, so nothing here needs it to be
//! built; every call looks at counts, lengths and alignment before a pointer leaves Rust. This file
//! is the only one that crosses over to C.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};

use ashlar_gf::PARITY_ROWS;
use ashlar_parity::Kernel;

/// What all buffers of a call must be aligned to, and their lengths multiples of.
const GRAIN: usize = 64;
/// Most buffers in one call, results included.
const BUFFERS_MAX: usize = 64;
/// Bytes of ISA-L's tables for one coefficient.
const TABLE_BYTES: usize = 32;
/// `RTLD_NOW`: find every symbol at once.
const NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Raid = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type Encode = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *mut *mut u8, *mut *mut u8);
type EncodeUpdate =
    unsafe extern "C" fn(c_int, c_int, c_int, c_int, *const c_uchar, *const u8, *mut *mut u8);

/// The functions of the library, which is never unloaded.
pub struct Isal {
    xor_gen: Raid,
    pq_gen: Raid,
    pq_check: Raid,
    init_tables: InitTables,
    encode: Encode,
    encode_update: EncodeUpdate,
}

/// Coefficients in the form that the library wants.
pub struct Tables {
    columns: usize,
    rows: usize,
    bytes: Vec<u8>,
}

impl Tables {
    pub fn new(isal: &Isal, rows: &[&[u8]]) -> Tables {
        let columns = rows[0].len();
        assert!(rows.iter().all(|row| row.len() == columns));
        let matrix = rows.concat();
        let mut bytes = vec![0; TABLE_BYTES * matrix.len()];
        // SAFETY: the matrix has columns * rows bytes, and the tables 32 for each of them.
        unsafe {
            (isal.init_tables)(int(columns), int(rows.len()), matrix.as_ptr(), bytes.as_mut_ptr());
        };
        Tables { columns, rows: rows.len(), bytes }
    }

    /// Of the first `parity` rows of our matrix, for `data` strips.
    pub fn of_code(isal: &Isal, data: usize, parity: usize) -> Tables {
        let rows: Vec<&[u8]> = PARITY_ROWS[..parity].iter().map(|row| &row[..data]).collect();
        Tables::new(isal, &rows)
    }
}

/// One name for each of ISA-L's functions: those for one instruction set, or those that choose it.
struct Names {
    xor_gen: &'static CStr,
    pq_gen: &'static CStr,
    encode: &'static CStr,
    encode_update: &'static CStr,
}

const CHOOSING: Names = Names {
    xor_gen: c"xor_gen",
    pq_gen: c"pq_gen",
    encode: c"ec_encode_data",
    encode_update: c"ec_encode_data_update",
};

/// The functions with the instructions of our kernel `kernel`. Checks are SSE code for every CPU.
fn names_for(kernel: Kernel) -> Option<Names> {
    let (xor_gen, pq_gen, encode, encode_update) = match kernel.name() {
        "avx512bw" => (
            c"xor_gen_avx512",
            c"pq_gen_avx512",
            c"ec_encode_data_avx512",
            c"ec_encode_data_update_avx512",
        ),
        "avx2" => {
            (c"xor_gen_avx", c"pq_gen_avx2", c"ec_encode_data_avx2", c"ec_encode_data_update_avx2")
        }
        "ssse3" => {
            (c"xor_gen_sse", c"pq_gen_sse", c"ec_encode_data_sse", c"ec_encode_data_update_sse")
        }
        _ => return None,
    };
    Some(Names { xor_gen, pq_gen, encode, encode_update })
}

impl Isal {
    /// The library, or what to do about its absence. It takes the fastest code for this CPU.
    pub fn load() -> Result<Isal, String> {
        Isal::load_names(&CHOOSING)
    }

    /// The same, held to the instructions of our kernel `kernel`, if it has code for those.
    pub fn load_like(kernel: Kernel) -> Result<Isal, String> {
        let names = names_for(kernel).ok_or_else(|| format!("ISA-L has no code like {kernel}"))?;
        Isal::load_names(&names)
    }

    fn load_names(names: &Names) -> Result<Isal, String> {
        let name = std::env::var("ASHLAR_LIBISAL").unwrap_or_else(|_| "libisal.so.2".to_owned());
        let name = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: the name is a C string, and the library does nothing when it is loaded.
        let library = unsafe { dlopen(name.as_ptr(), NOW) };
        if library.is_null() {
            return Err("libisal.so.2 is not here: apt-get install libisal2".to_owned());
        }
        let raid = |name| {
            // SAFETY: in ISA-L's raid.h the functions asked for below have this type.
            symbol(library, name)
                .map(|found| unsafe { std::mem::transmute::<*mut c_void, Raid>(found) })
        };
        let init_tables = symbol(library, c"ec_init_tables")?;
        let encode = symbol(library, names.encode)?;
        let encode_update = symbol(library, names.encode_update)?;
        Ok(Isal {
            xor_gen: raid(names.xor_gen)?,
            pq_gen: raid(names.pq_gen)?,
            pq_check: raid(c"pq_check")?,
            // SAFETY: its type in ISA-L's erasure_code.h.
            init_tables: unsafe { std::mem::transmute::<*mut c_void, InitTables>(init_tables) },
            // SAFETY: its type in ISA-L's erasure_code.h.
            encode: unsafe { std::mem::transmute::<*mut c_void, Encode>(encode) },
            // SAFETY: its type in ISA-L's erasure_code.h.
            encode_update: unsafe {
                std::mem::transmute::<*mut c_void, EncodeUpdate>(encode_update)
            },
        })
    }

    /// `parity` becomes the XOR of `data`, at least two strips.
    pub fn xor_gen(&self, data: &[&[u8]], parity: &mut [u8]) {
        assert!(data.len() >= 2);
        let mut all = Buffers::of(data);
        all.push(parity.as_mut_ptr(), parity.len());
        // SAFETY: the buffers have equal lengths, and the last, which is written, came from `&mut`.
        let failed = unsafe { (self.xor_gen)(all.count(), all.bytes(), all.pointers()) };
        assert_eq!(failed, 0, "xor_gen");
    }

    /// `p` and `q` become the parity of `data`, at least two strips.
    pub fn pq_gen(&self, data: &[&[u8]], [p, q]: [&mut [u8]; 2]) {
        assert!(data.len() >= 2);
        let mut all = Buffers::of(data);
        all.push(p.as_mut_ptr(), p.len());
        all.push(q.as_mut_ptr(), q.len());
        // SAFETY: the buffers have equal lengths, and the last two, which are written, came from
        // `&mut`.
        let failed = unsafe { (self.pq_gen)(all.count(), all.bytes(), all.pointers()) };
        assert_eq!(failed, 0, "pq_gen");
    }

    /// Whether `p` and `q` are the parity of `data`.
    pub fn pq_check(&self, data: &[&[u8]], [p, q]: [&[u8]; 2]) -> bool {
        assert!(data.len() >= 2);
        let mut all = Buffers::of(data);
        all.push(p.as_ptr().cast_mut(), p.len());
        all.push(q.as_ptr().cast_mut(), q.len());
        // SAFETY: the buffers have equal lengths, and a check writes none of them.
        unsafe { (self.pq_check)(all.count(), all.bytes(), all.pointers()) == 0 }
    }

    /// Each of `outputs` becomes a sum of `sources`, with the coefficients of its row in `tables`.
    pub fn encode(&self, tables: &Tables, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!((tables.columns, tables.rows), (sources.len(), outputs.len()));
        let mut read = Buffers::of(sources);
        let mut written = Buffers::written(outputs);
        assert_eq!(read.bytes, written.bytes);
        let (columns, rows) = (int(tables.columns), int(tables.rows));
        let bytes = read.bytes();
        let table = tables.bytes.as_ptr();
        // SAFETY: tables and pointers are as many as the counts say, all buffers of `bytes` bytes.
        unsafe {
            (self.encode)(bytes, columns, rows, table, read.as_bytes(), written.as_bytes());
        };
    }

    /// Adds `delta` times the coefficients of `column` to `outputs`.
    pub fn update(&self, tables: &Tables, column: usize, delta: &[u8], outputs: &mut [&mut [u8]]) {
        assert!(tables.rows == outputs.len() && column < tables.columns);
        let mut written = Buffers::written(outputs);
        assert_eq!(written.bytes, delta.len());
        let (columns, rows) = (int(tables.columns), int(tables.rows));
        let bytes = written.bytes();
        let table = tables.bytes.as_ptr();
        let source = delta.as_ptr();
        // SAFETY: as for `encode`, and `column` is one of the tables' columns.
        unsafe {
            (self.encode_update)(
                bytes,
                columns,
                rows,
                int(column),
                table,
                source,
                written.as_bytes(),
            );
        };
    }
}

/// A function of the library.
fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open and the name a C string.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    if found.is_null() {
        Err(format!("libisal has no {}", name.to_string_lossy()))
    } else {
        Ok(found)
    }
}

/// Pointers to buffers of one length.
struct Buffers {
    pointers: [*mut u8; BUFFERS_MAX],
    count: usize,
    bytes: usize,
}

impl Buffers {
    fn of(strips: &[&[u8]]) -> Buffers {
        let pointers = [std::ptr::null_mut(); BUFFERS_MAX];
        let mut buffers = Buffers { pointers, count: 0, bytes: strips[0].len() };
        for strip in strips {
            buffers.push(strip.as_ptr().cast_mut(), strip.len());
        }
        buffers
    }

    fn written(strips: &mut [&mut [u8]]) -> Buffers {
        let pointers = [std::ptr::null_mut(); BUFFERS_MAX];
        let mut buffers = Buffers { pointers, count: 0, bytes: strips[0].len() };
        for strip in strips {
            buffers.push(strip.as_mut_ptr(), strip.len());
        }
        buffers
    }

    fn push(&mut self, pointer: *mut u8, bytes: usize) {
        assert!(bytes == self.bytes && bytes.is_multiple_of(GRAIN), "{bytes} bytes");
        assert!(pointer.addr().is_multiple_of(GRAIN), "a buffer that is not aligned");
        self.pointers[self.count] = pointer;
        self.count += 1;
    }

    fn count(&self) -> c_int {
        int(self.count)
    }

    fn bytes(&self) -> c_int {
        int(self.bytes)
    }

    fn pointers(&mut self) -> *mut *mut c_void {
        self.pointers.as_mut_ptr().cast()
    }

    fn as_bytes(&mut self) -> *mut *mut u8 {
        self.pointers.as_mut_ptr()
    }
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("counts and lengths are small")
}
