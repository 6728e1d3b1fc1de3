//! The system call bpf(2): maps, programs and their attachment (`linux/bpf.h`).
#![expect(unsafe_code, reason = "bpf and mmap are not in the standard library")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::BpfError;

/// A map whose keys and values are plain bytes.
pub(super) struct Map {
    descriptor: OwnedFd,
    key_size: usize,
    value_size: usize,
}

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MapKind {
    /// 32-bit values by index, which [`Shared`] can write without system calls.
    SharedArray,
    /// Values by address prefix; the longest matching one is found.
    PrefixTree,
}

impl Map {
    pub(super) fn create(
        kind: MapKind,
        key_size: usize,
        value_size: usize,
        entries: usize,
    ) -> Result<Self, BpfError> {
        let (number, flags) = match kind {
            MapKind::SharedArray => (MAP_ARRAY, MAPPABLE),
            MapKind::PrefixTree => (MAP_PREFIX_TREE, NOT_PREALLOCATED),
        };
        let attributes = MapCreate {
            kind: number,
            key_size: key_size as u32,
            value_size: value_size as u32,
            entries: entries as u32,
            flags,
        };
        let descriptor = open(CREATE_MAP, &attributes).map_err(refused("make a map"))?;
        Ok(Self { descriptor, key_size, value_size })
    }

    /// Sets the value of a key; both must have the sizes that the map was made with.
    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        if key.len() != self.key_size || value.len() != self.value_size {
            return Err(refused("update a map")(io::ErrorKind::InvalidInput.into()));
        }
        let attributes = self.element(key, value.as_ptr());
        call(UPDATE_ELEMENT, &attributes).map(drop).map_err(refused("update a map"))
    }

    /// Removes a key; one that is not there is fine.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), BpfError> {
        if key.len() != self.key_size {
            return Err(refused("remove from a map")(io::ErrorKind::InvalidInput.into()));
        }
        match call(DELETE_ELEMENT, &self.element(key, std::ptr::null())) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map(drop).map_err(refused("remove from a map")),
        }
    }

    fn element(&self, key: &[u8], value: *const u8) -> MapElement {
        MapElement {
            map: self.raw() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value as u64,
            flags: 0,
        }
    }

    /// Its descriptor's number, for instructions.
    pub(super) fn raw(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }
}

/// The memory of a [`MapKind::SharedArray`], shared with the kernel.
pub(super) struct Shared {
    start: NonNull<AtomicU32>,
    length: usize,
    entries: usize,
}

// SAFETY: the memory is only accessed through atomics and lives until the value is dropped.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps the memory of an array with `entries` values.
    pub(super) fn map(array: &Map, entries: usize) -> Result<Self, BpfError> {
        let length = entries * ELEMENT_STRIDE;
        // SAFETY: a fresh mapping at an address that the kernel chooses; the descriptor is open.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                array.raw(),
                0,
            )
        };
        let fail = refused("share the memory of a map");
        if start == libc::MAP_FAILED {
            return Err(fail(io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| fail(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { start, length, entries })
    }

    /// Sets one value, in one step and after all that were set before; indices out of range are ignored.
    pub(super) fn set(&self, index: usize, value: u32) {
        if index < self.entries {
            // SAFETY: in range of the mapping, aligned to 8 bytes, and only ever accessed as an atomic.
            let element = unsafe { self.start.byte_add(index * ELEMENT_STRIDE).as_ref() };
            element.store(value, Ordering::Release);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned; no reference into it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Loads a program for `attach_type`.
pub(super) fn load_program(
    name: &'static str,
    code: &[[u8; 8]],
    attach_type: u32,
) -> Result<OwnedFd, BpfError> {
    let mut attributes = ProgramLoad {
        kind: PROGRAM_SOCKET_ADDRESS,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        interface: 0,
        attach_type,
    };
    let length = name.len().min(15);
    attributes.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    if let Ok(program) = open(LOAD_PROGRAM, &attributes) {
        return Ok(program);
    }
    // Once more, to hear why.
    let mut log = vec![0u8; LOG_SIZE];
    attributes.log_level = 1;
    attributes.log_size = log.len() as u32;
    attributes.log = log.as_mut_ptr() as u64;
    open(LOAD_PROGRAM, &attributes).map_err(|error| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        let text = String::from_utf8_lossy(&log[..end]).trim().to_owned();
        let skip = text.chars().count().saturating_sub(LOG_SHOWN);
        BpfError::Refused { operation: "load a program", error, log: text.chars().skip(skip).collect() }
    })
}

/// Attaches a program to a cgroup, beside those of others, until the returned descriptor is closed.
pub(super) fn attach(program: &OwnedFd, cgroup: &File, attach_type: u32) -> Result<OwnedFd, BpfError> {
    let attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        target: cgroup.as_raw_fd() as u32,
        attach_type,
        flags: 0,
    };
    open(CREATE_LINK, &attributes).map_err(refused("attach a program to the cgroup"))
}

/// The kernel's number of the calling thread's network namespace; `None` before Linux 5.14.
pub(super) fn namespace_cookie() -> Option<u64> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).ok()?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the pointers are to live values and the length is the first one's size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize == size_of::<u64>()).then_some(cookie)
}

fn refused(operation: &'static str) -> impl Fn(io::Error) -> BpfError {
    move |error| BpfError::Refused { operation, error, log: String::new() }
}

fn open<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let raw = call(command, attributes)?;
    // SAFETY: the commands for which this is used return a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and size describe a live structure whose form is the command's, and the pointers in it are
    // to memory that lives through the call and has the sizes that the kernel takes from the map or structure.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

const CREATE_MAP: libc::c_int = 0;
const UPDATE_ELEMENT: libc::c_int = 2;
const DELETE_ELEMENT: libc::c_int = 3;
const LOAD_PROGRAM: libc::c_int = 5;
const CREATE_LINK: libc::c_int = 28;

const MAP_ARRAY: u32 = 2;
const MAP_PREFIX_TREE: u32 = 11;
const NOT_PREALLOCATED: u32 = 1;
const MAPPABLE: u32 = 1 << 10;
/// Values of an array lie 8 bytes apart, however small they are.
const ELEMENT_STRIDE: usize = 8;

const PROGRAM_SOCKET_ADDRESS: u32 = 18;
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
const LOG_SIZE: usize = 64 * 1024;
const LOG_SHOWN: usize = 600;
const SO_NETNS_COOKIE: libc::c_int = 71;
