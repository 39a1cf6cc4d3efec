//! Fuzzing of the readers, with a bound on the memory that each may take.

pub mod memory;
pub mod readers;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
