//! One node: what it survives and what it refuses.

mod extremes;
mod fixture;
mod frames;
mod hostile;
mod journal;
mod limits;
mod r01;
mod r02;
mod r03;
mod r04;
mod r05;
mod r07;
mod r10;
mod r12;
mod r14;
mod r15;
mod r18;
mod r29;
mod r30;
mod r31;
mod r32;
mod r51;
mod scene;
mod sessions;
mod start;
mod stopping;
