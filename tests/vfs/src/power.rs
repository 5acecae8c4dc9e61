//! A power loss: all that was not synced is undone, and then, file by file, nothing of it, all of it, a part
//! of it in order or any part of it comes back, its last write perhaps cut at any byte.

use std::io;
use std::path::Path;

use crate::state::{Step, Watched, with};

/// What a power loss took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Writes and cuts that are gone.
    pub writes: u32,
    /// Writes of which a part is gone.
    pub torn: u32,
    /// Files of which a later write is there and an earlier one is gone.
    pub reordered: u32,
    /// Files that were made or removed, and were not.
    pub entries: u32,
}

/// What happened to a file, so that it can happen again.
enum Redo {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate(usize),
    Create,
    Delete,
}

impl Redo {
    fn is_entry(&self) -> bool {
        matches!(self, Redo::Create | Redo::Delete)
    }
}

/// After [`kill`](crate::kill), with every handle closed. `next(n)` draws a number below `n`.
///
/// # Panics
/// If a handle is open, or a file cannot be written.
pub fn lose_power(next: &mut dyn FnMut(u64) -> u64) -> Lost {
    let (open, files) = with(|seed| (seed.open, std::mem::take(&mut seed.files)));
    assert!(open == 0, "{open} handles are open");
    let mut lost = Lost::default();
    for file in files {
        if !file.steps.is_empty() {
            let path = file.path.clone();
            let done = lose(file, next, &mut lost);
            assert!(done.is_ok(), "{}: {done:?}", path.display());
        }
    }
    lost
}

fn lose(file: Watched, next: &mut dyn FnMut(u64) -> u64, lost: &mut Lost) -> io::Result<()> {
    let mut image = match std::fs::read(&file.path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let is_there = !matches!(
        file.steps
            .iter()
            .rfind(|step| matches!(step, Step::Create | Step::Delete { .. })),
        Some(Step::Delete { .. })
    );
    if is_there != image.is_some() {
        // It was renamed or removed from outside, by somebody who syncs for himself.
        return Ok(());
    }
    let mut redos: Vec<Redo> = file
        .steps
        .into_iter()
        .rev()
        .map(|step| undo(step, &mut image))
        .collect();
    redos.reverse();
    let entries: Vec<usize> = (0..redos.len()).filter(|at| redos[*at].is_entry()).collect();
    let survive = next(entries.len() as u64 + 1) as usize;
    lost.entries += (entries.len() - survive) as u32;
    let begin = match survive.checked_sub(1).map(|last| entries[last]) {
        None => 0,
        Some(at) => {
            image = matches!(redos[at], Redo::Create).then(Vec::new);
            at + 1
        }
    };
    let end = entries.get(survive).copied().unwrap_or(redos.len());
    if let Some(image) = &mut image {
        redo(&redos[begin..end], image, next, lost);
    }
    put(&file.path, image)
}

fn undo(step: Step, image: &mut Option<Vec<u8>>) -> Redo {
    match step {
        Step::Write {
            offset,
            len,
            old,
            old_size,
            ..
        } => {
            let bytes = image.get_or_insert_default();
            let offset = offset as usize;
            let new = bytes[offset..offset + len].to_vec();
            bytes[offset..offset + old.len()].copy_from_slice(&old);
            bytes.truncate(old_size as usize);
            Redo::Write { offset, bytes: new }
        }
        Step::Truncate { size, tail } => {
            image.get_or_insert_default().extend(tail);
            Redo::Truncate(size as usize)
        }
        Step::Create => {
            *image = None;
            Redo::Create
        }
        Step::Delete { content } => {
            *image = Some(content);
            Redo::Delete
        }
    }
}

/// Some of `redos` happen again.
fn redo(redos: &[Redo], image: &mut Vec<u8>, next: &mut dyn FnMut(u64) -> u64, lost: &mut Lost) {
    let all = redos.len();
    let chosen: Vec<bool> = match next(4) {
        0 => vec![false; all],
        1 => vec![true; all],
        2 => {
            let some = next(all as u64 + 1) as usize;
            (0..all).map(|at| at < some).collect()
        }
        _ => (0..all).map(|_| next(2) == 1).collect(),
    };
    let last = chosen.iter().rposition(|is_chosen| *is_chosen);
    let first_lost = chosen.iter().position(|is_chosen| !*is_chosen);
    lost.writes += chosen.iter().filter(|is_chosen| !**is_chosen).count() as u32;
    lost.reordered += u32::from(first_lost.is_some_and(|first| last.is_some_and(|last| first < last)));
    for (at, redo) in redos.iter().enumerate() {
        match redo {
            Redo::Write { offset, bytes } if chosen[at] => {
                let mut some = bytes.len();
                if last == Some(at) && next(2) == 1 {
                    some = next(bytes.len() as u64) as usize;
                    lost.torn += 1;
                }
                let end = offset + some;
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*offset..end].copy_from_slice(&bytes[..some]);
            }
            Redo::Truncate(size) if chosen[at] => image.truncate(*size),
            Redo::Write { .. } | Redo::Truncate(_) | Redo::Create | Redo::Delete => {}
        }
    }
}

fn put(path: &Path, image: Option<Vec<u8>>) -> io::Result<()> {
    match image {
        Some(bytes) => std::fs::write(path, bytes)?,
        None => match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        },
    }
    // The log's index is memory.
    let name = path.to_string_lossy();
    let index = format!("{}-shm", name.strip_suffix("-wal").unwrap_or(&name));
    match std::fs::remove_file(index) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
