//! Exact effects of a producer.
