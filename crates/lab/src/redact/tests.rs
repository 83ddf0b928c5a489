//! No original identifier survives, wherever it stands; facts stay.

use super::redact;
use crate::source::Capture;
use crate::source::folder;
use crate::source::tool::{Ending, Run};
use crate::source::tree::Tree;

/// Invented; every form in which tools print identifiers.
const PLANTED: [&str; 13] = [
    "5000C500DEAD0001",
    "5000c500dead0002",
    "ZQX1B2C3D4",
    "S4N0QRS7T",
    "93817265",
    "stable7-rack12",
    "stable7-rack12.lab.example",
    "192.0.2.77",
    "2001:db8::7:1",
    "02:1a:2b:3c:4d:5e",
    "c7a1f0e2-1b2c-4d3e-8f90-a1b2c3d4e5f6",
    "50-06-05-b0-0a-1b-2c-30",
    "nqn.2019-08.com.example:nvme:ZQX1B2C3D4",
];

fn run(stdout: &str) -> Run {
    let argv = vec!["smartctl".into(), "/dev/disk/by-id/wwn-0x5000c500dead0002".into()];
    Run {
        argv,
        ending: Ending::Exit(1),
        stdout: stdout.into(),
        stderr: "stable7-rack12: no".into(),
    }
}

fn planted() -> Capture {
    let (tree, odd) = Tree::parse(
        "/proc/sys/kernel/hostname = stable7-rack12.lab.example\n\
         /sys/class/sas_phy/phy-1:0/sas_address = 0x5000c500dead0002\n\
         /sys/class/block/sda -> ../wwn-0x5000c500dead0002/stable7-rack12/sda\n\
         /sys/x/by-id/wwn-0x5000c500dead0001 = 02:1a:2b:3c:4d:5e 192.0.2.77 2001:db8::7:1\n\
         /sys/block/sda/device/serial = S4N0QRS7T\n\
         /sys/block/sda/size = 27344764928\n\
         /proc/cmdline = root=UUID=c7a1f0e2-1b2c-4d3e-8f90-a1b2c3d4e5f6 ip=192.0.2.77::\n\
         /sys/bus/pci/devices/0000:05:00.0/class = 0x010700\n",
    );
    assert_eq!(odd, 0);
    let mut capture = Capture { tree, ..Capture::default() };
    let texts = [
        (
            "smartctl-sda",
            "{\"serial_number\":\"ZQX1B2C3D4\",\"wwn\":{\"naa\":5,\"oui\":3152,\"id\":93817265},\
             \"subnqn\":\"nqn.2019-08.com.example:nvme:ZQX1B2C3D4\"}",
        ),
        (
            "dmidecode-memory",
            "Memory Device\n\tSerial Number: S4N0QRS7T\n\tAsset Tag: Not Specified\n\
             \tSpeed: 2400 MT/s\n",
        ),
        ("lspci", "\tCapabilities: [1b8 v1] Device Serial Number 50-06-05-b0-0a-1b-2c-30\n"),
        (
            "smp_discover-5000C500DEAD0001",
            "  phy  12:U:attached:[5000c500dead0002:00  t(SSP)]  12 Gbps\nsda_ZQX1B2C3D4-part1\n",
        ),
    ];
    for (name, text) in texts {
        capture.runs.insert(name.into(), run(text));
    }
    capture
}

/// Everything a written capture consists of: names of files and what they hold.
fn all_text(capture: &Capture) -> String {
    fn walk(folder: &std::path::Path, out: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            out.push_str(&path.file_name().expect("a name").to_string_lossy());
            out.push('\n');
            match path.is_dir() {
                true => walk(&path, out),
                false => out.push_str(&std::fs::read_to_string(&path).expect("text")),
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    folder::write(capture, folder.path()).expect("written");
    let mut out = String::new();
    walk(folder.path(), &mut out);
    out
}

#[test]
fn no_identifier_survives_in_names_or_contents() {
    let before = all_text(&planted()).to_lowercase();
    let (redacted, counts) = redact(&planted(), "salt");
    let after = all_text(&redacted).to_lowercase();
    for identifier in PLANTED {
        let identifier = identifier.to_lowercase();
        assert!(before.contains(&identifier), "{identifier} is not planted");
        assert!(!after.contains(&identifier), "{identifier} survives in\n{after}");
    }
    assert_eq!(counts["host names"], 2);
    assert!(after.contains("\"is_redacted\": true"));
}

#[test]
fn facts_and_places_stay() {
    let (redacted, _) = redact(&planted(), "salt");
    let after = all_text(&redacted);
    for fact in [
        "27344764928",
        "0000:05:00.0",
        "2400 MT/s",
        "Not Specified",
        "phy-1:0/",
        "12 Gbps",
        "0x010700",
    ] {
        assert!(after.contains(fact), "{fact} is gone from\n{after}");
    }
}

#[test]
fn one_salt_gives_one_name_and_another_salt_another() {
    let text = |salt| all_text(&redact(&planted(), salt).0);
    assert_eq!(text("a"), text("a"));
    assert_ne!(text("a"), text("b"));
    // One WWN printed by two tools is still one WWN.
    let after = text("a");
    let (_, rest) = after.split_once("sas_address = 0x").expect("there");
    assert!(after.matches(&rest[..16]).count() >= 3, "{after}");
}

/// Numbers by chance from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let at = self.below(u64::try_from(all.len()).expect("few"));
        &all[usize::try_from(at).expect("few")]
    }

    fn letters(&mut self, from: &str, count: u64) -> String {
        let from: Vec<char> = from.chars().collect();
        (0..count).map(|_| *self.of(&from)).collect()
    }

    fn hex(&mut self, count: u64) -> String {
        loop {
            let digits = self.letters("0123456789abcdef", count);
            let various: std::collections::BTreeSet<char> = digits.chars().collect();
            // Chance makes such a one nearly always; others are told from masks and counts by
            // nobody.
            if various.len() >= 5 && digits.chars().any(|c| c.is_ascii_alphabetic()) {
                return digits;
            }
        }
    }
}

/// Digits in groups of these lengths, with a sign between them.
fn grouped(digits: &str, lengths: &[usize], sign: &str) -> String {
    let mut rest = digits;
    let mut groups = Vec::new();
    for length in lengths {
        let (group, after) = rest.split_at(*length);
        groups.push(group);
        rest = after;
    }
    groups.join(sign)
}

/// A secret, every way to write it, and texts around it.
struct Secret {
    ways: Vec<String>,
    frames: Vec<&'static str>,
    /// What must not be left of it, without signs and in small letters.
    traces: Vec<String>,
}

fn mac(chance: &mut Chance) -> Secret {
    let digits = chance.hex(12);
    let ways = [
        grouped(&digits, &[2; 6], ":"),
        grouped(&digits, &[2; 6], "-"),
        grouped(&digits, &[2; 6], "-").to_uppercase(),
        grouped(&digits, &[4; 3], "."),
        format!("enx{digits}"),
        digits.clone(),
    ];
    let frames = vec![
        "link/ether @ brd ff:ff:ff:ff:ff:ff",
        "/sys/class/net/@/address",
        "lan-@-up",
        "mac=@,ip=dhcp",
        "@: <UP> mtu 1500",
    ];
    Secret { ways: ways.into(), frames, traces: vec![digits] }
}

fn guid(chance: &mut Chance) -> Secret {
    let digits = chance.hex(16);
    let ways = [
        format!("0x{digits}"),
        grouped(&digits, &[4; 4], ":"),
        grouped(&digits, &[2; 8], ":"),
        grouped(&digits, &[2; 8], "-"),
        digits.to_uppercase(),
        format!("eui.{digits}"),
    ];
    let frames = vec!["Node GUID: @", "port @ active", "node_guid @", "by-id/nvme-@-part1", "(@)"];
    Secret { ways: ways.into(), frames, traces: vec![digits] }
}

fn uuid(chance: &mut Chance) -> Secret {
    let digits = chance.hex(32);
    let ways = [
        grouped(&digits, &[8, 4, 4, 4, 12], "-"),
        grouped(&digits, &[8; 4], ":"),
        grouped(&digits, &[8, 4, 4, 4, 12], "-").to_uppercase(),
    ];
    let frames =
        vec!["root=UUID=@ ro", "nqn.2014-08.org.nvmexpress:uuid:@", "UUID : @", "dm-uuid-part1-@"];
    Secret { ways: ways.into(), frames, traces: vec![digits] }
}

fn v4(chance: &mut Chance) -> Secret {
    let octets = [
        130 + chance.below(90),
        100 + chance.below(150),
        10 + chance.below(200),
        10 + chance.below(200),
    ];
    let own = octets.map(|octet| octet.to_string()).join(".");
    let frames = vec![
        "traddr=@,trsvcid=4420",
        "@:4420 up",
        "@-10.0.0.99",
        "inet @/24 brd",
        "[@]:3260,1",
        "ip=@::@:255.255.255.0",
        "::ffff:@ up",
        "see @.",
    ];
    let [a, b, c, d] = octets;
    let ways = vec![own.clone(), format!("ip-{a}-{b}-{c}-{d}"), own.clone()];
    let traces = vec![own.replace('.', "")];
    Secret { ways, frames, traces }
}

fn v6(chance: &mut Chance) -> Secret {
    let [a, b] = [4, 4].map(|count| chance.letters("123456789abcdef", count));
    let ways = vec![
        format!("2001:db8::{a}:{b}"),
        format!("2001:0db8:0:0:0:0:{a}:{b}"),
        format!("2001:DB8::{a}:{b}"),
    ];
    let frames = vec!["inet6 @/64 scope", "[@]:4420 up", "@-2001:db8::1", "traddr=@ x"];
    Secret { ways, frames, traces: vec![format!("{a}{b}")] }
}

fn host(chance: &mut Chance) -> Secret {
    let name = format!("{}-{}", chance.letters("bcdfghkmnp", 5), chance.below(90) + 10);
    let domain = format!("{}.example", chance.letters("qrstvwxz", 7));
    let ways = vec![name.clone(), format!("{name}.{domain}")];
    let frames = vec![
        "Static hostname: @",
        "hostname=@, be=0, 64-bit",
        "Linux @ 6.1.0-18-amd64 #1 SMP",
        "see ops@@ for help",
        "{\"hostname\":\"@\"}",
    ];
    let plain = |text: &str| text.replace(['-', '.'], "");
    Secret { ways, frames, traces: vec![plain(&name), plain(&domain)] }
}

fn qualified(chance: &mut Chance) -> Secret {
    let name = format!("{}{}", chance.letters("bcdfghkmnp", 5), chance.below(90) + 10);
    let domain = chance.letters("qrstvwxz", 7);
    let ways = vec![
        format!("nqn.2019-08.com.{domain}:nvme:{name}"),
        format!("iqn.2004-10.com.{domain}:storage.{name}"),
    ];
    let frames = vec!["subnqn : @", "InitiatorName=@", "\"nqn\" : \"@\",", "connect -n @ -t tcp"];
    Secret { ways, frames, traces: vec![name, domain] }
}

fn serial_number(chance: &mut Chance) -> Secret {
    let own =
        format!("{}{}", chance.letters("BCDFGHKMNPQRSTVWXZ", 4), chance.letters("123456789", 6));
    let frames = vec![
        "Serial Number:    @",
        "sn        : @",
        "{\"serial_number\": \"@\"}",
        "ID_SERIAL_SHORT=@",
        "ata-ST4000DM004-2CV104_@-part1",
        "nvme-Samsung_SSD_980_PRO_1TB_@_1",
        "Node          SN         Model\n------------- ---------- -----\n/dev/nvme0n1  @ PM983",
        "NAME     SERIAL SIZE\nsda  @ 3.6T",
        "name,serial,size\nsda,@,3.6T",
        "| drive | S/N | slot |\n| sda | @ | 4 |",
    ];
    let traces = vec![own.to_lowercase()];
    Secret { ways: vec![own], frames, traces }
}

fn without_signs(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

/// A serial number that a table of drives named in one file was once left in all the others.
#[test]
fn nothing_of_a_secret_is_left_however_it_is_written_and_its_name_is_always_the_same() {
    let kinds = [mac, guid, uuid, v4, v6, host, qualified, serial_number];
    for seed in 1..=100_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut capture = Capture::default();
        let mut traces = Vec::new();
        for make in kinds {
            let secret = make(&mut chance);
            for at in 0..6 {
                let (way, frame) = (chance.of(&secret.ways), chance.of(&secret.frames));
                let name = format!("tool-{}", capture.runs.len());
                capture.runs.insert(
                    name,
                    run(&format!("fact 27344764928\n{}\n\nx {at}\n", frame.replace('@', way))),
                );
            }
            traces.extend(secret.traces);
        }
        let before = without_signs(&all_text(&capture));
        let (redacted, _) = redact(&capture, "salt");
        let text = all_text(&redacted);
        let after = without_signs(&text);
        // Not all ways of writing one show all of it.
        let planted = traces.iter().filter(|trace| before.contains(trace.as_str()));
        assert!(planted.clone().count() >= kinds.len(), "seed {seed}: {traces:?} are not there");
        for trace in planted {
            assert!(!after.contains(trace.as_str()), "seed {seed}: {trace} is left in\n{text}");
        }
        let facts = text.matches("fact 27344764928").count();
        assert_eq!(facts, capture.runs.len(), "seed {seed}: a fact is gone from\n{text}");
    }
}

/// One secret in all the ways to write it is one secret afterwards.
#[test]
fn one_secret_has_one_name_in_every_way_of_writing() {
    for seed in 1..=200_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for make in [mac, guid, uuid] {
            let secret = make(&mut chance);
            let mut capture = Capture::default();
            capture.runs.insert("all".into(), run(&secret.ways.join("\n")));
            let (redacted, _) = redact(&capture, "salt");
            let digits = |line: &str| {
                let plain = without_signs(line);
                ["enx", "0x", "eui"].iter().fold(plain, |it, name| it.replacen(name, "", 1))
            };
            let names: std::collections::BTreeSet<String> =
                redacted.runs["all"].stdout.lines().map(digits).collect();
            assert_eq!(names.len(), 1, "seed {seed}: {:?} became {names:?}", secret.ways);
        }
    }
}

/// What has the look of an identifier to somebody in a hurry and is a fact.
#[test]
fn facts_of_tools_stay_as_they_are() {
    let facts = "\
        Kernel 6.1.0-18-amd64, firmware 24.15.0-0021, driver 5.4.0\n\
        0000:05:00.0 Non-Volatile memory controller: Intel Corporation NVMe\n\
        cpu mask 00000000,ffffffff node0 0-15 size 4000787030016 bytes\n\
        Capabilities: [100 v2] LnkSta: Speed 8GT/s, Width x4\n\
        irq 129 at 12:34:56 on 2024-05-06, 0x010700, 255.255.255.0\n\
        NAME KNAME SIZE MODEL\n\
        sda  sda   3.6T ST4000DM004-2CV104\n\
        Serial Attached SCSI controller: Broadcom SAS3008\n\
        Serial: none\n\
        rx_packets: 1234567890123456\n";
    let mut capture = Capture::default();
    capture.runs.insert("tool".into(), Run { stderr: String::new(), ..run(facts) });
    let (redacted, _) = redact(&capture, "salt");
    assert_eq!(redacted.runs["tool"].stdout, facts);
}
