//! The file that `--report` names.

use super::Problem;
use anyhow::Context as _;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that gets its name once the whole report is in it, and is gone if it never does. Begun before the
/// work: an hour later is late to hear that it cannot be written.
pub(super) struct ReportFile<'a> {
    name: &'a Path,
    partial: PathBuf,
    file: File,
}

impl ReportFile<'_> {
    /// Takes the place of an earlier report and of nothing else: a slip of the hand names the database.
    pub(super) fn begin(name: &Path) -> anyhow::Result<ReportFile<'_>> {
        refuse_others(name)?;
        let mut partial = name.as_os_str().to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        let mut options = OpenOptions::new();
        // It may quote rows of the ledger.
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&partial).with_context(|| doing(name))?;
        Ok(ReportFile { name, partial, file })
    }

    pub(super) fn end(mut self, report: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report).with_context(|| doing(self.name))?;
        let written = writeln!(self.file, "{text}").and_then(|()| self.file.sync_all());
        let named = written.and_then(|()| std::fs::rename(&self.partial, self.name));
        named.with_context(|| doing(self.name))
    }
}

impl Drop for ReportFile<'_> {
    fn drop(&mut self) {
        // Gone already where it has its name.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn refuse_others(name: &Path) -> anyhow::Result<()> {
    let kind = match std::fs::metadata(name) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| doing(name)),
    };
    let mut first = [0; 1];
    let is_report = kind.is_file()
        && match File::open(name).and_then(|mut file| file.read(&mut first)) {
            Ok(0) => true,
            Ok(_) => first == *b"{",
            Err(error) => return Err(error).with_context(|| doing(name)),
        };
    if is_report {
        return Ok(());
    }
    let found = format!("{} is there, and is no report", name.display());
    Err(Problem::misuse(found, "name a new file, or an earlier report").into())
}

fn doing(name: &Path) -> String {
    format!("write the report {}", name.display())
}
