//! Where a database file is. SQLite opens what a link leads to and names its log after that, so everything
//! of ours that lies beside the file goes by the same name: the path is resolved once, when it is opened.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{OpenMode, StoreError};

/// The path without links of the database that is configured as `path`; of one that is still to be made if a
/// daemon opens it.
pub(super) fn resolve(path: &Path, mode: OpenMode) -> Result<PathBuf, StoreError> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return new_place(path, mode),
        Err(error) => return Err(StoreError::file("find", path, error)),
    };
    let real = match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && found.is_symlink() => {
            return Err(leads_nowhere(path));
        }
        other => other.map_err(|error| StoreError::file("find", path, error))?,
    };
    let file = real
        .metadata()
        .map_err(|error| StoreError::file("find", path, error))?;
    let refused = |what: &str| Err(StoreError::Refused(format!("{} {what}", path.display())));
    if file.is_dir() {
        return refused("is a folder: name a file in it as `database` in the config");
    }
    if !file.is_file() {
        return refused("is no regular file: name one as `database` in the config");
    }
    if file.nlink() > 1 {
        // Each name would have a log and a lock of its own, and SQLite and two daemons would not see them.
        return refused(
            "has hard links, and a database must have one name: find the others with `find -samefile` and \
             remove them",
        );
    }
    Ok(real)
}

fn new_place(path: &Path, mode: OpenMode) -> Result<PathBuf, StoreError> {
    let (Some(folder), Some(name), OpenMode::Daemon) = (path.parent(), path.file_name(), mode) else {
        return Err(StoreError::Missing(path.to_owned()));
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    match folder.canonicalize() {
        Ok(folder) => Ok(folder.join(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::Refused(format!(
            "there is no folder {} for the database: make it, or name another as `database` in the config",
            folder.display()
        ))),
        Err(error) => Err(StoreError::file("find", folder, error)),
    }
}

fn leads_nowhere(path: &Path) -> StoreError {
    let target = path.read_link().unwrap_or_default();
    StoreError::Refused(format!(
        "{} is a link to {}, where nothing is: mount what belongs there, or remove the link",
        path.display(),
        target.display()
    ))
}
