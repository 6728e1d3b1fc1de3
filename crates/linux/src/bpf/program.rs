//! The program that runs at `connect`: gives a socket the mark of a network.
//!
//! ```text
//! not TCP, or another network namespace?      -> leave alone
//! marked, or bound to an interface?           -> leave alone
//! destination in the excluded prefixes?       -> leave alone
//! control = slots[family]
//! control.asks and marks[family][getsockopt(IP_TOS or IPV6_TCLASS) >> 2] is not 0? -> that is the mark
//! control.count is 0?                         -> leave alone
//! mark = slots[control.start + counter++ mod control.count]; 0? -> leave alone
//! setsockopt(SO_MARK, mark)
//! ```
//! Two sockets at the very same moment may get the same slot: the counter is not locked. It never refuses a connection and never changes its addresses.

use super::fast_path::{ASKS, BY_CODE_POINT, CODE_POINTS, COUNTERS};
use super::instruction::{Assembler, Function, Label, Register, Size};
use super::system::Map;

/// A point at which the kernel runs the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    Connect4,
    Connect6,
}

/// What the programs read.
pub(super) struct Maps {
    /// Slots of both families, see [`super::fast_path`].
    pub(super) slots: Map,
    /// Excluded prefixes of IPv4; keys are length (4 bytes) and address.
    pub(super) excluded4: Map,
    /// The same for IPv6, with those of IPv4 as `::ffff:0:0/96` ones for IPv6 sockets that talk IPv4.
    pub(super) excluded6: Map,
}

impl Hook {
    /// `enum bpf_attach_type`.
    pub(super) fn attach_type(self) -> u32 {
        match self {
            Self::Connect4 => 10,
            Self::Connect6 => 11,
        }
    }

    /// What `bpftool` shows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect4 => "ab_connect4",
            Self::Connect6 => "ab_connect6",
        }
    }
}

/// The program for `hook`, for sockets of the namespace with number `namespace` (of all, if `None`).
pub(super) fn code(hook: Hook, maps: &Maps, namespace: Option<u64>) -> Vec<[u8; 8]> {
    use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
    let mut program = Assembler::default();
    let leave = program.label();
    program.copy(R6, R1);
    program.load(Size::Word, R2, R6, CONTEXT_PROTOCOL);
    program.jump_if_different(R2, libc::IPPROTO_TCP, leave);
    if let Some(namespace) = namespace {
        program.call(Function::NamespaceCookie);
        program.set_long(R2, namespace);
        program.jump_if_registers_differ(R0, R2, leave);
    }
    program.load(Size::Double, R7, R6, CONTEXT_SOCKET);
    program.load(Size::Word, R2, R7, SOCKET_MARK);
    program.jump_if_different(R2, 0, leave);
    program.load(Size::Word, R2, R7, SOCKET_INTERFACE);
    program.jump_if_different(R2, 0, leave);

    match hook {
        Hook::Connect4 => destination4(&mut program, maps, leave),
        Hook::Connect6 => destination6(&mut program, maps, leave),
    }

    // R9 is the index of the family's control element: start << 16 | ASKS | count.
    program.store(FRAME_INDEX, R9);
    program.add(R9, COUNTERS as i32);
    program.store(FRAME_COUNTER, R9);
    look_up(&mut program, &maps.slots, FRAME_INDEX);
    program.jump_if_equal(R0, 0, leave);
    program.load(Size::Word, R8, R0, 0);
    let (marked, by_turns) = (program.label(), program.label());
    program.copy(R9, R8);
    program.and(R9, ASKS as i32);
    program.jump_if_equal(R9, 0, by_turns);
    by_code_point(&mut program, hook, maps, marked);

    program.place(by_turns);
    program.copy(R9, R8);
    program.and(R9, (ASKS - 1) as i32);
    program.jump_if_equal(R9, 0, leave);
    program.shift_right(R8, 16);
    look_up(&mut program, &maps.slots, FRAME_COUNTER);
    program.jump_if_equal(R0, 0, leave);
    program.load(Size::Word, R2, R0, 0);
    program.copy(R3, R2);
    program.add(R3, 1);
    program.store_at(R0, R3);
    program.copy(R0, R2);
    program.modulo(R0, R9);
    program.add_register(R0, R8);
    program.store(FRAME_INDEX, R0);
    look_up(&mut program, &maps.slots, FRAME_INDEX);
    program.jump_if_equal(R0, 0, leave);
    program.load(Size::Word, R2, R0, 0);
    program.jump_if_equal(R2, 0, leave);

    program.place(marked);
    program.store(FRAME_INDEX, R2);
    program.copy(R1, R6);
    program.set(R2, libc::SOL_SOCKET);
    program.set(R3, libc::SO_MARK);
    program.frame_address(R4, FRAME_INDEX);
    program.set(R5, 4);
    program.call(Function::SetSocketOption);

    program.place(leave);
    program.set(R0, ALLOW);
    program.exit();
    program.finish()
}

/// Goes to `marked` with the mark in `R2` if there is one for the socket's code point. `R7` is where the family's marks begin.
fn by_code_point(program: &mut Assembler, hook: Hook, maps: &Maps, marked: Label) {
    use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
    let (level, option) = match hook {
        Hook::Connect4 => (libc::IPPROTO_IP, libc::IP_TOS),
        Hook::Connect6 => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let none = program.label();
    program.copy(R1, R6);
    program.set(R2, level);
    program.set(R3, option);
    program.frame_address(R4, FRAME_INDEX);
    program.set(R5, 4);
    program.call(Function::GetSocketOption);
    program.jump_if_different(R0, 0, none);
    program.load(Size::Word, R2, R10, FRAME_INDEX);
    program.and(R2, 0xff);
    program.shift_right(R2, 2);
    program.add_register(R2, R7);
    program.store(FRAME_INDEX, R2);
    look_up(program, &maps.slots, FRAME_INDEX);
    program.jump_if_equal(R0, 0, none);
    program.load(Size::Word, R2, R0, 0);
    program.jump_if_different(R2, 0, marked);
    program.place(none);
}

/// Leaves if the IPv4 destination is excluded; then `R9` is the control element of IPv4, `R7` where its marks by code point begin.
fn destination4(program: &mut Assembler, maps: &Maps, leave: Label) {
    use Register::{R0, R2, R6, R7, R9};
    program.store_value(FRAME_KEY, 32);
    program.load(Size::Word, R2, R6, CONTEXT_ADDRESS4);
    program.store(FRAME_KEY + 4, R2);
    look_up(program, &maps.excluded4, FRAME_KEY);
    program.jump_if_different(R0, 0, leave);
    program.set(R9, CONTROL4);
    program.set(R7, BY_CODE_POINT as i32);
}

/// The same for IPv6; they are those of IPv4 if the address is an IPv4 one (`::ffff:a.b.c.d`).
fn destination6(program: &mut Assembler, maps: &Maps, leave: Label) {
    use Register::{R0, R2, R6, R7, R9, R10};
    program.store_value(FRAME_KEY, 128);
    for word in 0..4 {
        program.load(Size::Word, R2, R6, CONTEXT_ADDRESS6 + 4 * word);
        program.store(FRAME_KEY + 4 + 4 * word, R2);
    }
    look_up(program, &maps.excluded6, FRAME_KEY);
    program.jump_if_different(R0, 0, leave);

    let chosen = program.label();
    program.set(R9, CONTROL6);
    program.set(R7, (BY_CODE_POINT + CODE_POINTS) as i32);
    let mapped = u32::from_ne_bytes([0, 0, 0xff, 0xff]) as i32;
    for (word, value) in [(0, 0), (1, 0), (2, mapped)] {
        program.load(Size::Word, R2, R10, FRAME_KEY + 4 + 4 * word);
        program.jump_if_word_differs(R2, value, chosen);
    }
    program.set(R9, CONTROL4);
    program.set(R7, BY_CODE_POINT as i32);
    program.place(chosen);
}

/// `R0 =` the value in `map` of the key that lies in the frame, 0 if there is none.
fn look_up(program: &mut Assembler, map: &Map, key: i16) {
    program.set_map(Register::R1, map.raw());
    program.frame_address(Register::R2, key);
    program.call(Function::MapLookup);
}

/// The program's result that lets the call go on.
const ALLOW: i32 = 1;

/// Indices of the control elements.
const CONTROL4: i32 = 0;
const CONTROL6: i32 = 1;

// Offsets in `struct bpf_sock_addr`.
const CONTEXT_ADDRESS4: i16 = 4;
const CONTEXT_ADDRESS6: i16 = 8;
const CONTEXT_PROTOCOL: i16 = 36;
const CONTEXT_SOCKET: i16 = 64;
// Offsets in `struct bpf_sock`.
const SOCKET_INTERFACE: i16 = 0;
const SOCKET_MARK: i16 = 16;
// Offsets in the frame: 4 bytes for an index or mark, 20 for a prefix.
const FRAME_INDEX: i16 = -4;
const FRAME_KEY: i16 = -24;
const FRAME_COUNTER: i16 = -28;
