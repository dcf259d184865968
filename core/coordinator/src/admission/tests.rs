//! Every rule of admission, once.
