//! Encoding of BPF instructions (RFC 9669).
//!
//! ```text
//! +--------+----+----+----------------+--------------------------------+
//! | opcode | dst src |     offset     |           immediate            |
//! |   8    | 4  | 4  |       16       |               32               |
//! +--------+----+----+----------------+--------------------------------+
//! ```
//! Jumps are to labels, which are forward only: such a program always ends.

/// A register. `R0` holds results, `R1` to `R5` arguments, `R6` to `R9` survive calls, `R10` is the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Functions of the kernel that a program may call (`enum bpf_func_id`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    MapLookup = 1,
    SetSocketOption = 49,
    GetSocketOption = 57,
    NamespaceCookie = 122,
}

/// Sizes of memory accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    Word = 0x00,
    Double = 0x18,
}

/// A place to jump to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<[u8; 8]>,
    /// Where each label is, once placed.
    labels: Vec<Option<usize>>,
    /// Instructions whose offset is a label's.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label to be placed later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `to = from`
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | REGISTER | MOVE, to, from, 0, 0);
    }

    /// `to = value`
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.push(ALU64 | MOVE, to, Register::R0, 0, value);
    }

    /// `to += value`
    pub(super) fn add(&mut self, to: Register, value: i32) {
        self.push(ALU64 | ADD, to, Register::R0, 0, value);
    }

    /// `to += from`
    pub(super) fn add_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | REGISTER | ADD, to, from, 0, 0);
    }

    /// `to &= value`
    pub(super) fn and(&mut self, to: Register, value: i32) {
        self.push(ALU64 | AND, to, Register::R0, 0, value);
    }

    /// `to >>= bits`
    pub(super) fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | SHIFT_RIGHT, to, Register::R0, 0, bits);
    }

    /// `to = to mod by`, on the lower 32 bits.
    pub(super) fn modulo(&mut self, to: Register, by: Register) {
        self.push(ALU32 | REGISTER | MODULO, to, by, 0, 0);
    }

    /// `to = value`, all 64 bits.
    pub(super) fn set_long(&mut self, to: Register, value: u64) {
        self.long(to, Register::R0, value as u32, (value >> 32) as u32);
    }

    /// `to =` the map behind descriptor `map`.
    pub(super) fn set_map(&mut self, to: Register, map: i32) {
        // The source register's number 1 means "the immediate is a map's descriptor".
        self.long(to, Register::R1, map as u32, 0);
    }

    /// `to = *(from + offset)`
    pub(super) fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(LOAD | MEMORY | size as u8, to, from, offset, 0);
    }

    /// `*(frame + offset) = from`, 32 bits.
    pub(super) fn store(&mut self, offset: i16, from: Register) {
        self.push(STORE_REGISTER | MEMORY | Size::Word as u8, Register::R10, from, offset, 0);
    }

    /// `*to = from`, 32 bits.
    pub(super) fn store_at(&mut self, to: Register, from: Register) {
        self.push(STORE_REGISTER | MEMORY | Size::Word as u8, to, from, 0, 0);
    }

    /// `*(frame + offset) = value`, 32 bits.
    pub(super) fn store_value(&mut self, offset: i16, value: i32) {
        self.push(STORE | MEMORY | Size::Word as u8, Register::R10, Register::R0, offset, value);
    }

    /// `to = frame + offset`
    pub(super) fn frame_address(&mut self, to: Register, offset: i16) {
        self.copy(to, Register::R10);
        self.add(to, offset.into());
    }

    /// Jumps if `register == value`.
    pub(super) fn jump_if_equal(&mut self, register: Register, value: i32, to: Label) {
        self.jump(JUMP | EQUAL, register, Register::R0, value, to);
    }

    /// Jumps if `register != value`.
    pub(super) fn jump_if_different(&mut self, register: Register, value: i32, to: Label) {
        self.jump(JUMP | DIFFERENT, register, Register::R0, value, to);
    }

    /// Jumps if the lower 32 bits of `register` are not `value`; Linux 5.1.
    pub(super) fn jump_if_word_differs(&mut self, register: Register, value: i32, to: Label) {
        self.jump(JUMP32 | DIFFERENT, register, Register::R0, value, to);
    }

    /// Jumps if `left != right`.
    pub(super) fn jump_if_registers_differ(&mut self, left: Register, right: Register, to: Label) {
        self.jump(JUMP | REGISTER | DIFFERENT, left, right, 0, to);
    }

    /// `R0 = function(R1, ...)`; `R1` to `R5` are lost.
    pub(super) fn call(&mut self, function: Function) {
        self.push(JUMP | CALL, Register::R0, Register::R0, 0, function as i32);
    }

    /// Ends with `R0` as the result.
    pub(super) fn exit(&mut self) {
        self.push(JUMP | EXIT, Register::R0, Register::R0, 0, 0);
    }

    /// The program, with all labels resolved. Labels that were never placed lead to the next instruction.
    pub(super) fn finish(mut self) -> Vec<[u8; 8]> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].unwrap_or(at + 1);
            let distance = i16::try_from(target.saturating_sub(at + 1)).unwrap_or(i16::MAX);
            self.code[at][2..4].copy_from_slice(&distance.to_ne_bytes());
        }
        self.code
    }

    fn jump(&mut self, opcode: u8, left: Register, right: Register, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(opcode, left, right, 0, value);
    }

    fn long(&mut self, to: Register, source: Register, low: u32, high: u32) {
        self.push(LOAD_LONG, to, source, 0, low as i32);
        self.push(0, Register::R0, Register::R0, 0, high as i32);
    }

    fn push(&mut self, opcode: u8, to: Register, from: Register, offset: i16, value: i32) {
        let (to, from) = (to as u8, from as u8);
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let mut bytes = [opcode, registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
        bytes[4..8].copy_from_slice(&value.to_ne_bytes());
        self.code.push(bytes);
    }
}

const LOAD_LONG: u8 = 0x18;
const LOAD: u8 = 0x01;
const STORE: u8 = 0x02;
const STORE_REGISTER: u8 = 0x03;
const ALU32: u8 = 0x04;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const MEMORY: u8 = 0x60;
const REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const AND: u8 = 0x50;
const SHIFT_RIGHT: u8 = 0x70;
const MODULO: u8 = 0x90;
const MOVE: u8 = 0xb0;
const EQUAL: u8 = 0x10;
const DIFFERENT: u8 = 0x50;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn instructions_have_the_bytes_of_the_standard() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.copy(Register::R6, Register::R1);
        assembler.jump_if_equal(Register::R6, 7, end);
        assembler.set_map(Register::R1, 5);
        assembler.load(Size::Word, Register::R2, Register::R6, 4);
        assembler.place(end);
        assembler.exit();
        assert_eq!(
            assembler.finish(),
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x15, 0x06, 3, 0, 7, 0, 0, 0],
                [0x18, 0x11, 0, 0, 5, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0, 0],
                [0x61, 0x62, 4, 0, 0, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }
}
