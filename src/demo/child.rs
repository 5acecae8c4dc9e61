//! The real creditd as child processes of the same binary: the daemon, and commands beside it.

use super::DemoError;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A config with the daemon and the commands that run on it.
pub(super) struct Creditd {
    exe: PathBuf,
    folder: PathBuf,
    daemon: Option<Child>,
}

impl Creditd {
    /// Writes the config into `folder`.
    pub(super) fn new(folder: &Path, config: &str) -> Result<Creditd, DemoError> {
        let creditd = Creditd {
            exe: std::env::current_exe()?,
            folder: folder.to_owned(),
            daemon: None,
        };
        std::fs::write(creditd.config_file(), config)?;
        Ok(creditd)
    }

    pub(super) fn exe(&self) -> &Path {
        &self.exe
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.folder.join("creditd.toml")
    }

    pub(super) fn database(&self) -> PathBuf {
        self.folder.join("creditd.db")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.folder.join("creditd.log")
    }

    /// Starts the daemon. It may still be opening its database when this returns.
    pub(super) fn start(&mut self) -> Result<(), DemoError> {
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let mut command = self.command(&["run"]);
        command.stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn()?);
        Ok(())
    }

    /// True if a daemon was started and has ended without being asked to.
    pub(super) fn has_ended(&mut self) -> bool {
        self.daemon
            .as_mut()
            .is_some_and(|daemon| !matches!(daemon.try_wait(), Ok(None)))
    }

    /// Ends the daemon without warning, as a power cut would.
    pub(super) fn kill9(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// Asks the daemon to end, and says whether it did so in good order.
    pub(super) fn stop(&mut self) -> Result<bool, DemoError> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(false);
        };
        // The shell's own `kill`: there is one on every machine, and no unsafe code is needed.
        Command::new("sh")
            .args(["-c", "kill -TERM \"$1\"", "sh", &daemon.id().to_string()])
            .status()?;
        Ok(daemon.wait()?.success())
    }

    /// What a command answers; an error if it refuses.
    pub(super) fn answer(&self, args: &[&str]) -> Result<String, DemoError> {
        let output = self.command(args).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(DemoError::Command {
            line: args.join(" "),
            why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// The same in JSON.
    pub(super) fn json(&self, args: &[&str]) -> Result<Value, DemoError> {
        let answer = self.answer(&[args, &["--json"]].concat())?;
        serde_json::from_str(&answer).map_err(|error| DemoError::Command {
            line: args.join(" "),
            why: error.to_string(),
        })
    }

    /// Nothing of the caller's own settings may reach a child.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CREDITD_") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        command
            .current_dir(&self.folder)
            .arg("--config")
            .arg(self.config_file())
            .args(args)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Creditd {
    fn drop(&mut self) {
        self.kill9();
    }
}
