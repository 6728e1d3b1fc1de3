//! What the owners of the two ends say to each other inside a session, each in one reliable message.
//!
//! ```text
//! treat flow  01 | treatment (1) | protocol (1) | source port (2) | destination port (2) | source | destination
//! path rates  02 | (path (1) | bytes a second v)*
//! siblings    03 | (public key (32) | TCP port (2), 0: none | name length (1) | name | addresses (1) | address, as in a join link, ...)*
//! ```
//!
//! Addresses are both of 4 or both of 16 bytes. The device asks the gateway to carry a flow towards it as the device carries it the
//! other way: addresses and ports are those of packets from the device. With path rates one end says what it expects its paths to
//! carry towards the other, which cannot measure that. With siblings a gateway names the others that let the device in; what is not in the
//! list is none any more. Messages of another kind are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use arrayvec::ArrayVec;
use units::{BitRate, PathId};

use crate::cursor::{Malformed, Reader, put_varint};
use crate::frame::MAX_BLOB_LEN;
use crate::hello::{DefaultTreatment, Name};
use crate::inner::FlowKey;
use crate::join_link::{HostPort, decode_address, encode_address};

const TREAT_FLOW: u8 = 1;
const PATH_RATES: u8 = 2;
const SIBLINGS: u8 = 3;

/// Paths in one message; more are left out.
pub const MOST_RATES: usize = 16;

/// What one end expects each path to carry towards the other, in any order.
pub type PathRates = ArrayVec<(PathId, BitRate), MOST_RATES>;

/// Siblings in one message at most; fewer if they do not fit.
pub const MOST_SIBLINGS: usize = 16;
/// Addresses of a sibling; more are left out.
pub const MOST_SIBLING_ADDRESSES: usize = 4;

/// Another gateway with the same clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// Its public key.
    pub public_key: [u8; 32],
    /// What it calls itself.
    pub name: Name,
    /// Port of its framed-TCP carrier.
    pub tcp_port: Option<NonZeroU16>,
    /// Where it may be reached, best first; at least one.
    pub addresses: ArrayVec<HostPort, MOST_SIBLING_ADDRESSES>,
}

impl Sibling {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.public_key);
        bytes.extend(self.tcp_port.map_or(0, NonZeroU16::get).to_be_bytes());
        bytes.push(self.name.as_str().len() as u8);
        bytes.extend(self.name.as_str().bytes());
        bytes.push(self.addresses.len() as u8);
        self.addresses.iter().for_each(|address| encode_address(address, bytes));
    }

    fn parse<'a>(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let public_key = reader.array()?;
        let tcp_port = NonZeroU16::new(reader.u16()?);
        let length = usize::from(reader.u8()?);
        let name = std::str::from_utf8(reader.bytes(length)?).ok().and_then(|name| Name::new(name).ok());
        let name = name.ok_or(Malformed::Field("name of a sibling"))?;
        let count = reader.u8()?;
        let mut addresses = ArrayVec::new();
        for _ in 0..count {
            let (address, rest) =
                decode_address(reader.rest()).map_err(|_| Malformed::Field("address of a sibling"))?;
            *reader = Reader::new(rest);
            addresses.try_push(address).map_err(|_| Malformed::Field("addresses of a sibling"))?;
        }
        if addresses.is_empty() {
            return Err(Malformed::Field("addresses of a sibling"));
        }
        Ok(Self { public_key, name, tcp_port, addresses })
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "a request is read, acted upon and gone: it is kept nowhere")]
pub enum Request {
    /// Carry the flow so, in both directions.
    TreatFlow {
        /// The flow, as the device sends it.
        flow: FlowKey,
        /// How.
        treatment: DefaultTreatment,
    },
    /// What the sender's paths can carry.
    PathRates(PathRates),
    /// The other gateways that let the device in, all of them; at most [`MOST_SIBLINGS`], those to be preferred first.
    Siblings(Vec<Sibling>),
}

impl Request {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::TreatFlow { flow, treatment } => Self::encode_flow(flow, *treatment),
            Self::PathRates(rates) => {
                let mut bytes = vec![PATH_RATES];
                for (path, rate) in rates {
                    bytes.push(path.0);
                    put_varint(&mut bytes, rate.0 / 8);
                }
                bytes
            }
            Self::Siblings(siblings) => Self::encode_siblings(siblings),
        }
    }

    /// As many as fit.
    fn encode_siblings(siblings: &[Sibling]) -> Vec<u8> {
        let mut bytes = vec![SIBLINGS];
        for sibling in siblings.iter().take(MOST_SIBLINGS) {
            let before = bytes.len();
            sibling.put(&mut bytes);
            if bytes.len() > MAX_BLOB_LEN {
                bytes.truncate(before);
                break;
            }
        }
        bytes
    }

    fn encode_flow(flow: &FlowKey, treatment: DefaultTreatment) -> Vec<u8> {
        let mut bytes = vec![TREAT_FLOW, treatment.code(), flow.protocol];
        bytes.extend(flow.source_port.to_be_bytes());
        bytes.extend(flow.destination_port.to_be_bytes());
        for address in [flow.source, flow.destination] {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        bytes
    }

    /// Reads a message; `None` if it is of a kind that this version does not know.
    ///
    /// # Errors
    /// [`Malformed`] if it is of a known kind and not as it should be.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        match bytes.split_first() {
            Some((&TREAT_FLOW, rest)) => Self::parse_flow(rest).map(Some),
            Some((&PATH_RATES, rest)) => Self::parse_rates(rest).map(Some),
            Some((&SIBLINGS, rest)) => Self::parse_siblings(rest).map(Some),
            _ => Ok(None),
        }
    }

    fn parse_rates(rest: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let mut rates = PathRates::new();
        while !reader.is_empty() {
            let rate = (PathId(reader.u8()?), BitRate(reader.varint()?.min(u64::MAX / 8) * 8));
            rates.try_push(rate).map_err(|_| Malformed::Field("path rates"))?;
        }
        Ok(Self::PathRates(rates))
    }

    fn parse_siblings(rest: &[u8]) -> Result<Self, Malformed> {
        if rest.len() >= MAX_BLOB_LEN {
            return Err(Malformed::Field("length of siblings"));
        }
        let mut reader = Reader::new(rest);
        let mut siblings: Vec<Sibling> = Vec::new();
        while !reader.is_empty() {
            let sibling = Sibling::parse(&mut reader)?;
            let is_known = siblings.iter().any(|known| known.public_key == sibling.public_key);
            if is_known || siblings.len() >= MOST_SIBLINGS {
                return Err(Malformed::Field("siblings"));
            }
            siblings.push(sibling);
        }
        Ok(Self::Siblings(siblings))
    }

    fn parse_flow(rest: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let treatment = DefaultTreatment::from_code(reader.u8()?);
        let (protocol, source_port, destination_port) = (reader.u8()?, reader.u16()?, reader.u16()?);
        let (source, destination) = if rest.len() == 5 + 1 + 8 {
            (Ipv4Addr::from(reader.array::<4>()?).into(), Ipv4Addr::from(reader.array::<4>()?).into())
        } else {
            (Ipv6Addr::from(reader.array::<16>()?).into(), Ipv6Addr::from(reader.array::<16>()?).into())
        };
        if !reader.is_empty() {
            return Err(Malformed::Field("length"));
        }
        let flow = FlowKey { source, destination, protocol, source_port, destination_port };
        Ok(Self::TreatFlow { flow, treatment })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flow(source: IpAddr, destination: IpAddr) -> Request {
        let flow = FlowKey { source, destination, protocol: 6, source_port: 40_000, destination_port: 443 };
        Request::TreatFlow { flow, treatment: DefaultTreatment::Protected }
    }

    #[test]
    fn both_families_come_back_and_nothing_else_does() {
        let v4 = flow([10, 86, 0, 2].into(), [198, 51, 100, 9].into());
        let v6 = flow([0xfd; 16].into(), [0x20; 16].into());
        let short = v4.encode().len();
        for request in [v4, v6] {
            let bytes = request.encode();
            assert_eq!(Request::parse(&bytes), Ok(Some(request.clone())));
            // The first part of a long one is a short one.
            for cut in (1..bytes.len()).filter(|cut| *cut != short) {
                assert!(Request::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            assert!(Request::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert_eq!(Request::parse(&[]), Ok(None));
        assert_eq!(Request::parse(&[9, 9]), Ok(None), "of a later version");
    }

    #[test]
    fn rates_come_back_in_whole_bytes() {
        let rates = [(PathId(1), BitRate(40_000_000)), (PathId(200), BitRate(8))];
        let request = Request::PathRates(rates.into_iter().collect());
        assert_eq!(Request::parse(&request.encode()), Ok(Some(request.clone())));
        let absurd =
            Request::parse(&[PATH_RATES, 1, 255, 255, 255, 255, 255, 255, 255, 255]).unwrap().unwrap();
        assert_eq!(Request::parse(&absurd.encode()), Ok(Some(absurd)));
        assert_eq!(Request::parse(&[PATH_RATES]), Ok(Some(Request::PathRates(PathRates::new()))));
        assert!(Request::parse(&[PATH_RATES, 1]).is_err(), "a path without a rate");
        assert!(Request::parse(&[[PATH_RATES].as_slice(), &[1; 2 * MOST_RATES + 2]].concat()).is_err());
    }

    fn sibling(number: u8, addresses: &[&str]) -> Sibling {
        Sibling {
            public_key: [number; 32],
            name: Name::new(&format!("gateway {number}")).unwrap(),
            tcp_port: NonZeroU16::new(443 * u16::from(number % 2)),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn siblings_come_back_as_far_as_they_fit() {
        let all: Vec<Sibling> = (0..20)
            .map(|number| {
                sibling(number, &["192.0.2.1:4600", "gw.example.org:443"][..1 + usize::from(number % 2)])
            })
            .collect();
        let few = Request::Siblings(all[..5].to_vec());
        assert_eq!(Request::parse(&few.encode()), Ok(Some(few)));
        let bytes = Request::Siblings(all.clone()).encode();
        assert!(bytes.len() <= MAX_BLOB_LEN);
        let Ok(Some(Request::Siblings(read))) = Request::parse(&bytes) else { panic!("{bytes:?}") };
        assert!(read.len() > 10 && read.len() <= MOST_SIBLINGS && all.starts_with(&read), "{}", read.len());
        assert_eq!(Request::parse(&[SIBLINGS]), Ok(Some(Request::Siblings(Vec::new()))), "none any more");
    }

    #[test]
    fn lists_of_siblings_that_make_no_sense_are_refused() {
        let good = Request::Siblings(vec![sibling(1, &["192.0.2.1:4600"])]).encode();
        for cut in 2..good.len() {
            assert!(Request::parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Request::parse(&bytes)
        };
        let (name, count) = (1 + 32 + 2, 1 + 32 + 2 + 1 + "gateway 1".len());
        assert!(with(name + 1, b'\n').is_err(), "a name with a line break");
        assert!(with(count, 0).is_err(), "no address");
        assert!(with(count, 2).is_err(), "an address too few");
        assert!(with(count + 1, 9).is_err(), "an address of no known kind");
        let port = good.len() - 2;
        let mut bytes = good.clone();
        bytes[port..].fill(0);
        assert!(Request::parse(&bytes).is_err(), "a port of 0");
        assert!(Request::parse(&[&good[..], &good[1..]].concat()).is_err(), "one gateway twice");
        let five = ["192.0.2.1:1"; 5].map(|text| text.parse().unwrap());
        let mut bytes = good[..count].to_vec();
        bytes.push(5);
        five.iter().for_each(|address| encode_address(address, &mut bytes));
        assert!(Request::parse(&bytes).is_err(), "five addresses");
        let mut many = vec![SIBLINGS];
        for number in 0..=MOST_SIBLINGS as u8 {
            Sibling { name: Name::new("x").unwrap(), ..sibling(number, &["192.0.2.1:4600"]) }.put(&mut many);
        }
        assert!(many.len() <= MAX_BLOB_LEN && Request::parse(&many).is_err(), "more than there may be");
        assert!(Request::parse(&[SIBLINGS; MAX_BLOB_LEN + 1]).is_err(), "longer than a message");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Request::parse(&bytes);
        }
    }
}
