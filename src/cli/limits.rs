//! A limit of the process that would end it.

use tokio::signal::unix::{SignalKind, signal};

/// SIGXFSZ, which tokio has no name for. The number is that of x86, ARM and RISC-V.
const FILE_SIZE: i32 = 25;

/// From now on a write over the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) is an error like any
/// other: the database waits then as on a full disk. Without it the process would end there, without a word.
pub(super) fn survive_file_size() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Where that is refused all is as it was. What is set up here stays when the runtime is gone.
    if let Ok(runtime) = runtime {
        let _context = runtime.enter();
        let _ = signal(SignalKind::from_raw(FILE_SIZE));
    }
}
