//! TLS at our end: the certificate, and a connection that shakes hands when it is first read.

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::future::Future as _;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsFileError {
    /// The file cannot be read, or is not PEM.
    #[error("read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: pem::Error,
    },
    /// There is no certificate in it.
    #[error("{} holds no certificate", .0.display())]
    Empty(PathBuf),
    /// The certificate and the key do not fit together, or either is of a kind that is not known.
    #[error("use the certificate in {}", file.display())]
    Unusable {
        /// The file of the certificate.
        file: PathBuf,
        /// The reason.
        #[source]
        source: rustls::Error,
    },
}

/// A certificate with its key, ready for connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificate chain and the private key, both PEM.
    ///
    /// # Errors
    /// [`TlsFileError`].
    pub fn read(certificate: &Path, key: &Path) -> Result<Tls, TlsFileError> {
        let unreadable = |file: &Path| {
            let file = file.to_owned();
            |source| TlsFileError::Unreadable { file, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unreadable(certificate))?;
        if chain.is_empty() {
            return Err(TlsFileError::Empty(certificate.to_owned()));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
        let unusable = |source| TlsFileError::Unusable {
            file: certificate.to_owned(),
            source,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    pub(super) fn accept(&self, stream: TcpStream) -> Stream {
        Stream::Shaking(Box::new(self.0.accept(stream)))
    }
}

/// A connection, in the clear or not.
pub(super) enum Stream {
    Plain(TcpStream),
    /// Its deadline is that of the first question, as for everything before it.
    Shaking(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// The other side speaks no TLS, or none of ours.
    Failed,
}

impl Stream {
    /// Goes on shaking hands, where that is not done yet.
    fn poll_shaken(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Shaking(shaking) = self {
            *self = match ready!(Pin::new(shaking.as_mut()).poll(context)) {
                Ok(stream) => Stream::Tls(Box::new(stream)),
                Err(error) => {
                    *self = Stream::Failed;
                    return Poll::Ready(Err(error));
                }
            };
        }
        Poll::Ready(Ok(()))
    }
}

fn not_shaken<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_shaken(context))?;
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, into),
            Stream::Shaking(_) | Stream::Failed => not_shaken(),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_shaken(context))?;
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
            Stream::Shaking(_) | Stream::Failed => not_shaken(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
            Stream::Shaking(_) | Stream::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
            Stream::Shaking(_) | Stream::Failed => Poll::Ready(Ok(())),
        }
    }
}
