//! Reads the unit file as systemd does, as far as the tests need it.

use std::path::PathBuf;

/// The settings of systemd/creditd.service, in order.
pub struct Unit(Vec<(String, String)>);

/// The file.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("systemd/creditd.service")
}

impl Unit {
    pub fn read() -> Self {
        let text = std::fs::read_to_string(path()).unwrap();
        let settings = text
            .lines()
            .filter(|line| !line.starts_with(['#', '[']) && !line.is_empty())
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(settings.collect())
    }

    /// The last value of a setting.
    #[track_caller]
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().rfind(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("the unit has no {name}=")).1
    }

    /// A setting that is a number of seconds.
    #[track_caller]
    pub fn secs(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap()
    }
}
