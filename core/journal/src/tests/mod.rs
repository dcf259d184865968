//! The journal on a disk in memory.

mod damage;
mod disk;
mod finding;
mod golden;
mod property;
mod space;
mod writing;
