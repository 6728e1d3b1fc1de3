//! Prints the commented example configuration: `cargo run -p anabranch-daemon --example config`.

fn main() {
    print!("{}", daemon::config::example());
}
