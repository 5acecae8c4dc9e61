//! What the tables must say, by a scan of the finished chain that shares no code with the daemon: plain
//! integers and byte arrays.
