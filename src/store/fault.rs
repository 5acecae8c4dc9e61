//! What ends the use of a database handle for good, and who is told.

use tokio::sync::watch;

use super::StoreError;

/// Why a handle must not be used again. The daemon exits and is started anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reading or writing the file failed; what the error said.
    Io(String),
    /// Another daemon took over.
    StaleEpoch {
        /// Our epoch.
        held: i64,
        /// The epoch in the database.
        found: i64,
    },
}

impl Fault {
    /// The fault behind an error, if it is one.
    fn of(error: &StoreError) -> Option<Fault> {
        match error {
            StoreError::Io(cause) => Some(Fault::Io(cause.to_string())),
            StoreError::StaleEpoch { held, found } => Some(Fault::StaleEpoch {
                held: *held,
                found: *found,
            }),
            _ => None,
        }
    }

    /// The error that every later use of the handle gets.
    pub fn error(&self) -> StoreError {
        match self {
            Fault::Io(text) => StoreError::Io(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR),
                Some(format!("after an earlier error: {text}")),
            )),
            Fault::StaleEpoch { held, found } => StoreError::StaleEpoch {
                held: *held,
                found: *found,
            },
        }
    }
}

/// The first fault of a database, shared by all its connections.
#[derive(Clone, Debug)]
pub(super) struct FaultCell(watch::Sender<Option<Fault>>);

impl FaultCell {
    pub(super) fn new() -> FaultCell {
        FaultCell(watch::Sender::new(None))
    }

    /// The fault, once there is one.
    pub(super) fn get(&self) -> Option<Fault> {
        self.0.borrow().clone()
    }

    /// Refuses to go on after a fault.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.0
            .borrow()
            .as_ref()
            .map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// Remembers the first fault and hands the outcome on.
    pub(super) fn note<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Some(fault) = outcome.as_ref().err().and_then(Fault::of) {
            self.0.send_if_modified(|slot| {
                let is_first = slot.is_none();
                slot.get_or_insert(fault);
                is_first
            });
        }
        outcome
    }

    /// Waits for the first fault.
    pub(super) async fn wait(&self) -> Fault {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(fault) = changes.borrow_and_update().clone() {
                return fault;
            }
            if changes.changed().await.is_err() {
                // We hold a sender ourselves, so this cannot be; never resolving is what "no fault" means.
                std::future::pending::<()>().await;
            }
        }
    }
}
