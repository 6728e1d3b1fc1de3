//! What an endpoint of the bond asks of its machine: randomness, a clock that grows, and what the processor can do.

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
