//! The C library's functions behind ours.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One of them, found once.
pub struct Original {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Original {
    /// The function of that name in the libraries after this one.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is; null if there is none.
    pub fn find(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero, and RTLD_NEXT needs no library to be open.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Release);
        found
    }
}

/// Calls the function that ours stands before, with the same arguments; `$missing` if there is none. The caller's block is
/// `unsafe`, and its comment says why the arguments are sound.
macro_rules! original {
    ($name:literal as $kind:ty, $missing:expr, ($($argument:expr),*)) => {{
        static ORIGINAL: $crate::original::Original = $crate::original::Original::new($name);
        let found = ORIGINAL.find();
        if found.is_null() {
            $crate::call::fail(libc::ENOSYS);
            $missing
        } else {
            let function = std::mem::transmute::<*mut std::ffi::c_void, $kind>(found);
            function($($argument),*)
        }
    }};
}
pub(crate) use original;
