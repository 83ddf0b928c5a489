//! Authorities, certificates and keys for tests, made by GnuTLS' certtool as an operator would make
//! them.
//!
//! What must stay true: every key is made anew for each test and never leaves its folder.

use crate::tools::run;
use crate::world::World;
use std::path::{Path, PathBuf};

/// The program that makes them.
pub const PROGRAM: &str = "certtool";

/// Who a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `localhost` and 127.0.0.1.
    Server,
    /// A client, from now on for two days.
    Client,
    /// A client whose certificate ended years ago.
    LateClient,
}

impl Role {
    fn template(self) -> &'static str {
        match self {
            Role::Server => {
                "cn = server\ndns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\n\
                 signing_key\n\
                 expiration_days = 2\n"
            }
            Role::Client => "cn = client\ntls_www_client\nsigning_key\nexpiration_days = 2\n",
            Role::LateClient => {
                "cn = client\ntls_www_client\nsigning_key\n\
                 activation_date = \"2020-01-01 00:00:00\"\n\
                 expiration_date = \"2020-02-01 00:00:00\"\n"
            }
        }
    }

    /// What QEMU, libnbd and this server call such files.
    fn stem(self) -> &'static str {
        if self == Role::Server { "server" } else { "client" }
    }
}

/// Somebody who certifies others.
pub struct Authority<'a> {
    world: &'a World,
    name: &'static str,
}

impl Authority<'_> {
    /// A new one.
    pub fn new<'a>(world: &'a World, name: &'static str) -> Authority<'a> {
        let authority = Authority { world, name };
        let template = world.path("template");
        let text = format!("cn = {name}\nca\ncert_signing_key\nexpiration_days = 2\n");
        std::fs::write(&template, text).expect("write");
        let [template, key, certificate] =
            [template, authority.key(), authority.certificate()].map(text_of);
        make_key(&key);
        let options = ["--template", &template, "--load-privkey", &key, "--outfile", &certificate];
        run(PROGRAM, &[&["--generate-self-signed"][..], &options].concat());
        authority
    }

    /// One that was made before in this folder.
    pub fn again<'a>(world: &'a World, name: &'static str) -> Authority<'a> {
        Authority { world, name }
    }

    /// Its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.world.path(&format!("{}-ca-cert.pem", self.name))
    }

    fn key(&self) -> PathBuf {
        self.world.path(&format!("{}-ca-key.pem", self.name))
    }

    /// A folder for somebody who trusts this authority and has no certificate.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.world.path(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::copy(self.certificate(), folder.join("ca-cert.pem")).expect("copy");
        folder
    }

    /// Put a new key and a certificate for `role` into `folder`.
    pub fn certify(&self, folder: &Path, role: Role) {
        let template = self.world.path("template");
        std::fs::write(&template, role.template()).expect("write");
        let [key, certificate] =
            ["key", "cert"].map(|kind| text_of(folder.join(format!("{}-{kind}.pem", role.stem()))));
        make_key(&key);
        let [template, ca, ca_key] = [template, self.certificate(), self.key()].map(text_of);
        let of_authority = ["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key];
        let options = ["--template", &template, "--load-privkey", &key, "--outfile", &certificate];
        run(PROGRAM, &[&["--generate-certificate"][..], &of_authority, &options].concat());
    }
}

/// Ed25519: certtool's keys on other curves are now and then a byte too long to be read.
fn make_key(path: &str) {
    let kind = ["--key-type", "ed25519"];
    run(PROGRAM, &[&["--generate-privkey"][..], &kind, &["--outfile", path]].concat());
}

fn text_of(path: PathBuf) -> String {
    path.to_str().expect("text").to_owned()
}
