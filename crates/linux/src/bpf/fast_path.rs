//! The fast path of direct mode: new TCP connections of a cgroup get the mark of a network from the kernel itself.
//!
//! UDP is left to nftables: a mark stays with its socket, but a UDP flow must be able to move when its network dies, and a
//! socket that is not connected has flows to many places (for `sendto` the kernel also reads a packet's mark before it runs the
//! program, so the first would go elsewhere than the rest; seen on Linux 6.18).

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::Path;

use super::BpfError;
use super::program::{self, Hook, Maps};
use super::system::{self, Map, MapKind, Shared};
use crate::prefix::IpPrefix;

/// Marks among which new sockets are spread.
///
/// New sockets take them by turns, so a network's share is the share of slots with its mark. 0 leaves the socket alone.
/// An empty list leaves all alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots<'a> {
    /// For IPv4 destinations.
    pub v4: &'a [u32],
    /// For IPv6 destinations.
    pub v6: &'a [u32],
    /// For those that ask for little delay.
    pub real_time: RealTimeMarks,
}

/// New sockets whose program has set one of these code points take no turns, but one mark.
///
/// IPv6 sockets are known by `IPV6_TCLASS` alone, also where they talk IPv4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RealTimeMarks {
    /// Differentiated services code points, 0 to 63; others count for nothing.
    pub code_points: Vec<u8>,
    /// The mark for IPv4 destinations; 0 has them take their turns.
    pub v4: u32,
    /// The mark for IPv6 destinations.
    pub v6: u32,
}

/// Loaded programs, attached to a cgroup until this value is dropped or the process ends, however it ends.
///
/// Sockets that have a mark, are bound to an interface (`SO_BINDTODEVICE`), belong to another network namespace than
/// the one in which this was loaded (Linux 5.14), or go to an excluded prefix are left alone. Loopback, link-local,
/// multicast and unspecified addresses are always excluded.
pub struct FastPath {
    maps: Maps,
    shared: Shared,
    /// Which of the two halves of each family's slots is live.
    live: [usize; FAMILIES],
    excluded: BTreeSet<IpPrefix>,
    /// Closing them detaches the programs.
    _links: Vec<OwnedFd>,
}

impl FastPath {
    /// Loads the programs and attaches them to the cgroup in directory `cgroup` and all below it. They leave
    /// all sockets alone until [`FastPath::set_slots`].
    ///
    /// Takes Linux 5.8 and `CAP_BPF` with `CAP_NET_ADMIN`, or root.
    pub fn load(cgroup: &Path) -> Result<Self, BpfError> {
        let directory =
            File::open(cgroup).map_err(|error| BpfError::Cgroup { path: cgroup.to_owned(), error })?;
        let maps = Maps {
            slots: Map::create(MapKind::SharedArray, 4, 4, ENTRIES)?,
            excluded4: Map::create(MapKind::PrefixTree, KEY4, 1, ROOM)?,
            excluded6: Map::create(MapKind::PrefixTree, KEY6, 1, ROOM)?,
        };
        for prefix in always_excluded() {
            exclude(&maps, prefix)?;
        }
        let namespace = system::namespace_cookie();
        let attach = |hook: Hook| {
            let code = program::code(hook, &maps, namespace);
            let program = system::load_program(hook.name(), &code, hook.attach_type())?;
            system::attach(&program, &directory, hook.attach_type())
        };
        let links = vec![attach(Hook::Connect4)?, attach(Hook::Connect6)?];
        let shared = Shared::map(&maps.slots, ENTRIES)?;
        Ok(Self { maps, shared, live: [0; FAMILIES], excluded: BTreeSet::new(), _links: links })
    }

    /// Replaces the slots of both families. Sockets that have their mark keep it.
    ///
    /// No system call is made: this works under a seccomp filter that forbids bpf(2). A `connect` at the same time
    /// takes its mark from the old list or from the new one.
    pub fn set_slots(&mut self, slots: &Slots<'_>) -> Result<(), BpfError> {
        for list in [slots.v4, slots.v6] {
            let (count, room) = (list.len(), Self::MOST_SLOTS);
            if count > room {
                return Err(BpfError::TooMany { what: "slots", count, room });
            }
        }
        let RealTimeMarks { code_points, v4, v6 } = &slots.real_time;
        for (family, (list, mark)) in [(slots.v4, *v4), (slots.v6, *v6)].into_iter().enumerate() {
            for code_point in 0..CODE_POINTS {
                let taken = code_points.iter().any(|own| usize::from(*own) == code_point);
                let index = BY_CODE_POINT + family * CODE_POINTS + code_point;
                self.shared.set(index, if taken { mark } else { 0 });
            }
            // Turns that all lead where the code points do need no question.
            let differs = list.is_empty() || list.iter().any(|slot| *slot != mark);
            let asks = if mark != 0 && !code_points.is_empty() && differs { ASKS } else { 0 };
            // Fill the half that is not in use, zeros behind the end, then switch over in one step.
            let half = 1 - self.live[family];
            let start = FAMILIES + (2 * family + half) * Self::MOST_SLOTS;
            for index in 0..Self::MOST_SLOTS {
                self.shared.set(start + index, list.get(index).copied().unwrap_or(0));
            }
            self.shared.set(family, (start << 16) as u32 | asks | list.len() as u32);
            self.live[family] = half;
        }
        Ok(())
    }

    /// Replaces the destinations that are left alone, beyond those that always are. Calls bpf(2).
    ///
    /// New ones are added before old ones are removed. The bits behind a prefix do not matter.
    pub fn set_excluded(&mut self, prefixes: &[IpPrefix]) -> Result<(), BpfError> {
        let always: BTreeSet<IpPrefix> = always_excluded().collect();
        let wanted: BTreeSet<IpPrefix> = prefixes
            .iter()
            .map(|prefix| prefix.network())
            .filter(|prefix| !always.contains(prefix))
            .collect();
        let (count, room) = (wanted.len(), Self::MOST_EXCLUDED);
        if count > room {
            return Err(BpfError::TooMany { what: "excluded prefixes", count, room });
        }
        let old = self.excluded.clone();
        for prefix in wanted.difference(&old) {
            exclude(&self.maps, *prefix)?;
            self.excluded.insert(*prefix);
        }
        for prefix in old.difference(&wanted) {
            for (map, key) in keys(&self.maps, *prefix) {
                map.delete(&key)?;
            }
            self.excluded.remove(prefix);
        }
        Ok(())
    }

    /// Slots of each family, at most.
    pub const MOST_SLOTS: usize = 1024;
    /// Prefixes of [`FastPath::set_excluded`], at most.
    pub const MOST_EXCLUDED: usize = 1024;
}

fn exclude(maps: &Maps, prefix: IpPrefix) -> Result<(), BpfError> {
    keys(maps, prefix).into_iter().try_for_each(|(map, key)| map.update(&key, &[1]))
}

/// Where a prefix goes: an IPv4 one into both maps, since IPv6 sockets can talk IPv4.
fn keys(maps: &Maps, prefix: IpPrefix) -> Vec<(&Map, Vec<u8>)> {
    let length = u32::from(prefix.length());
    match prefix.network().address() {
        IpAddr::V4(address) => vec![
            (&maps.excluded4, key(length, &address.octets())),
            (&maps.excluded6, key(96 + length, &address.to_ipv6_mapped().octets())),
        ],
        IpAddr::V6(address) => vec![(&maps.excluded6, key(length, &address.octets()))],
    }
}

/// `struct bpf_lpm_trie_key`: the length in the host's byte order, then the address.
fn key(length: u32, address: &[u8]) -> Vec<u8> {
    [&length.to_ne_bytes(), address].concat()
}

/// Destinations to which no network of ours leads.
fn always_excluded() -> impl Iterator<Item = IpPrefix> {
    const V4: [(Ipv4Addr, u8); 5] = [
        (Ipv4Addr::UNSPECIFIED, 8),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(224, 0, 0, 0), 4),
        (Ipv4Addr::BROADCAST, 32),
    ];
    const V6: [(Ipv6Addr, u8); 4] = [
        (Ipv6Addr::UNSPECIFIED, 128),
        (Ipv6Addr::LOCALHOST, 128),
        (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
        (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    ];
    let v4 = V4.into_iter().map(|(address, length)| (IpAddr::from(address), length));
    let v6 = V6.into_iter().map(|(address, length)| (IpAddr::from(address), length));
    v4.chain(v6).filter_map(|(address, length)| IpPrefix::new(address, length).ok())
}

const FAMILIES: usize = 2;
/// Two control elements, two halves of slots for each family, its counter, its marks by code point.
const ENTRIES: usize = BY_CODE_POINT + FAMILIES * CODE_POINTS;
/// Where each family counts its new sockets.
pub(super) const COUNTERS: usize = FAMILIES + 2 * FAMILIES * FastPath::MOST_SLOTS;
/// Where the marks of IPv4 sockets by code point begin; those of IPv6 follow.
pub(super) const BY_CODE_POINT: usize = COUNTERS + FAMILIES;
pub(super) const CODE_POINTS: usize = 64;
/// In a control element: new sockets are asked for their code point. Below it stands how many slots there are.
pub(super) const ASKS: u32 = 1 << 15;
const _: () = assert!(FastPath::MOST_SLOTS < ASKS as usize);
const KEY4: usize = 8;
const KEY6: usize = 20;
const ROOM: usize = FastPath::MOST_EXCLUDED + 16;

#[cfg(test)]
mod tests;
