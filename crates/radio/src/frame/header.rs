//! Frame control, addresses and sequence numbers (IEEE 802.11-2020 sections 9.2.3 and 9.2.4).

use units::MacAddress;

use super::FrameError;
use super::bytes::Reader;

/// What a frame is, by type and subtype (IEEE 802.11-2020 table 9-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Asks to be let in.
    AssociationRequest,
    /// Lets in or refuses.
    AssociationResponse,
    /// Asks to be let in once more.
    ReassociationRequest,
    /// Answers that.
    ReassociationResponse,
    /// Asks who is there.
    ProbeRequest,
    /// Says what network is here.
    ProbeResponse,
    /// Says it unasked, about ten times a second.
    Beacon,
    /// Ends an association.
    Disassociation,
    /// Opens a relation; with the open system a formality.
    Authentication,
    /// Ends every relation.
    Deauthentication,
    /// Further management, by category.
    Action,
    /// Asks an access point for one frame that it keeps.
    PowerSavePoll,
    /// Confirms the frame before.
    Acknowledgement,
    /// Carries a packet.
    Data,
    /// Carries nothing but its bits.
    Null,
    /// Carries a packet, with a traffic class.
    QosData,
    /// Carries nothing but its bits, with a traffic class.
    QosNull,
    /// Everything else: type (0 to 3) and subtype (0 to 15).
    Other(u8, u8),
}

const KINDS: [(Kind, u8, u8); 17] = [
    (Kind::AssociationRequest, 0, 0),
    (Kind::AssociationResponse, 0, 1),
    (Kind::ReassociationRequest, 0, 2),
    (Kind::ReassociationResponse, 0, 3),
    (Kind::ProbeRequest, 0, 4),
    (Kind::ProbeResponse, 0, 5),
    (Kind::Beacon, 0, 8),
    (Kind::Disassociation, 0, 10),
    (Kind::Authentication, 0, 11),
    (Kind::Deauthentication, 0, 12),
    (Kind::Action, 0, 13),
    (Kind::PowerSavePoll, 1, 10),
    (Kind::Acknowledgement, 1, 13),
    (Kind::Data, 2, 0),
    (Kind::Null, 2, 4),
    (Kind::QosData, 2, 8),
    (Kind::QosNull, 2, 12),
];

impl Kind {
    fn of(kind: u8, subtype: u8) -> Self {
        let known = KINDS.iter().find(|(_, a, b)| (*a, *b) == (kind, subtype));
        known.map_or(Self::Other(kind, subtype), |(kind, ..)| *kind)
    }

    fn bits(self) -> (u8, u8) {
        match self {
            Self::Other(kind, subtype) => (kind & 3, subtype & 15),
            known => KINDS.iter().find(|(kind, ..)| *kind == known).map_or((3, 15), |(_, a, b)| (*a, *b)),
        }
    }

    /// Whether it manages the network.
    pub fn is_management(self) -> bool {
        self.bits().0 == 0
    }

    /// Whether it is of the data type, with or without a body.
    pub fn is_data(self) -> bool {
        self.bits().0 == 2
    }

    /// Whether it has a QoS field.
    fn has_qos(self) -> bool {
        let (kind, subtype) = self.bits();
        kind == 2 && subtype & 8 != 0
    }
}

/// The first two bytes of every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameControl {
    /// What it is.
    pub kind: Kind,
    /// It goes to an access point, to be passed on.
    pub to_access_point: bool,
    /// It comes from an access point that passes it on.
    pub from_access_point: bool,
    /// Further pieces of the same packet follow.
    pub more_fragments: bool,
    /// It was sent before, perhaps without success.
    pub retry: bool,
    /// The sender sleeps after this exchange (PM).
    pub power_save: bool,
    /// More frames are kept for the receiver.
    pub more_data: bool,
    /// The body is encrypted.
    pub protected: bool,
    /// The sender orders strictly, or the frame has an HT control field.
    pub order: bool,
}

impl FrameControl {
    /// A frame of a kind, without any bit set.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            to_access_point: false,
            from_access_point: false,
            more_fragments: false,
            retry: false,
            power_save: false,
            more_data: false,
            protected: false,
            order: false,
        }
    }

    /// Reads the two bytes.
    ///
    /// # Errors
    /// Another protocol version.
    pub fn parse([first, flags]: [u8; 2]) -> Result<Self, FrameError> {
        if first & 3 != 0 {
            return Err(FrameError::Version);
        }
        let flag = |bit: u8| flags & 1 << bit != 0;
        Ok(Self {
            kind: Kind::of(first >> 2 & 3, first >> 4),
            to_access_point: flag(0),
            from_access_point: flag(1),
            more_fragments: flag(2),
            retry: flag(3),
            power_save: flag(4),
            more_data: flag(5),
            protected: flag(6),
            order: flag(7),
        })
    }

    /// The two bytes.
    pub fn to_bytes(self) -> [u8; 2] {
        let (kind, subtype) = self.kind.bits();
        let flags = [
            self.to_access_point,
            self.from_access_point,
            self.more_fragments,
            self.retry,
            self.power_save,
            self.more_data,
            self.protected,
            self.order,
        ];
        [kind << 2 | subtype << 4, (0..8).zip(flags).fold(0, |bits, (bit, set)| bits | u8::from(set) << bit)]
    }
}

/// A frame's number (12 bits) and that of its piece (4 bits).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SequenceControl {
    /// Counts packets, modulo 4,096.
    pub number: u16,
    /// Counts pieces of one packet.
    pub fragment: u8,
}

impl SequenceControl {
    fn from_bits(bits: u16) -> Self {
        Self { number: bits >> 4, fragment: (bits & 15) as u8 }
    }

    fn bits(self) -> u16 {
        (self.number & 0xfff) << 4 | u16::from(self.fragment & 15)
    }
}

/// The header of a management or data frame with three addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is, and its bits.
    pub control: FrameControl,
    /// Who is to hear it.
    pub receiver: MacAddress,
    /// Who sent it.
    pub transmitter: MacAddress,
    /// BSSID, source or destination, as the direction bits say.
    pub third: MacAddress,
    /// Its number.
    pub sequence: SequenceControl,
    /// QoS control, where the kind has one.
    pub qos: Option<u16>,
}

impl Header {
    /// A header without bits and number, as from a station to its access point for management frames.
    pub fn new(kind: Kind, receiver: MacAddress, transmitter: MacAddress, third: MacAddress) -> Self {
        let control = FrameControl::new(kind);
        let qos = kind.has_qos().then_some(0);
        Self { control, receiver, transmitter, third, sequence: SequenceControl::default(), qos }
    }

    /// Reads a header; also gives what follows it.
    ///
    /// # Errors
    /// A control frame, a frame with four addresses, too few bytes.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let mut reader = Reader(frame);
        let control = FrameControl::parse(reader.array()?)?;
        if !control.kind.is_management() && !control.kind.is_data() {
            return Err(FrameError::Kind);
        }
        if control.to_access_point && control.from_access_point {
            return Err(FrameError::FourAddresses);
        }
        reader.take(2)?;
        let (receiver, transmitter, third) = (reader.address()?, reader.address()?, reader.address()?);
        let sequence = SequenceControl::from_bits(reader.little_16()?);
        let qos = if control.kind.has_qos() { Some(reader.little_16()?) } else { None };
        // HT control: in management frames, and in data frames with QoS, where "order" says so (9.2.4.1.10).
        if control.order && (control.kind.is_management() || qos.is_some()) {
            reader.take(4)?;
        }
        Ok((Self { control, receiver, transmitter, third, sequence, qos }, reader.0))
    }

    /// Appends the header; the duration is left to the card.
    pub fn write(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&self.control.to_bytes());
        frame.extend_from_slice(&[0, 0]);
        for address in [self.receiver, self.transmitter, self.third] {
            frame.extend_from_slice(&address.0);
        }
        frame.extend_from_slice(&self.sequence.bits().to_le_bytes());
        if let Some(qos) = self.qos {
            frame.extend_from_slice(&qos.to_le_bytes());
        }
    }

    /// The traffic identifier, 0 to 15; 0 without QoS.
    pub fn traffic(&self) -> u8 {
        self.qos.map_or(0, |qos| (qos & 15) as u8)
    }

    /// Whether the body holds several packets (A-MSDU).
    pub fn is_aggregate(&self) -> bool {
        self.qos.is_some_and(|qos| qos & 0x80 != 0)
    }

    /// The access point or ad hoc group that the frame belongs to (IEEE 802.11-2020 table 9-30).
    pub fn bssid(&self) -> MacAddress {
        match (self.control.to_access_point, self.control.from_access_point) {
            (true, _) => self.receiver,
            (_, true) => self.transmitter,
            _ => self.third,
        }
    }

    /// Who made the packet.
    pub fn source(&self) -> MacAddress {
        if self.control.from_access_point { self.third } else { self.transmitter }
    }

    /// Whom the packet is for.
    pub fn destination(&self) -> MacAddress {
        if self.control.to_access_point { self.third } else { self.receiver }
    }
}

/// A PS-Poll (IEEE 802.11-2020 section 9.3.1.5): asks for one kept frame. `association` is the number that the access point gave, 1 to 2,007.
pub fn power_save_poll(association: u16, bssid: MacAddress, own: MacAddress) -> Vec<u8> {
    let mut frame = Vec::with_capacity(16);
    let mut control = FrameControl::new(Kind::PowerSavePoll);
    control.power_save = true;
    frame.extend_from_slice(&control.to_bytes());
    frame.extend_from_slice(&(association | 0xc000).to_le_bytes());
    frame.extend_from_slice(&bssid.0);
    frame.extend_from_slice(&own.0);
    frame
}
