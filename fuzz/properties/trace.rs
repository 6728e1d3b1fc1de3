//! What must hold for any text given to the reader of delivery traces; shared by the fuzz target and the property tests.

use sim::DeliveryTrace;

/// A trace that is accepted reads the same after it was written; a refusal says what is wrong.
pub fn trace(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match DeliveryTrace::parse(&text) {
        Ok(trace) => {
            assert!(trace.period_ms() > 0);
            assert_eq!(DeliveryTrace::parse(&trace.to_text()).as_ref(), Ok(&trace));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
