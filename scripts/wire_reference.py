"""Reads Anabranch's wire format: a second implementation, written from docs/wire-format.md alone.

Slow and simple, for tests: it must never be used to protect anything. Its cryptography follows RFC 7748 (X25519),
RFC 8439 (ChaCha20-Poly1305), FIPS 197 and NIST SP 800-38D (AES-256-GCM), and revision 34 of the Noise Protocol Framework.
"""

import base64
import hashlib
import hmac
import zlib

VERSION = 1
TAG = 16


class Malformed(Exception):
    """Bytes that do not follow the format."""


class Reader:
    """Reads from the front of bytes."""

    def __init__(self, data):
        self.rest = bytes(data)

    def take(self, count):
        if count > len(self.rest):
            raise Malformed("cut short")
        head, self.rest = self.rest[:count], self.rest[count:]
        return head

    def number(self, count):
        return int.from_bytes(self.take(count), "big")

    def varint(self):
        first = self.number(1)
        more = self.take((1 << (first >> 6)) - 1)
        return int.from_bytes(bytes([first & 0x3F]) + more, "big")

    def all(self):
        return self.take(len(self.rest))

    def end(self):
        check(not self.rest, "bytes after the end")


def check(condition, fault):
    if not condition:
        raise Malformed(fault)


# ---- packet numbers ----


def expand_packet_number(truncated, length, largest):
    """The number nearest to the one after `largest` (None: nothing was received) that ends in these bytes."""
    window = 1 << (8 * length)
    expected = 0 if largest is None else largest + 1
    candidate = expected - expected % window + truncated
    if candidate + window // 2 <= expected:
        return candidate + window
    if candidate > expected + window // 2 and candidate >= window:
        return candidate - window
    return candidate


def nonce(path, number):
    return bytes([0, 0, 0, path]) + number.to_bytes(8, "big")


# ---- datagrams ----


def parse_datagram(data):
    """A dictionary whose `type` tells what it is."""
    reader = Reader(data)
    first = reader.number(1)
    if first & 0x80:
        length = (first >> 3 & 3) + 1
        check(first & 7 == 0, "reserved bits")
        check(length <= 3, "packet number length")
        header = {
            "type": "data",
            "epoch": first >> 5 & 3,
            "receiver_index": reader.number(4),
            "path": reader.number(1),
            "number": reader.number(length),
            "number_length": length,
            "header": data[: 6 + length],
        }
        check(len(reader.rest) > TAG, "no frames")
        return dict(header, sealed=reader.all())
    if first == 1:
        message = {
            "type": "initiation",
            "version": reader.number(1),
            "features": reader.number(2),
            "sender_index": reader.number(4),
        }
        length = reader.number(2)
        check(length <= 1024, "Noise message length")
        message["noise"] = reader.take(length)
        length = reader.number(1)
        check(length in (0, 24), "retry token length")
        message.update(token=reader.take(length), mac=reader.take(16), covered=data[:-16])
    elif first == 2:
        message = {
            "type": "response",
            "version": reader.number(1),
            "receiver_index": reader.number(4),
            "sender_index": reader.number(4),
            "noise": reader.all(),
        }
        check(len(message["noise"]) <= 1024, "Noise message length")
    elif first == 3:
        message = {"type": "retry", "receiver_index": reader.number(4), "token": reader.take(24), "mac": reader.take(16)}
        message["covered"] = data[1:29]
    elif first == 4:
        message = {"type": "reset", "unknown_index": reader.number(4), "token": reader.take(16)}
    else:
        raise Malformed("unknown type")
    reader.end()
    return message


def mac(responder_public, covered):
    return hmac.new(responder_public, covered, hashlib.sha256).digest()[:16]


# ---- frames ----


def parse_frames(plain):
    """A list of dictionaries whose `type` tells what they are."""
    reader, frames = Reader(plain), []
    while reader.rest:
        kind = reader.number(1)
        if kind == 0:
            break
        frames.append(_frame(kind, reader))
    return frames


def _frame(kind, reader):
    if kind == 0x01:
        return {"type": "ping"}
    if kind == 0x02:
        return _ack(reader)
    if kind in (0x03, 0x04):
        return {"type": "challenge" if kind == 3 else "response", "nonce": reader.take(8)}
    if kind == 0x05:
        frame = {"type": "path status", "path": reader.number(1), "sequence": reader.varint()}
        frame.update(status=reader.number(1), priority=reader.number(1), limit=reader.varint())
        check(frame["status"] <= 3, "status")
        return frame
    if kind == 0x06:
        return {"type": "path abandon", "path": reader.number(1)}
    if kind == 0x07:
        frame = {"type": "gave up", "flow": _flow(reader), "first": reader.number(4), "count": reader.varint()}
        check(1 <= frame["count"] <= 65535, "count")
        return frame
    if kind == 0x08:
        return {"type": "hold", "sequence": reader.varint(), "micros": reader.varint()}
    if kind == 0x09:
        frame = {"type": "rekey", "step": reader.number(1), "epoch": reader.number(1), "noise": _blob(reader)}
        check(frame["step"] <= 1, "step")
        return frame
    if kind == 0x0A:
        return {"type": "close", "reason": reader.number(1)}
    if kind == 0x0B:
        frame = {"type": "repair", "flow": _flow(reader), "first": reader.number(2), "count": reader.number(1)}
        check(1 <= frame["count"] <= 64, "count")
        return dict(frame, length_xor=reader.number(2), payload_xor=reader.all())
    if kind == 0x0C:
        return {"type": "message", "bytes": _blob(reader)}
    if kind == 0x0D:
        return {"type": "arrived", "path": reader.number(1), "ranges": _ranges(reader.varint(), reader)}
    if 0x10 <= kind <= 0x1B:
        return _stream(kind, reader)
    if 0x20 <= kind <= 0x2F:
        return _data(kind, reader)
    raise Malformed(f"unknown frame {kind:#04x}")


def _stream(kind, reader):
    """A frame of streams or a datagram."""
    if kind <= 0x13:
        frame = {"type": "stream", "stream": reader.varint(), "offset": reader.varint(), "last": bool(kind & 1)}
        frame["bytes"] = reader.take(reader.number(2)) if kind & 2 else reader.all()
        check(frame["offset"] + len(frame["bytes"]) < 1 << 62, "end of a stream")
        return frame
    if kind in (0x1A, 0x1B):
        return {"type": "datagram", "bytes": reader.take(reader.number(2)) if kind & 1 else reader.all()}
    fields = {
        0x14: ("stream reset", "stream", "code", "final_size"),
        0x15: ("stream stop", "stream", "code"),
        0x16: ("stream limit", "stream", "offset"),
        0x17: ("session limit", "bytes"),
        0x18: ("stream count", "streams"),
    }
    check(kind in fields, "unknown frame")
    name, *names = fields[kind]
    return {"type": name, **{field: reader.varint() for field in names}}


def _ack(reader):
    largest = reader.varint()
    frame = {"type": "ack", "delay": reader.varint(), "receive_time": reader.number(4)}
    frame.update(received_bytes=reader.number(4), reordering=reader.varint(), ce_count=reader.varint())
    return dict(frame, ranges=_ranges(largest, reader))


def _ranges(largest, reader):
    others = reader.varint()
    check(others < 32, "range count")
    start = largest - reader.varint()
    check(start >= 0, "range")
    ranges = [(start, largest)]
    for _ in range(others):
        end = start - reader.varint() - 2
        check(end >= 0, "gap")
        start = end - reader.varint()
        check(start >= 0, "range")
        ranges.append((start, end))
    return ranges


def _data(kind, reader):
    frame = {"type": "data", "ordered": bool(kind & 1), "long": bool(kind & 2), "flow": _flow(reader)}
    frame["sequence"] = reader.number(4 if kind & 2 else 2)
    if kind & 8:
        part = reader.number(2)
        frame.update(offset=part & 0x7FFF, more=bool(part & 0x8000))
    frame["payload"] = reader.take(reader.number(2)) if kind & 4 else reader.all()
    return frame


def _flow(reader):
    flow = reader.number(2)
    check(flow < 16384, "flow")
    return flow


def _blob(reader):
    length = reader.varint()
    check(length <= 1024, "length")
    return reader.take(length)


def restore(repair, packets):
    """The one packet of a run that is missing from `packets`."""
    length, payload = repair["length_xor"], bytearray(repair["payload_xor"])
    for packet in packets:
        length ^= len(packet)
        for at, byte in enumerate(packet):
            payload[at] ^= byte
    return bytes(payload[:length])


# ---- handshake payloads and join links ----

HELLO_FIELDS = {1: "name", 2: "secret", 3: "features", 9: "treatment"}
WELCOME_FIELDS = {1: "name", 3: "features", 4: "v4", 5: "v6", 6: "dns", 7: "mtu"}


def _fields(reader, known):
    fields = {}
    while reader.rest:
        kind = reader.number(1)
        value = reader.take(reader.number(1))
        if kind not in known:
            check(kind < 0x80, f"essential field {kind} is not known")
            continue
        name = known[kind]
        if name == "dns":
            check(len(value) in (4, 16) and len(fields.setdefault(name, [])) < 4, "dns")
            fields[name].append(value)
            continue
        check(name not in fields, f"{name} stands twice")
        sizes = {"secret": 16, "features": 4, "v4": 5, "v6": 17, "mtu": 2, "reason": 1, "treatment": 1}
        check(len(value) == sizes.get(name, len(value)), name)
        fields[name] = value
    return fields


def _check_name(fields):
    check("name" in fields, "no name")
    try:
        name = fields["name"].decode()
    except UnicodeDecodeError as error:
        raise Malformed("name") from error
    check(1 <= len(fields["name"]) <= 64 and name == name.strip() and name.isprintable(), "name")


def parse_hello(data):
    check(len(data) <= 512, "too long")
    reader = Reader(data)
    check(reader.number(1) == 1, "version")
    fields = _fields(reader, HELLO_FIELDS)
    _check_name(fields)
    return fields


def parse_reply(data):
    check(len(data) <= 512, "too long")
    reader = Reader(data)
    check(reader.number(1) == 1, "version")
    sort = reader.number(1)
    check(sort in (0, 1), "sort")
    if sort == 1:
        fields = _fields(reader, {8: "reason"})
        check("reason" in fields, "no reason")
        return fields
    fields = _fields(reader, WELCOME_FIELDS)
    _check_name(fields)
    check("v4" in fields or "v6" in fields, "no address")
    check(int.from_bytes(fields.get("mtu", b""), "big") >= 1280, "mtu")
    return fields


def parse_join_link(text):
    prefix = "anabranch://join/"
    check(text.startswith(prefix), "prefix")
    body = text[len(prefix) :]
    data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    check(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "big"), "checksum")
    reader = Reader(data[:-4])
    check(reader.number(1) == 1, "version")
    link = {"kind": reader.number(1), "public": reader.take(32), "secret": reader.take(16)}
    link.update(expires=reader.number(8), tcp_port=reader.number(2), addresses=[])
    count = reader.number(1)
    check(1 <= count <= 8 and link["kind"] <= 2, "count or kind")
    for _ in range(count):
        sort = reader.number(1)
        check(sort in (1, 4, 6), "address type")
        host = reader.take(reader.number(1)).decode() if sort == 1 else reader.take({4: 4, 6: 16}[sort])
        link["addresses"].append((host, reader.number(2)))
    reader.end()
    return link


# ---- cryptography ----

PRIME = 2**255 - 19


def x25519(private, public=b"\x09" + bytes(31)):
    scalar = int.from_bytes(private, "little") & ~7 & (2**255 - 1) | 2**254
    one = int.from_bytes(public, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, one, 1, 0
    for at in reversed(range(255)):
        bit = scalar >> at & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % PRIME, b * b % PRIME, d * a % PRIME, c * b % PRIME
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % PRIME, one * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, e * (aa + 121665 * e) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def _chacha20(key, counter, number, data):
    words = lambda raw: [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
    turn = lambda value, by: (value << by | value >> 32 - by) & 0xFFFFFFFF
    out = bytearray()
    for block in range(0, len(data), 64):
        start = words(b"expand 32-byte k") + words(key) + [counter + block // 64] + words(number)
        state = list(start)
        columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
        diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
        for _ in range(10):
            for a, b, c, d in columns + diagonals:
                for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    state[x] = (state[x] + state[y]) & 0xFFFFFFFF
                    state[z] = turn(state[z] ^ state[x], by)
        stream = b"".join(((a + b) & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(state, start))
        out += bytes(a ^ b for a, b in zip(data[block : block + 64], stream))
    return bytes(out)


def _tag(key, number, sealed, associated):
    one_time = _chacha20(key, 0, number, bytes(32))
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    pad = lambda raw: raw + bytes(-len(raw) % 16)
    text = pad(associated) + pad(sealed) + len(associated).to_bytes(8, "little") + len(sealed).to_bytes(8, "little")
    sum_ = 0
    for at in range(0, len(text), 16):
        sum_ = (sum_ + int.from_bytes(text[at : at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return ((sum_ + int.from_bytes(one_time[16:], "little")) % 2**128).to_bytes(16, "little")


def seal(key, number, plain, associated):
    sealed = _chacha20(key, 1, number, plain)
    return sealed + _tag(key, number, sealed, associated)


def open_sealed(key, number, sealed, associated):
    body, tag = sealed[:-TAG], sealed[-TAG:]
    check(hmac.compare_digest(tag, _tag(key, number, body, associated)), "not authentic")
    return _chacha20(key, 1, number, body)


def _times_two(value):
    return (value << 1 ^ 0x11B) & 0xFF if value & 0x80 else value << 1


def _substitutions():
    table, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= _times_two(p)  # p runs through the field by its generator 3, q through the inverses.
        for shift in (1, 2, 4):
            q = (q ^ q << shift) & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        rotated = [(q << turn | q >> 8 - turn) & 0xFF for turn in range(5)]
        table[p] = rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63
        if p == 1:
            return table


SUBSTITUTE = _substitutions()


def _aes_key_schedule(key):
    words, constant = [list(key[at : at + 4]) for at in range(0, 32, 4)], 1
    for number in range(8, 60):
        word = words[-1]
        if number % 8 == 0:
            word = [SUBSTITUTE[byte] for byte in word[1:] + word[:1]]
            word[0] ^= constant
            constant = _times_two(constant)
        elif number % 8 == 4:
            word = [SUBSTITUTE[byte] for byte in word]
        words.append([a ^ b for a, b in zip(words[-8], word)])
    return [sum(words[at : at + 4], []) for at in range(0, 60, 4)]


def _aes(schedule, block):
    state = [a ^ b for a, b in zip(block, schedule[0])]
    for number, round_key in enumerate(schedule[1:], 1):
        state = [SUBSTITUTE[state[at * 5 % 16]] for at in range(16)]  # with the shift of the rows
        if number < 14:
            mixed = []
            for at in range(0, 16, 4):
                column = state[at : at + 4]
                whole = column[0] ^ column[1] ^ column[2] ^ column[3]
                mixed += [column[i] ^ whole ^ _times_two(column[i] ^ column[(i + 1) % 4]) for i in range(4)]
            state = mixed
        state = [a ^ b for a, b in zip(state, round_key)]
    return bytes(state)


def _aes_counter(schedule, number, data):
    out = bytearray()
    for at in range(0, len(data), 16):
        stream = _aes(schedule, number + (at // 16 + 2).to_bytes(4, "big"))
        out += bytes(a ^ b for a, b in zip(data[at : at + 16], stream))
    return bytes(out)


def _aes_tag(schedule, number, sealed, associated):
    pad = lambda raw: raw + bytes(-len(raw) % 16)
    lengths = (len(associated) * 8).to_bytes(8, "big") + (len(sealed) * 8).to_bytes(8, "big")
    text, factor, total = pad(associated) + pad(sealed) + lengths, int.from_bytes(_aes(schedule, bytes(16)), "big"), 0
    for at in range(0, len(text), 16):
        left, right, total = total ^ int.from_bytes(text[at : at + 16], "big"), factor, 0
        for bit in range(127, -1, -1):
            total ^= right if left >> bit & 1 else 0
            right = right >> 1 ^ (0xE1 << 120 if right & 1 else 0)
    mask = int.from_bytes(_aes(schedule, number + b"\0\0\0\1"), "big")
    return (total ^ mask).to_bytes(16, "big")


def open_sealed_aes(key, number, sealed, associated):
    schedule, body, tag = _aes_key_schedule(key), sealed[:-TAG], sealed[-TAG:]
    check(hmac.compare_digest(tag, _aes_tag(schedule, number, body, associated)), "not authentic")
    return _aes_counter(schedule, number, body)


class Noise:
    """Noise_IK_25519_ChaChaPoly_BLAKE2s with given ephemeral keys: one end of a handshake."""

    def __init__(self, prologue, responder_public):
        self.hash = hashlib.blake2s(b"Noise_IK_25519_ChaChaPoly_BLAKE2s").digest()
        self.chaining, self.key, self.count = self.hash, None, 0
        self._mix_hash(prologue)
        self._mix_hash(responder_public)

    def _mix_hash(self, data):
        self.hash = hashlib.blake2s(self.hash + data).digest()

    def _derive(self, material):
        digest = lambda key, data: hmac.new(key, data, hashlib.blake2s).digest()
        base = digest(self.chaining, material)
        first = digest(base, b"\x01")
        return first, digest(base, first + b"\x02")

    def _mix_key(self, material):
        self.chaining, self.key = self._derive(material)
        self.count = 0

    def _number(self):
        number = bytes(4) + self.count.to_bytes(8, "little")
        self.count += 1
        return number

    def _seal(self, plain):
        sealed = seal(self.key, self._number(), plain, self.hash)
        self._mix_hash(sealed)
        return sealed

    def _open(self, sealed):
        plain = open_sealed(self.key, self._number(), sealed, self.hash)
        self._mix_hash(sealed)
        return plain

    def write_first(self, own, ephemeral, responder_public, payload):
        """Message 1: e, es, s, ss."""
        self._mix_hash(x25519(ephemeral))
        self._mix_key(x25519(ephemeral, responder_public))
        static = self._seal(x25519(own))
        self._mix_key(x25519(own, responder_public))
        return x25519(ephemeral) + static + self._seal(payload)

    def read_first(self, own, message):
        """Returns the initiator's public key and the payload."""
        self.far_ephemeral = message[:32]
        self._mix_hash(self.far_ephemeral)
        self._mix_key(x25519(own, self.far_ephemeral))
        self.far_static = self._open(message[32:80])
        self._mix_key(x25519(own, self.far_static))
        return self.far_static, self._open(message[80:])

    def write_second(self, ephemeral, payload):
        """Message 2: e, ee, se."""
        self._mix_hash(x25519(ephemeral))
        self._mix_key(x25519(ephemeral, self.far_ephemeral))
        self._mix_key(x25519(ephemeral, self.far_static))
        return x25519(ephemeral) + self._seal(payload)

    def read_second(self, own, ephemeral, message):
        """Returns the payload."""
        self._mix_hash(message[:32])
        self._mix_key(x25519(ephemeral, message[:32]))
        self._mix_key(x25519(own, message[:32]))
        return self._open(message[32:])

    def split(self):
        """Keys to the responder and to the initiator."""
        return self._derive(b"")
