//! Questions to routers, past the kernel: who has an address (RFC 826), asked of one that is known or of everybody.

use std::net::Ipv4Addr;

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
};
use units::MacAddress;

const ETHERNET: usize = 14;
const PACKET: usize = 28;

/// Who has an address?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// Our address, by which we ask: what the router answers to.
    pub from: Ipv4Addr,
    /// The address in question.
    pub about: Ipv4Addr,
    /// Whom we ask; `None`: everybody.
    pub whom: Option<MacAddress>,
}

/// Somebody says that an address is his, to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// The address.
    pub about: Ipv4Addr,
    /// Who has it.
    pub whose: MacAddress,
    /// To which address of ours he says so.
    pub to: Ipv4Addr,
}

impl Question {
    /// As an Ethernet frame of `own`.
    pub fn frame(&self, own: MacAddress) -> Vec<u8> {
        let source_hardware_addr = EthernetAddress(own.0);
        let packet = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr: self.from,
            target_hardware_addr: EthernetAddress(self.whom.map_or([0; 6], |whom| whom.0)),
            target_protocol_addr: self.about,
        };
        let outer = EthernetRepr {
            src_addr: source_hardware_addr,
            dst_addr: self.whom.map_or(EthernetAddress::BROADCAST, |whom| EthernetAddress(whom.0)),
            ethertype: EthernetProtocol::Arp,
        };
        let mut frame = vec![0; ETHERNET + PACKET];
        outer.emit(&mut EthernetFrame::new_unchecked(&mut frame));
        packet.emit(&mut ArpPacket::new_unchecked(&mut frame[ETHERNET..]));
        frame
    }

    /// Whether this answers it.
    pub fn is_answered_by(&self, answer: &Answer) -> bool {
        answer.about == self.about
            && answer.to == self.from
            && self.whom.is_none_or(|whom| whom == answer.whose)
    }
}

/// Whether a frame may be an answer.
pub(super) fn may_be_answer(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x06]) && frame.get(20..22) == Some(&[0, 2])
}

/// The answer to `own` in an Ethernet frame, if it is one.
pub(super) fn answer(own: MacAddress, frame: &[u8]) -> Option<Answer> {
    if !may_be_answer(frame) {
        return None;
    }
    let packet = ArpPacket::new_checked(frame.get(ETHERNET..)?).ok()?;
    let ArpRepr::EthernetIpv4 {
        source_hardware_addr,
        source_protocol_addr,
        target_hardware_addr,
        target_protocol_addr,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let whose = MacAddress(source_hardware_addr.0);
    let is_ours = target_hardware_addr.0 == own.0 && !whose.is_group() && whose != own;
    is_ours.then_some(Answer { about: source_protocol_addr, whose, to: target_protocol_addr })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    /// What `router` answers to a question.
    pub fn reply(question: &[u8], router: MacAddress) -> Vec<u8> {
        let mut frame = question.to_vec();
        let (asked, asker) = (question[38..42].to_vec(), question[22..32].to_vec());
        frame[..6].copy_from_slice(&question[6..12]);
        frame[6..12].copy_from_slice(&router.0);
        frame[21] = 2;
        frame[22..28].copy_from_slice(&router.0);
        frame[28..32].copy_from_slice(&asked);
        frame[32..42].copy_from_slice(&asker);
        frame
    }

    #[test]
    fn who_is_asked_answers() {
        let question =
            Question { from: [10, 0, 0, 7].into(), about: [10, 0, 0, 1].into(), whom: Some(ROUTER) };
        let frame = question.frame(OWN);
        assert_eq!((&frame[..6], &frame[6..12], frame.len()), (&ROUTER.0[..], &OWN.0[..], 42));
        assert_eq!(answer(OWN, &frame), None, "a question is none");
        let reply = reply(&frame, ROUTER);
        let told = answer(OWN, &reply).unwrap();
        assert!(question.is_answered_by(&told), "{told:?}");
        assert_eq!(answer(ROUTER, &reply), None, "to somebody else");
        let other = Answer { whose: MacAddress([2, 0, 0, 0, 0, 8]), ..told };
        assert!(!question.is_answered_by(&other), "another router of the same address");
        assert!(Question { whom: None, ..question }.is_answered_by(&other));
        assert!(!Question { from: [10, 0, 0, 8].into(), ..question }.is_answered_by(&told));
        for length in 0..reply.len() {
            assert_eq!(answer(OWN, &reply[..length]), None);
        }
        assert_eq!(Question { whom: None, ..question }.frame(OWN)[..6], [0xff; 6]);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            answer(OWN, &bytes);
            if bytes.len() > 22 {
                bytes[12..14].copy_from_slice(&[0x08, 0x06]);
                bytes[20..22].copy_from_slice(&[0, 2]);
                answer(OWN, &bytes);
            }
        }
    }
}
