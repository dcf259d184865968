//! Exact effects of a consumer.
