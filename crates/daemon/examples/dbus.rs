//! Prints the description of the service on the message bus, which `docs/dbus.xml` holds.

fn main() {
    print!("{}", daemon::control::dbus::document());
}
