//! creditd.
