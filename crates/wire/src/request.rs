//! What the owners of the two ends say to each other inside a session, each in one reliable message.
//!
//! ```text
//! treat flow  01 | treatment (1) | protocol (1) | source port (2) | destination port (2) | source | destination
//! ```
//!
//! Addresses are both of 4 or both of 16 bytes. The device asks the gateway to carry a flow towards it as the device carries it the
//! other way: addresses and ports are those of packets from the device. Messages of another kind are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cursor::{Malformed, Reader};
use crate::hello::DefaultTreatment;
use crate::inner::FlowKey;

const TREAT_FLOW: u8 = 1;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Carry the flow so, in both directions.
    TreatFlow {
        /// The flow, as the device sends it.
        flow: FlowKey,
        /// How.
        treatment: DefaultTreatment,
    },
}

impl Request {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Self::TreatFlow { flow, treatment } = self;
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
        let Some((&TREAT_FLOW, rest)) = bytes.split_first() else { return Ok(None) };
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
        Ok(Some(Self::TreatFlow { flow, treatment }))
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
        for request in [v4, v6] {
            let bytes = request.encode();
            assert_eq!(Request::parse(&bytes), Ok(Some(request)));
            // The first part of a long one is a short one.
            for cut in (1..bytes.len()).filter(|cut| *cut != v4.encode().len()) {
                assert!(Request::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            assert!(Request::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert_eq!(Request::parse(&[]), Ok(None));
        assert_eq!(Request::parse(&[9, 9]), Ok(None), "of a later version");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Request::parse(&bytes);
        }
    }
}
