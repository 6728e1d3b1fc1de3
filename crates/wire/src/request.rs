//! What the owners of the two ends say to each other inside a session, each in one reliable message.
//!
//! ```text
//! treat flow  01 | treatment (1) | protocol (1) | source port (2) | destination port (2) | source | destination
//! path rates  02 | (path (1) | bytes a second v)*
//! ```
//!
//! Addresses are both of 4 or both of 16 bytes. The device asks the gateway to carry a flow towards it as the device carries it the
//! other way: addresses and ports are those of packets from the device. With path rates one end says what it expects its paths to
//! carry towards the other, which cannot measure that. Messages of another kind are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use units::{BitRate, PathId};

use crate::cursor::{Malformed, Reader, put_varint};
use crate::hello::DefaultTreatment;
use crate::inner::FlowKey;

const TREAT_FLOW: u8 = 1;
const PATH_RATES: u8 = 2;

/// Paths in one message; more are left out.
pub const MOST_RATES: usize = 16;

/// What one end expects each path to carry towards the other, in any order.
pub type PathRates = ArrayVec<(PathId, BitRate), MOST_RATES>;

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
        }
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

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Request::parse(&bytes);
        }
    }
}
