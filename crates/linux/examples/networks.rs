//! Lists this host's networks, then prints each change for ten seconds.
//!
//! ```sh
//! cargo run -p anabranch-linux --example networks
//! ```

use std::time::{Duration, Instant};

use linux::monitor::{Interface, Monitor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut monitor = Monitor::open()?;
    monitor.interfaces().for_each(print);
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        for event in monitor.read_events()? {
            println!("{event:#?}");
        }
    }
    Ok(())
}

fn print(interface: &Interface) {
    let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
    let running = if interface.is_running() { "running" } else { "down" };
    println!("{} ({running}, MTU {}): {}", interface.name, interface.mtu, addresses.join(" "));
}
