//! Numbers and words for what went wrong.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

use anabranch::{BindError, ConnectError};

pub const OK: c_int = 0;
pub const INVALID: c_int = -1;
pub const SYSTEM: c_int = -2;
pub const TIMED_OUT: c_int = -3;
pub const NO_ADDRESS: c_int = -4;
pub const NOT_ADMITTED: c_int = -5;
pub const REFUSED: c_int = -6;
pub const PROTOCOL: c_int = -7;
pub const RESET: c_int = -8;
pub const CLOSED: c_int = -9;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call failed.
pub struct Failure {
    code: c_int,
    words: String,
}

impl Failure {
    /// An argument that cannot be used.
    pub fn invalid(what: &str) -> Self {
        Self { code: INVALID, words: what.to_owned() }
    }

    /// The system refuses.
    pub fn system(error: &dyn std::error::Error) -> Self {
        Self { code: SYSTEM, words: error.to_string() }
    }

    /// Remembers the words for [`anabranch_error`]; the number.
    pub fn tell(self) -> c_int {
        // Nothing that is said has a zero in it.
        let words = CString::new(self.words).unwrap_or_default();
        LAST.with_borrow_mut(|last| *last = words);
        self.code
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        Self::system(&error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::NoAnswer { .. } | ConnectError::Lost { .. } => TIMED_OUT,
            ConnectError::NoAddress(_) => NO_ADDRESS,
            ConnectError::NotKnown(_) | ConnectError::InvitationRefused(_) => NOT_ADMITTED,
            ConnectError::NotListening(_) => REFUSED,
            ConnectError::Incomprehensible(_) | ConnectError::Broken(_) => PROTOCOL,
            ConnectError::Restarted(_) | ConnectError::Ended(_) => RESET,
            ConnectError::NotInGroup(_) => INVALID,
            ConnectError::Closed => CLOSED,
        };
        Self { code, words: error.to_string() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConnectError>());
        if let Some(inner) = inner {
            return inner.clone().into();
        }
        let code = match error.kind() {
            io::ErrorKind::ConnectionReset => RESET,
            io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => CLOSED,
            io::ErrorKind::InvalidInput => INVALID,
            _ => SYSTEM,
        };
        Self { code, words: error.to_string() }
    }
}

/// The number of an outcome.
pub fn number(outcome: Result<(), Failure>) -> c_int {
    outcome.map_or_else(Failure::tell, |()| OK)
}

/// As [`number`], for calls that return a count.
pub fn count(outcome: Result<usize, Failure>) -> isize {
    outcome
        .map_or_else(|failure| failure.tell() as isize, |count| isize::try_from(count).unwrap_or(isize::MAX))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_error() -> *const c_char {
    // Each thread has its own, and replaces it only in its next call that fails.
    LAST.with_borrow(|last| CStr::as_ptr(last))
}
