//! Ten seconds of sleep in the virtual machine, and what they cost here: `cargo run -p anabranch-lab --example vm_sleep`.

use lab::vm::{Job, Machine};

fn main() -> anyhow::Result<()> {
    let job = Job::new(
        "uname -r; cut -d' ' -f1 /proc/uptime; sleep 10; cut -d' ' -f1 /proc/uptime; head -c8 /dev/urandom | od -x",
    );
    let outcome = Machine::find()?.run(&job)?;
    print!("{}", outcome.output);
    println!(
        "guest time {:.3} s, here {:.3} s",
        outcome.guest_time.as_secs_f64(),
        outcome.wall_time.as_secs_f64()
    );
    Ok(())
}
