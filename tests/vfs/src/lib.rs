//! A disk that fails, fills up and loses power on demand: a file system of SQLite's (a VFS) that writes
//! through to real files, keeps what it takes to undo all that was not synced, and does what a plan says.
