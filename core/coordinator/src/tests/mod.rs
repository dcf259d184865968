//! Tests of whole groups.
