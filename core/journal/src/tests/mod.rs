//! The journal on a disk in memory.

mod damage;
mod disk;
mod golden;
mod property;
mod space;
mod writing;
