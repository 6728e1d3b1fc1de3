//! I/O. Key files, named peers, invitations and address leases.
#![forbid(unsafe_code)]
