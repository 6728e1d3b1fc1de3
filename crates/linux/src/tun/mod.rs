//! any0: a TUN interface with offloads.
//!
//! The kernel hands over TCP and UDP in segments of up to 64 KiB and takes them back the same way, so that one
//! system call and one pass through the network stack serve some forty packets. This module cuts and joins
//! (`split`, `join`); its users see whole IP packets of at most the interface's MTU only.
#![expect(unsafe_code, reason = "TUN interfaces are made and set up by ioctl")]

mod checksum;
mod join;
mod layout;
mod split;
#[cfg(test)]
mod tests;
mod virtio;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use thiserror::Error;
use tracing::debug;

use crate::ipv6;
use crate::netlink::{Netlink, NetlinkError};
use crate::prefix::IpPrefix;
use crate::system_call::{check, errno};
use join::{Joiner, MAXIMUM_PACKETS, Scratch};
use virtio::VirtioHeader;

pub use split::write_checksum;

/// Why the interface could not be made.
#[derive(Debug, Error)]
pub enum TunError {
    /// `/dev/net/tun` could not be opened.
    #[error("cannot open /dev/net/tun: {0}; load the driver with \"modprobe tun\" and run as root")]
    Device(io::Error),
    /// The interface was refused.
    #[error("cannot make the interface \"{name}\": {error}{}", hint(error))]
    Interface {
        /// The name that was asked for.
        name: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// An interface name that the kernel cannot hold.
    #[error("\"{0}\" is not an interface name: 1 to 15 characters without blanks and slashes")]
    Name(String),
    /// Its address, MTU or state was refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

fn hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => "; it takes root or CAP_NET_ADMIN",
        libc::EBUSY => "; another program holds it: is anabranch running already?",
        libc::EINVAL => "; there is another kind of interface with this name: is anabranch running already?",
        _ => "",
    }
}

/// What [`Tun::write_packets`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Packets that the kernel took.
    pub packets: usize,
    /// System calls that took.
    pub writes: usize,
    /// Packets that it refused (interface down, malformed).
    pub refused: usize,
}

/// The interface; it vanishes when this value is dropped.
pub struct Tun {
    file: File,
    name: String,
    index: u32,
    buffer: Box<[u8; BUFFER]>,
    joiner: Joiner,
}

impl Tun {
    /// Makes the interface `name` with `mtu` (bytes) and `addresses`, and switches it on.
    ///
    /// Needs CAP_NET_ADMIN. `name` may hold `%d` for the first free number.
    pub fn create(name: &str, mtu: u32, addresses: &[IpPrefix]) -> Result<Self, TunError> {
        Self::create_on(Reserved::open()?, name, mtu, addresses)
    }

    /// The same on a device that was opened before.
    pub fn create_on(
        Reserved(file): Reserved,
        name: &str,
        mtu: u32,
        addresses: &[IpPrefix],
    ) -> Result<Self, TunError> {
        Self::set_up(file, name, FLAGS, mtu, addresses)
    }

    /// The same for several threads: each gets one of `queues` (at least one). The packets of a flow are read from the queue where packets
    /// of it were written in the last seconds; those of any other flow from any.
    ///
    /// # Errors
    /// Any [`TunError`].
    pub fn create_queues(
        name: &str,
        mtu: u32,
        addresses: &[IpPrefix],
        queues: usize,
    ) -> Result<Vec<Self>, TunError> {
        if queues <= 1 {
            return Self::create(name, mtu, addresses).map(|tun| vec![tun]);
        }
        let Reserved(file) = Reserved::open()?;
        let flags = FLAGS | libc::IFF_MULTI_QUEUE;
        // Else it would become another queue of somebody else's interface.
        let mut all = vec![Self::set_up(file, name, flags | libc::IFF_TUN_EXCL, mtu, addresses)?];
        while let (Some(first), true) = (all.first(), all.len() < queues) {
            let Reserved(file) = Reserved::open()?;
            make_interface(&file, &first.name, flags)?;
            let queue = Self::over(file, first.name.clone(), first.index)?;
            all.push(queue);
        }
        Ok(all)
    }

    fn set_up(
        file: File,
        name: &str,
        flags: libc::c_int,
        mtu: u32,
        addresses: &[IpPrefix],
    ) -> Result<Self, TunError> {
        let name = make_interface(&file, name, flags)?;
        let mut netlink = Netlink::open().map_err(NetlinkError::from)?;
        let index = netlink.link(&name)?.map_or(0, |link| link.index);
        netlink.set_link_mtu(index, mtu)?;
        netlink.set_link_queue_length(index, TRANSMIT_QUEUE)?;
        netlink.set_link_up(index, true)?;
        ipv6::switch_on(&name);
        for address in addresses {
            netlink.add_address(index, *address)?;
        }
        Self::over(file, name, index)
    }

    fn over(file: File, name: String, index: u32) -> Result<Self, TunError> {
        match set_offloads(&file) {
            Ok(udp) => {
                Ok(Self { file, name, index, buffer: Box::new([0; BUFFER]), joiner: Joiner::new(udp) })
            }
            Err(error) => Err(TunError::Interface { name, error }),
        }
    }

    /// Goes on with the descriptor of an interface that this process has made in its earlier life; what waits in it stays.
    ///
    /// # Errors
    /// If it is no such descriptor, or the interface is not as it was made.
    pub fn adopt(descriptor: OwnedFd, mtu: u32, addresses: &[IpPrefix]) -> Result<Self, TunError> {
        let file = File::from(descriptor);
        let name = interface_of(&file).map_err(TunError::Device)?;
        let index = Netlink::open().map_err(NetlinkError::from)?.link(&name)?.map_or(0, |link| link.index);
        configure(index, mtu, addresses)?;
        Self::over(file, name, index)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads once and gives each IP packet to `sink`; returns their number.
    ///
    /// Never blocks: [`io::ErrorKind::WouldBlock`] when nothing waits. Packets are at most the MTU long and have
    /// right checksums.
    pub fn read_packets(&mut self, sink: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let length = self.file.read(&mut self.buffer[..])?;
        let Some((header, packet)) = self.buffer[..length].split_first_chunk_mut() else {
            return Ok(0);
        };
        Ok(split::split(VirtioHeader::read(header), packet, sink))
    }

    /// Hands `packets` to the kernel, joining those of one flow that follow each other.
    ///
    /// Packets of one flow keep their order. A refused packet is counted and does not stop the others; only a
    /// failure of the device itself is an error.
    pub fn write_packets<P: AsRef<[u8]>>(&mut self, packets: &[P]) -> io::Result<Written> {
        let mut written = Written::default();
        self.joiner.sort(packets);
        for group in self.joiner.groups() {
            let mut scratch = Scratch::default();
            let mut slices = [IoSlice::new(&[]); MAXIMUM_PACKETS + 2];
            let used = self.joiner.lay_out(group, packets, &mut scratch, &mut slices);
            written.writes += 1;
            match (&self.file).write_vectored(&slices[..used]) {
                Ok(_) => written.packets += group.count(),
                Err(error) if matches!(errno(&error), libc::EBADF | libc::EBADFD) => return Err(error),
                Err(error) => {
                    debug!(%error, packets = group.count(), "the kernel refused packets for {}", self.name);
                    written.refused += group.count();
                }
            }
        }
        Ok(written)
    }
}

/// Gives the interface with number `index` this MTU (bytes) and exactly these addresses beside link-local and auxiliary ones.
///
/// For a lease that comes, or changes, while the interface is in use.
pub fn configure(index: u32, mtu: u32, addresses: &[IpPrefix]) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    netlink.set_link_mtu(index, mtu)?;
    let known = netlink.addresses()?;
    let known = known.iter().filter(|known| known.index == index && !known.link_local && !known.deprecated);
    for stale in known.filter(|known| !addresses.contains(&known.address)) {
        netlink.delete_address(index, stale.address)?;
    }
    for address in addresses {
        netlink.add_address(index, *address)?;
    }
    Ok(())
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

/// The device, for an interface to be made later: opened while the process still may.
#[derive(Debug)]
pub struct Reserved(File);

impl Reserved {
    /// Opens it.
    ///
    /// # Errors
    /// [`TunError::Device`].
    pub fn open() -> Result<Self, TunError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        options.open("/dev/net/tun").map(Self).map_err(TunError::Device)
    }
}

/// Makes the device an interface of the kind that `flags` say; returns it with the name that it got.
pub(crate) fn make_device(
    Reserved(file): Reserved,
    name: &str,
    flags: libc::c_int,
) -> Result<(File, String), TunError> {
    let name = make_interface(&file, name, flags)?;
    Ok((file, name))
}

/// Makes the device an interface of the kind that `flags` say; the name that it got.
fn make_interface(file: &File, name: &str, flags: libc::c_int) -> Result<String, TunError> {
    let valid = (1..libc::IFNAMSIZ).contains(&name.len())
        && !name.contains(|character: char| character == '/' || character.is_whitespace());
    if !valid {
        return Err(TunError::Name(name.to_owned()));
    }
    attach(file, name, flags).map_err(|error| TunError::Interface { name: name.to_owned(), error })
}

/// Makes the descriptor an interface; returns the name it got.
fn attach(file: &File, name: &str, flags: libc::c_int) -> io::Result<String> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the pointer is to a live ifreq, which is what TUNSETIFF takes.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(name_in(&request))
}

/// The name of the interface that a descriptor is.
fn interface_of(file: &File) -> io::Result<String> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live ifreq, which is what TUNGETIFF fills.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNGETIFF, &raw mut request) })?;
    Ok(name_in(&request))
}

fn name_in(request: &libc::ifreq) -> String {
    request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect()
}

/// Switches on all offloads that the kernel has; returns whether UDP segments (Linux 6.2) are among them.
fn set_offloads(file: &File) -> io::Result<bool> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let set = |flags: libc::c_uint| {
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
    };
    if set(tcp | TUN_F_USO4 | TUN_F_USO6).is_ok() {
        return Ok(true);
    }
    set(tcp).map(|_| false)
}

const FLAGS: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
/// A segment of 64 KiB and the header before it.
const BUFFER: usize = 65_536 + virtio::LENGTH;
/// Segments that wait for us in the kernel; a burst of all flows while the thread is busy elsewhere.
const TRANSMIT_QUEUE: u32 = 1_000;
/// `_IOR('T', 210, unsigned int)`, which libc lacks.
const TUNGETIFF: libc::Ioctl = 0x8004_54d2_u32 as libc::Ioctl;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;
