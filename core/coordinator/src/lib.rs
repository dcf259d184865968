//! Consumer groups.
#![no_std]
#![forbid(unsafe_code)]
