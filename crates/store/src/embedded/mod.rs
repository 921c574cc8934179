//! The file on this machine: opening it, its rows, and the thread that writes them.

pub(crate) mod rows;
mod schema;
pub(crate) mod session;
pub(crate) mod writer;
