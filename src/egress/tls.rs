//! How TLS is spoken: rustls with ring, and whose certificates are believed.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why TLS cannot be spoken as configured.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file cannot be read, or is not PEM.
    #[error("read certificates from {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: pem::Error,
    },
    /// A certificate in it is damaged.
    #[error("{} holds a damaged certificate", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: rustls::Error,
    },
    /// There is no certificate in it.
    #[error("{} holds no certificate", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The TLS library does not start.
    #[error("start TLS")]
    Library(#[source] rustls::Error),
}

/// A client that believes the authorities that browsers do, and those in the file `ca_file`.
///
/// The former are compiled in: an image without `/etc/ssl` works, and which machine we run on changes
/// nothing. They change a few times a year, and a receiver under a newer one can be reached through
/// `ca_file`.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(file) = ca_file {
        add_file(&mut roots, file)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    let file = || path.to_owned();
    let unreadable = |source| TlsError::Unreadable { file: file(), source };
    let mut is_empty = true;
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        let certificate = certificate.map_err(unreadable)?;
        roots
            .add(certificate)
            .map_err(|source| TlsError::Damaged { file: file(), source })?;
        is_empty = false;
    }
    if is_empty {
        return Err(TlsError::Empty { file: file() });
    }
    Ok(())
}
