//! What must always hold, asked from outside of the store as well as of its tables.
