//! What consumer groups store, and who may.
