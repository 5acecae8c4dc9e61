//! The high-water file as bytes: lines, the last whole one counts. It is replaced by a file that is synced
//! before it gets the name, and between that only grows, so that a power loss takes no more than what was
//! added since: a file that took the place of a synced one without being synced itself may come back empty.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::StoreError;
use super::lock::beside;
use crate::points;

/// A larger file is not one that we wrote, and is not believed in part.
const BYTES_MAX: u64 = 1 << 26;

/// A file grows to as much, or to so many times its last line where that is more.
const GROWN_MAX: (u64, u64) = (1 << 16, 4);

/// The lines of the file that were written to their end, oldest first.
pub(super) fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it is too large"));
    }
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    let whole = whole.filter_map(|line| line.strip_suffix(b"\n"));
    Ok(whole.map(<[u8]>::to_vec).collect())
}

/// Adds a line, not synced. False = nothing was done, for the file is to be replaced: it is long, or gone.
pub(super) fn append(path: &Path, line: &str) -> io::Result<bool> {
    let mut file = match OpenOptions::new().append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let bytes = line.len() as u64 + 1;
    let most = GROWN_MAX.0.max(GROWN_MAX.1 * bytes).min(BYTES_MAX);
    if file.metadata()?.len() + bytes > most {
        return Ok(false);
    }
    points::io("highwater.append")?;
    file.write_all(format!("{line}\n").as_bytes())?;
    points::io("highwater.appended")?;
    Ok(true)
}

/// Puts a file of this one line in its place. A crash leaves the old or the new one, power losses included.
pub(super) fn replace(path: &Path, line: &str) -> Result<(), StoreError> {
    let failed = |error| StoreError::file("write", path, error);
    let temporary = beside(path, ".new");
    put(&temporary, path, line).map_err(failed)?;
    sync_folder(path)?;
    points::io("highwater.folder").map_err(failed)
}

fn put(temporary: &Path, path: &Path, line: &str) -> io::Result<()> {
    points::io("highwater.create")?;
    let mut file = File::create(temporary)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    points::io("highwater.written")?;
    file.sync_all()?;
    points::io("highwater.synced")?;
    std::fs::rename(temporary, path)?;
    points::io("highwater.renamed")
}

/// Makes a rename inside the folder of `path` survive a power loss.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StoreError::file("sync the folder of", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_stays_in_its_place_whatever_becomes_of_what_was_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marks");
        assert!(!append(&path, "gone").unwrap());
        replace(&path, "synced").unwrap();
        let synced = std::fs::read(&path).unwrap();
        assert!(append(&path, "added").unwrap());
        let all = std::fs::read(&path).unwrap();
        assert!(all.starts_with(&synced));
        assert_eq!(read(&path).unwrap(), [b"synced".to_vec(), b"added".to_vec()]);
        for length in synced.len()..all.len() {
            // A power loss may leave zeros where the length was written and the bytes were not.
            for rest in [Vec::new(), vec![0; all.len() - length]] {
                std::fs::write(&path, [&all[..length], &rest].concat()).unwrap();
                assert_eq!(read(&path).unwrap(), [b"synced".to_vec()]);
            }
        }
    }

    #[test]
    fn a_file_larger_than_any_of_ours_is_not_believed_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marks");
        replace(&path, "first").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for (length, is_read) in [(BYTES_MAX, true), (BYTES_MAX + 1, false)] {
            file.set_len(length).unwrap();
            assert_eq!(read(&path).is_ok(), is_read);
            assert!(!append(&path, "next").unwrap(), "it is replaced");
        }
    }

    #[test]
    fn a_file_that_has_grown_long_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marks");
        replace(&path, "first").unwrap();
        let line = "x".repeat(999);
        let added = (0..).take_while(|_| append(&path, &line).unwrap()).count();
        assert_eq!(added, 65);
        // A long line may be added some times all the same.
        let line = "x".repeat(100_000);
        replace(&path, &line).unwrap();
        assert!((0..3).all(|_| append(&path, &line).unwrap()));
        assert!(!append(&path, &line).unwrap());
    }
}
