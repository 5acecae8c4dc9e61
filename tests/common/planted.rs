//! How many faults were planted into the books, and how many of them were found: figures for people.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::Mutex;

use serde_json::{Value, json};

/// The file that the figures are added to, by however many tests; without it nothing is left.
const FILE: &str = "CREDITD_TEST_AUDIT";

/// Of each kind, how often it was planted and how often it was found.
#[derive(Debug, Default)]
pub struct Figures(Mutex<BTreeMap<String, [u64; 2]>>);

impl Figures {
    pub fn count(&self, kind: &str, is_found: bool) {
        let mut kinds = self.0.lock().unwrap();
        let [planted, found] = kinds.entry(kind.to_owned()).or_default();
        *planted += 1;
        *found += u64::from(is_found);
    }

    /// Adds them to the file, as `{"kinds":{KIND:{"planted":1,"found":1}}}`.
    pub fn leave(&self) {
        let Some(path) = std::env::var_os(FILE) else {
            return;
        };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        file.lock().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let mut all: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({ "kinds": {} }));
        for (kind, [planted, found]) in self.0.lock().unwrap().iter() {
            let before = |name: &str| all["kinds"][kind][name].as_u64().unwrap_or_default();
            let sums = json!({ "planted": before("planted") + planted, "found": before("found") + found });
            all["kinds"][kind] = sums;
        }
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(format!("{all:#}\n").as_bytes()).unwrap();
    }
}

/// Changes a file past the guards of its tables, which `drops` takes away: they stand again afterwards, as
/// creditd starts on no file without them.
pub fn past_guards(file: &rusqlite::Connection, drops: &str, change: impl FnOnce(&rusqlite::Connection)) {
    let all = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
    let mut guards = file.prepare(all).unwrap();
    let guards = guards.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let guards: Vec<(String, String)> = guards.unwrap().collect::<Result<_, _>>().unwrap();
    file.execute_batch(drops).unwrap();
    change(file);
    for (name, guard) in guards {
        let there = "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1";
        if !file.prepare(there).unwrap().exists([name]).unwrap() {
            file.execute_batch(&guard).unwrap();
        }
    }
}
