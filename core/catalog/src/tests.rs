//! Behaviour of the catalog as a whole.
