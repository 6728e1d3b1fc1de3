//! Messages of the kernel's Bluetooth management interface (BlueZ, `doc/mgmt-api.txt`); integers are little-endian.
//!
//! ```text
//! command or event (2) | controller (2), 0xffff none | length (2) | parameters
//! ```

use units::MacAddress;

use super::reversed;

pub(super) const READ_INDEX_LIST: u16 = 0x0003;
pub(super) const READ_INFO: u16 = 0x0004;
pub(super) const SET_POWERED: u16 = 0x0005;
pub(super) const SET_CONNECTABLE: u16 = 0x0007;
pub(super) const SET_LOW_ENERGY: u16 = 0x000d;
/// No controller.
pub(super) const NONE: u16 = 0xffff;
const HEADER: usize = 6;

/// A message of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message<'a> {
    /// What became of a command: 0 is success.
    Done {
        command: u16,
        controller: u16,
        status: u8,
        answer: &'a [u8],
    },
    Added(u16),
    Removed(u16),
    Settings(u16, u32),
    Other,
}

/// A command's bytes.
pub(super) fn command(code: u16, controller: u16, parameters: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + parameters.len());
    for field in [code, controller, parameters.len() as u16] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(parameters);
    bytes
}

/// Reads a message; what is cut short is [`Message::Other`].
pub(super) fn parse(bytes: &[u8]) -> Message<'_> {
    parse_known(bytes).unwrap_or(Message::Other)
}

fn parse_known(bytes: &[u8]) -> Option<Message<'_>> {
    let (event, controller, length) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?, u16_at(bytes, 4)?);
    let body = bytes.get(HEADER..HEADER + usize::from(length))?;
    Some(match event {
        // Command Complete and Command Status begin alike.
        0x0001 | 0x0002 => Message::Done {
            command: u16_at(body, 0)?,
            controller,
            status: *body.get(2)?,
            answer: body.get(3..)?,
        },
        0x0004 => Message::Added(controller),
        0x0005 => Message::Removed(controller),
        0x0006 => Message::Settings(controller, u32_at(body, 0)?),
        _ => Message::Other,
    })
}

/// The numbers of an index list.
pub(super) fn indices(answer: &[u8]) -> Vec<u16> {
    let count = u16_at(answer, 0).map_or(0, usize::from);
    (0..count).map_while(|at| u16_at(answer, 2 + 2 * at)).collect()
}

/// Address, supported and current settings of a controller's information.
pub(super) fn information(answer: &[u8]) -> Option<(MacAddress, u32, u32)> {
    Some((MacAddress(reversed(*answer.first_chunk()?)), u32_at(answer, 9)?, u32_at(answer, 13)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_no_cut_panics() {
        let done = [1, 0, 0xff, 0xff, 9, 0, 3, 0, 0, 2, 0, 0, 0, 1, 0];
        assert!((0..done.len()).all(|cut| parse(&done[..cut]) == Message::Other));
        assert_eq!(parse(&[6, 0, 1, 0, 4, 0, 0x81, 0, 0, 0]), Message::Settings(1, 0x81));
        let Message::Done { command: READ_INDEX_LIST, controller: NONE, status: 0, answer } = parse(&done)
        else {
            panic!("{:?}", parse(&done))
        };
        assert_eq!(indices(answer), [0, 1]);
        assert_eq!(indices(&answer[..3]), [] as [u16; 0]);
        assert_eq!(command(READ_INFO, 1, &[7]), [4, 0, 1, 0, 1, 0, 7]);
    }
}
