//! The TLS terms of a listener: its certificate and key, and the authority of its clients.
//!
//! What must stay true: a key that others than its owner may read is refused, and so is any file
//! that others than root and this process's user may change. A fault names the file and its defect
//! in one line, and never prints its contents.

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of certificates that is longer, in bytes, is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where certificate, key and authority are, each in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and after it those between it and its authority.
    pub certificate: PathBuf,
    /// The server's private key, readable by its owner only.
    pub key: PathBuf,
    /// The authority whose clients are let in; several certificates are several authorities.
    pub ca: PathBuf,
}

impl TlsFiles {
    /// The files of a folder, named as QEMU, libnbd and nbdkit name them: `server-cert.pem`,
    /// `server-key.pem`, `ca-cert.pem`.
    pub fn in_folder(folder: &Path) -> TlsFiles {
        let [certificate, key, ca] =
            ["server-cert.pem", "server-key.pem", "ca-cert.pem"].map(|name| folder.join(name));
        TlsFiles { certificate, key, ca }
    }
}

/// What is wrong with a file, in one line that names it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {what}", file.display())]
pub struct TlsFileError {
    file: PathBuf,
    what: String,
}

/// Certificate, key and authority of a listener, ready for use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsTerms(pub(super) Arc<ServerConfig>);

impl TlsTerms {
    /// Read the files.
    ///
    /// # Errors
    /// The first file that cannot be read or used, and why.
    pub fn read(files: &TlsFiles) -> Result<TlsTerms, TlsFileError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = clients_of(&files.ca, &provider)?;
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let wrong = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => fault(
                &files.key,
                format!("not the key of the certificate in {}", files.certificate.display()),
            ),
            rustls::Error::InvalidCertificate(error) => {
                fault(&files.certificate, format!("the certificate cannot be used: {error}"))
            }
            error => fault(&files.key, format!("the key cannot be used: {error}")),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(wrong)?;
        // A resumed session would not show its certificate again, and so would outlive it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsTerms(Arc::new(config)))
    }
}

/// Lets in whom an authority of the file has certified.
fn clients_of(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(file)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            fault(file, format!("certificate {} of it cannot be used: {error}", index + 1))
        })?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| fault(file, format!("cannot be an authority: {error}")))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = read(file, |_| Ok(()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| fault(file, format!("not a file in PEM form: {error}")))?;
    if found.is_empty() {
        return Err(fault(file, "there is no certificate in PEM form in it".to_owned()));
    }
    Ok(found)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let text = read(file, |mode| match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!(
            "others may read or change this key (mode {:04o}); chmod 600 it",
            mode & 0o7777
        )),
    })?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let what = match error {
            PemError::NoItemsFound => "there is no key in PEM form in it without a passphrase",
            _ => "not a file in PEM form",
        };
        fault(file, what.to_owned())
    })
}

/// Checks that only root and this process's user may change an open file.
///
/// # Errors
/// Who may, and what to do about it.
pub fn only_we_change(about: &Metadata) -> Result<(), String> {
    let (owner, mode) = (about.uid(), about.permissions().mode());
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {owner}, who may change it; chown it to root"));
    }
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(format!("others may change it (mode {:04o}); chmod go-w it", mode & 0o7777)),
    }
}

/// The whole file, if `allows` has nothing against its mode.
fn read(
    file: &Path,
    allows: impl FnOnce(u32) -> Result<(), String>,
) -> Result<Vec<u8>, TlsFileError> {
    let mut text = Vec::new();
    let opened = File::open(file).and_then(|opened| Ok((opened.metadata()?, opened)));
    let (about, opened) = opened.map_err(|error| fault(file, error.to_string()))?;
    if !about.is_file() {
        return Err(fault(file, "not a file".to_owned()));
    }
    let allowed = allows(about.permissions().mode()).and_then(|()| only_we_change(&about));
    allowed.map_err(|what| fault(file, what))?;
    let taken = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    taken.map_err(|error| fault(file, error.to_string()))?;
    match u64::try_from(text.len()) {
        Ok(0..=FILE_BYTES_MAX) => Ok(text),
        _ => Err(fault(file, "too long to be a file of certificates".to_owned())),
    }
}

fn fault(file: &Path, what: String) -> TlsFileError {
    TlsFileError { file: file.to_owned(), what }
}
