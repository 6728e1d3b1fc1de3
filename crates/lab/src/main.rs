//! The lab program behind `anabranch lab`.
fn main() {}
