//! I/O. What applications link: the control client and its types.
#![forbid(unsafe_code)]
