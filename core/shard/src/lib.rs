//! Everything that one core of a node owns: admission, routing, groups, long polls, liveness.
//! Performs no I/O.
#![no_std]
#![forbid(unsafe_code)]
