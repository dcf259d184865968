//! PROTOCOL.md.
