//! What the loops of device and gateway share: the sockets, the interface, and draining the endpoint.
//!
//! ```text
//!            wake, commands                 tasks, events
//! control ------------------> loop thread ----------------> watcher thread, event log
//!                              |  ^
//!                 any0, carriers, timer
//! ```
//! The loop thread owns the TUN, all sockets and the endpoint, and waits in epoll. Work that can block (netlink
//! dumps, name look-ups, the registry, nft) is done by the watcher thread, which never touches packets.

mod carriers;
mod plane;
mod thread;
mod traffic;
mod unreachable;

use policy::Treatment;
use wire::hello::DefaultTreatment;

pub use carriers::{CarrierError, Carriers, SendOutcome};
pub use plane::{FIRST_SOCKET_TOKEN, Owner, Plane, Verdict};
pub use thread::PacketThread;
pub use traffic::Meter;

/// A treatment as the other end is told of it: the others need none.
pub fn on_the_wire(treatment: Treatment) -> DefaultTreatment {
    match treatment {
        Treatment::Duplicated => DefaultTreatment::Duplicated,
        Treatment::Protected => DefaultTreatment::Protected,
        Treatment::Bonded | Treatment::Direct | Treatment::Mptcp => DefaultTreatment::Bonded,
    }
}

/// What the other end has asked for.
pub fn off_the_wire(treatment: DefaultTreatment) -> Treatment {
    match treatment {
        DefaultTreatment::Bonded => Treatment::Bonded,
        DefaultTreatment::Duplicated => Treatment::Duplicated,
        DefaultTreatment::Protected => Treatment::Protected,
    }
}

/// A seed for the endpoint's generator, from the system.
///
/// # Errors
/// If the system has no randomness.
pub fn seed() -> Result<[u8; 32], rand::rand_core::OsError> {
    use rand::TryRngCore;
    let mut seed = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut seed)?;
    Ok(seed)
}

/// Wall-clock nanoseconds, the stamp of handshakes: it must grow over restarts.
pub fn stamp() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether this processor has instructions for AES-GCM.
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
