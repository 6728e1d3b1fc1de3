//! TAP interfaces: one for each network of a shared radio, so that everything above sees an ordinary Ethernet.
//!
//! The interface has no carrier until its owner says so, and loses it when the network is gone: the network monitor and all
//! programs that watch links then see a network come and go. What the kernel sends while nobody reads waits in the interface's
//! own bounded queue, apart from those of other networks, and is dropped from there.
#![expect(unsafe_code, reason = "the carrier of TAP interfaces is set by ioctl")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use units::MacAddress;

use crate::netlink::{Netlink, NetlinkError};
use crate::system_call::check;
use crate::tun::{Reserved, TunError, make_device};

/// What a TAP interface is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapOptions {
    /// Its name, 1 to 15 characters; `%d` in it stands for the first free number.
    pub name: String,
    /// Its hardware address, the one by which the access point knows the station.
    pub address: MacAddress,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// How many frames wait in the kernel while nobody reads.
    pub queue: u32,
    /// What is noted on it; [`SHARED_RADIO`] says that it leads out although a program made it.
    pub alias: Option<&'static str>,
}

/// Noted on the interface of a network that has a part of a radio: by this the device's daemon takes it for a network as any other.
pub const SHARED_RADIO: &str = "network of a shared radio";

/// The interface; it vanishes when this value is dropped.
pub struct Tap {
    file: File,
    name: String,
    index: u32,
}

impl Tap {
    /// Longest Ethernet frame of an interface with `mtu`, in bytes: two addresses, a VLAN tag and the type come before.
    pub const fn longest_frame(mtu: u32) -> usize {
        mtu as usize + 18
    }

    /// Makes the interface and switches it on, without carrier. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`TunError`], as for TUN interfaces.
    pub fn create(options: &TapOptions) -> Result<Self, TunError> {
        Self::create_on(Reserved::open()?, options)
    }

    /// The same on a device that was opened before, by a process that may no more.
    ///
    /// # Errors
    /// [`TunError`], as for TUN interfaces.
    pub fn create_on(reserved: Reserved, options: &TapOptions) -> Result<Self, TunError> {
        let (file, name) = make_device(reserved, &options.name, libc::IFF_TAP | libc::IFF_NO_PI)?;
        let fail = |error| TunError::Interface { name: name.clone(), error };
        let mut netlink = Netlink::open().map_err(NetlinkError::from)?;
        let index = netlink.link(&name)?.map(|link| link.index);
        let index = index.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        netlink.set_link_address(index, options.address)?;
        netlink.set_link_mtu(index, options.mtu)?;
        netlink.set_link_queue_length(index, options.queue)?;
        if let Some(alias) = options.alias {
            netlink.set_link_alias(index, alias)?;
        }
        // Before it is on, or the monitor would see a network that works for a moment.
        set_carrier(&file, false).map_err(fail)?;
        netlink.set_link_up(index, true)?;
        Ok(Self { file, name, index })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Says whether the network can carry frames now. Without carrier the kernel sends none.
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        set_carrier(&self.file, carrier)
    }

    /// Reads one Ethernet frame that the kernel sends, from the receiver's address on; returns its length.
    ///
    /// Never blocks: [`io::ErrorKind::WouldBlock`] when none waits. A frame longer than `buffer` is cut.
    pub fn read_frame(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }

    /// Hands the kernel one Ethernet frame that the network brought.
    ///
    /// # Errors
    /// `EINVAL` for a frame without a whole header, `EIO` while the interface is off.
    pub fn write_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn set_carrier(file: &File, carrier: bool) -> io::Result<()> {
    let value = libc::c_int::from(carrier);
    // SAFETY: the pointer is to a live integer, which is what TUNSETCARRIER (Linux 5.0) reads.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETCARRIER, &raw const value) }).map(drop)
}

/// `_IOW('T', 226, int)`.
const TUNSETCARRIER: libc::Ioctl = 0x4004_54e2;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::monitor::Monitor;
    use crate::test_namespace::in_namespace;

    const ADDRESS: MacAddress = MacAddress([2, 0xab, 0, 0, 0, 7]);

    fn options() -> TapOptions {
        TapOptions {
            name: "ab-tap%d".into(),
            address: ADDRESS,
            mtu: 1_400,
            queue: 16,
            alias: Some(SHARED_RADIO),
        }
    }

    #[test]
    fn the_monitor_sees_the_network_come_and_go() {
        in_namespace(|| {
            let tap = Tap::create(&options()).unwrap();
            assert_eq!(tap.name(), "ab-tap0");
            let mut monitor = Monitor::open().unwrap();
            let is_running = |monitor: &Monitor| {
                monitor.interfaces().find(|one| one.index == tap.index()).is_some_and(|one| one.is_running())
            };
            assert!(!is_running(&monitor), "it began with carrier");
            for carrier in [true, false, true] {
                tap.set_carrier(carrier).unwrap();
                let deadline = Instant::now() + Duration::from_secs(5);
                while is_running(&monitor) != carrier {
                    assert!(Instant::now() < deadline, "carrier {carrier} was not seen");
                    std::thread::sleep(Duration::from_millis(2));
                    monitor.read_events().unwrap();
                }
            }
            let link = Netlink::open().unwrap().link("ab-tap0").unwrap().unwrap();
            assert_eq!((link.address, link.mtu), (Some(ADDRESS), 1_400));
        });
    }

    #[test]
    fn frames_go_both_ways() {
        in_namespace(|| {
            let mut tap = Tap::create(&options()).unwrap();
            tap.set_carrier(true).unwrap();
            let mut netlink = Netlink::open().unwrap();
            netlink.add_address(tap.index(), "10.77.0.1/24".parse().unwrap()).unwrap();
            let socket = UdpSocket::bind("10.77.0.1:7").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send_to(b"who is there", "10.77.0.2:7").unwrap();
            let mut buffer = vec![0; Tap::longest_frame(1_400)];
            let question = loop {
                match tap.read_frame(&mut buffer) {
                    // The kernel's own words on IPv6 come too.
                    Ok(length) if buffer[12..14] == [8, 6] => break buffer[..length].to_vec(),
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            assert_eq!((&question[..6], &question[6..12]), ([0xff; 6].as_slice(), ADDRESS.0.as_slice()));

            // From 10.77.0.2 to 10.77.0.1, no checksums of UDP.
            let mut frame = ADDRESS.0.to_vec();
            frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
            frame.extend([0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0x66, 0x30, 10, 77, 0, 2, 10, 77, 0, 1]);
            frame.extend([0, 7, 0, 7, 0, 13, 0, 0]);
            frame.extend(b"hello");
            tap.write_frame(&frame).unwrap();
            let mut heard = [0; 16];
            assert_eq!(socket.recv(&mut heard).unwrap(), 5);
            assert_eq!(&heard[..5], b"hello");
            assert!(tap.write_frame(&[1, 2, 3]).is_err());
        });
    }

    #[test]
    fn what_nobody_reads_is_bounded() {
        in_namespace(|| {
            let mut tap = Tap::create(&options()).unwrap();
            tap.set_carrier(true).unwrap();
            let mut netlink = Netlink::open().unwrap();
            netlink.add_address(tap.index(), "10.77.0.1/24".parse().unwrap()).unwrap();
            let socket = UdpSocket::bind("10.77.0.1:7").unwrap();
            socket.set_broadcast(true).unwrap();
            let mut buffer = [0; 2_000];
            // The kernel begins to send a moment after there is a carrier.
            let deadline = Instant::now() + Duration::from_secs(5);
            while tap.read_frame(&mut buffer).is_err() {
                assert!(Instant::now() < deadline, "nothing was sent");
                drop(socket.send_to(&[0; 100], "10.77.0.255:7"));
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..1_000 {
                drop(socket.send_to(&[0; 100], "10.77.0.255:7"));
            }
            let mut waiting = 0;
            while waiting == 0 && Instant::now() < deadline {
                while tap.read_frame(&mut buffer).is_ok() {
                    waiting += 1;
                }
            }
            assert!((1..=100).contains(&waiting), "{waiting} frames waited");
        });
    }
}
