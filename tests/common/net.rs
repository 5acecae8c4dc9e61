//! Loopback ports.

use std::net::{Ipv4Addr, TcpListener};

/// A port that was free a moment ago. Another process can take it first, so whoever uses it tries again.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
