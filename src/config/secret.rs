//! Secrets and where they are read from. A [`Secret`] prints as `***` everywhere; only [`Secret::reveal`]
//! shows it, so a search for that word finds every use.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The largest secret file that is read: a path to something else by mistake must not fill the memory.
const SECRET_BYTES_MAX: u64 = 4096;

/// A password or another text that must never be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A file that holds a secret. It is read when the secret is used, so that commands which need none run
/// without permission to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFile {
    /// A path.
    Path(PathBuf),
    /// The name of a credential that systemd passes (`LoadCredential=`) in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

/// Why a secret cannot be read. Names the file, never its content.
#[derive(Debug, Error)]
pub enum SecretError {
    /// No credentials directory: we were not started by systemd, or the unit passes no credential.
    #[error("credential:{0} needs $CREDENTIALS_DIRECTORY, which systemd sets for units with LoadCredential=")]
    NoDirectory(String),
    /// The file cannot be read.
    #[error("read secret from {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file is empty, too large or not text.
    #[error("{file} holds no secret: it must be one line of text of at most {SECRET_BYTES_MAX} bytes")]
    NotASecret {
        /// The file.
        file: String,
    },
}

impl SecretFile {
    /// Reads the text of a config value: `credential:NAME`, or a path that is relative to `folder`. `None` if
    /// empty, or if the name of the credential is not that of a file.
    pub(super) fn from_config(text: &str, folder: &Path) -> Option<SecretFile> {
        match text.strip_prefix("credential:") {
            Some(name) if name.is_empty() || name.starts_with('.') || name.contains('/') => None,
            Some(name) => Some(SecretFile::Credential(name.to_owned())),
            None if text.is_empty() => None,
            None => Some(SecretFile::Path(folder.join(text))),
        }
    }

    /// Where the file is now.
    ///
    /// # Errors
    /// [`SecretError::NoDirectory`] for a credential outside of systemd.
    pub fn path(&self) -> Result<PathBuf, SecretError> {
        match self {
            SecretFile::Path(path) => Ok(path.clone()),
            SecretFile::Credential(name) => std::env::var_os("CREDENTIALS_DIRECTORY")
                .map(|folder| Path::new(&folder).join(name))
                .ok_or_else(|| SecretError::NoDirectory(name.clone())),
        }
    }

    /// Reads the secret; line breaks at its end are not part of it.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn read(&self) -> Result<Secret, SecretError> {
        let path = self.path()?;
        let file = || path.display().to_string();
        let text = match read_secret_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::InvalidData => String::new(),
            Err(source) => return Err(SecretError::Unreadable { file: file(), source }),
        };
        let line = text.trim_end_matches(['\n', '\r']);
        if line.is_empty() || line.contains(['\n', '\r']) {
            return Err(SecretError::NotASecret { file: file() });
        }
        Ok(Secret(line.to_owned()))
    }
}

/// The text of a file that should hold a secret. A path to a pipe would wait for whoever writes to it, and
/// one to a device may never end, so only plain files are opened, and no more of them is read than a secret
/// has.
///
/// # Errors
/// Those of the system; `InvalidInput` for what is no plain file, `InvalidData` for what is no text or too
/// much.
pub fn read_secret_text(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a plain file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(SECRET_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        let why = format!("more than {SECRET_BYTES_MAX} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints_itself() {
        let secret = Secret::new("hunter2".into());
        assert_eq!(
            format!("{secret} {secret:?} {:#?}", Some(&secret)),
            "*** *** Some(\n    ***,\n)"
        );
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[test]
    fn secret_files_hold_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let cases: &[(&[u8], Option<&str>)] = &[
            (b"hunter2", Some("hunter2")),
            (b"hunter2\n", Some("hunter2")),
            (b"hunter2\r\n", Some("hunter2")),
            (b" with spaces ", Some(" with spaces ")),
            (b"", None),
            (b"\n", None),
            (b"two\nlines\n", None),
            (b"\xff\xfe", None),
            (&[b'x'; 5000], None),
        ];
        for (content, expected) in cases {
            std::fs::write(folder.path().join("secret"), content).unwrap();
            let file = SecretFile::from_config("secret", folder.path()).unwrap();
            let got = file.read().ok();
            assert_eq!(got.as_ref().map(Secret::reveal), *expected, "{content:?}");
        }
        for endless in ["/dev/zero", "/dev/tty", "/"] {
            let file = SecretFile::from_config(endless, folder.path()).unwrap();
            assert!(
                matches!(file.read(), Err(SecretError::Unreadable { .. })),
                "{endless}"
            );
        }
        let gone = SecretFile::from_config("gone", folder.path()).unwrap();
        assert!(matches!(gone.read(), Err(SecretError::Unreadable { .. })));
        for bad in ["", "credential:", "credential:../passwd", "credential:.x"] {
            assert_eq!(SecretFile::from_config(bad, folder.path()), None, "{bad}");
        }
    }
}
