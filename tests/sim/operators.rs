//! Operators: what they do by commands, on a handle of their own.
