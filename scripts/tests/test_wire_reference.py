"""The committed vectors, read by an implementation that shares no code with the bond."""

import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import wire_reference as wire

VECTORS = json.loads((ROOT / "docs" / "wire-vectors.json").read_text())


def raw(row, name="bytes"):
    return bytes.fromhex(row[name])


class Formats(unittest.TestCase):
    def test_varints(self):
        for row in VECTORS["varints"]:
            reader = wire.Reader(raw(row))
            self.assertEqual(reader.varint(), row["value"])
            reader.end()

    def test_packet_numbers(self):
        for row in VECTORS["packet_numbers"]:
            sent = raw(row)
            number = wire.expand_packet_number(int.from_bytes(sent, "big"), len(sent), row["largest_received"])
            self.assertEqual(number, row["number"])

    def test_nonces(self):
        for row in VECTORS["nonces"]:
            self.assertEqual(wire.nonce(row["path"], row["number"]), raw(row))

    def test_frames(self):
        found = {}
        for row in VECTORS["frames"]:
            frames = wire.parse_frames(raw(row))
            self.assertTrue(frames, row)
            found[row["name"]] = frames
        self.assertEqual(found["ack of 90-100, 80, 3-70"][0]["ranges"], [(90, 100), (80, 80), (3, 70)])
        self.assertEqual(found["gave up"][0]["first"], 0xFFFFFFFF)
        self.assertEqual(found["hold"][0]["micros"], 250_000)
        self.assertEqual([frame["type"] for frame in found["several frames"]], ["ack", "data", "data"])
        self.assertEqual(found["data, last part"][0]["offset"], 1200)
        stream = found["stream"][0]
        self.assertEqual((stream["stream"], stream["offset"], stream["bytes"], stream["last"]), (4, 70_000, b"abc", True))
        self.assertEqual(found["stream, ends the packet"][0]["bytes"], b"abc")
        self.assertEqual(found["stream reset"][0]["final_size"], 70_000)
        self.assertEqual(found["stream limit"][0]["offset"], 1 << 24)
        self.assertEqual(found["datagram"][0]["bytes"], b"once")
        self.assertEqual(found["path status"][0]["limit"], 90_000)
        repair = found["repair"][0]
        self.assertEqual(wire.restore(repair, [b"abcd", b"ghijk"]), b"ef")

    def test_what_must_be_refused(self):
        for row in VECTORS["refused_frames"]:
            with self.assertRaises(wire.Malformed, msg=row):
                wire.parse_frames(raw(row))
        for row in VECTORS["refused_datagrams"]:
            with self.assertRaises(wire.Malformed, msg=row):
                wire.parse_datagram(raw(row))

    def test_datagrams(self):
        public = bytes.fromhex(VECTORS["handshake"]["responder"]["public"])
        for row in VECTORS["datagrams"]:
            message = wire.parse_datagram(raw(row))
            self.assertEqual(message["type"], row["name"])
            if "mac" in message:
                self.assertEqual(wire.mac(public, message["covered"]), message["mac"])

    def test_hello(self):
        for row in VECTORS["hello"]:
            parse = wire.parse_hello if row["name"] == "hello" else wire.parse_reply
            if row.get("refused"):
                with self.assertRaises(wire.Malformed, msg=row):
                    parse(raw(row))
            else:
                self.assertTrue(parse(raw(row)))
            if "forward error correction" in row["meaning"]:
                self.assertEqual(parse(raw(row))["treatment"], b"\x02")

    def test_join_links(self):
        public = bytes.fromhex(VECTORS["handshake"]["responder"]["public"])
        links = [wire.parse_join_link(row["text"]) for row in VECTORS["join_links"]]
        self.assertTrue(all(link["public"] == public for link in links))
        self.assertEqual(links[0]["addresses"], [(bytes([203, 0, 113, 7]), 4600)])
        self.assertEqual(links[1]["addresses"][0], ("gw.example.org", 4600))
        damaged = VECTORS["join_links"][0]["text"].replace("j", "k", 2)
        with self.assertRaises(wire.Malformed):
            wire.parse_join_link(damaged)

    def test_tcp_stream(self):
        reader = wire.Reader(raw(VECTORS["tcp_stream"]))
        datagrams = []
        while reader.rest:
            datagrams.append(reader.take(reader.number(2)).hex())
        self.assertEqual(datagrams, VECTORS["tcp_stream"]["datagrams"])


class Cryptography(unittest.TestCase):
    def test_handshake(self):
        vector = VECTORS["handshake"]
        device, gateway = raw(vector["initiator"], "private"), raw(vector["responder"], "private")
        gateway_public = raw(vector["responder"], "public")
        self.assertEqual(wire.x25519(gateway), gateway_public)
        initiation = wire.parse_datagram(raw(vector, "initiation"))
        response = wire.parse_datagram(raw(vector, "response"))
        self.assertEqual(initiation["mac"], wire.mac(gateway_public, initiation["covered"]))

        left = wire.Noise(raw(vector, "prologue"), gateway_public)
        ephemeral = raw(vector["initiator_ephemeral"], "private")
        first = left.write_first(device, ephemeral, gateway_public, raw(vector, "payload_1"))
        self.assertEqual(first, initiation["noise"])
        self.assertEqual(left.read_second(device, ephemeral, response["noise"]), raw(vector, "payload_2"))
        keys = (raw(vector, "key_to_responder"), raw(vector, "key_to_initiator"))
        self.assertEqual(left.split(), keys)

        right = wire.Noise(raw(vector, "prologue"), gateway_public)
        peer, payload = right.read_first(gateway, first)
        self.assertEqual((peer, payload), (raw(vector["initiator"], "public"), raw(vector, "payload_1")))
        self.assertEqual(int.from_bytes(payload[:8], "big"), int(vector["stamp"]))
        second = right.write_second(raw(vector["responder_ephemeral"], "private"), raw(vector, "payload_2"))
        self.assertEqual(second, response["noise"])
        self.assertEqual(right.split(), keys)

    def test_data_packets(self):
        for row in VECTORS["data_packets"]:
            key = raw(VECTORS["handshake"], "key_" + row["direction"].replace(" ", "_"))
            header = wire.parse_datagram(raw(row, "datagram"))
            self.assertEqual(header["header"], raw(row, "header"))
            number = wire.nonce(row["path"], row["number"])
            plain = wire.open_sealed(key, number, header["sealed"], header["header"])
            self.assertEqual(plain, raw(row, "plain"))
            with self.assertRaises(wire.Malformed):
                wire.open_sealed(key, wire.nonce(row["path"], row["number"] + 1), header["sealed"], header["header"])
            aes = wire.parse_datagram(raw(row, "datagram_aes"))
            self.assertEqual(wire.open_sealed_aes(key, number, aes["sealed"], aes["header"]), raw(row, "plain"))
            with self.assertRaises(wire.Malformed):
                wire.open_sealed_aes(key, number, aes["sealed"], b"\x1f" + aes["header"][1:])

    def test_rekey(self):
        vector, handshake = VECTORS["rekey"], VECTORS["handshake"]
        (first,), (second,) = wire.parse_frames(raw(vector, "frame_1")), wire.parse_frames(raw(vector, "frame_2"))
        self.assertEqual((first["step"], second["step"], first["epoch"], second["epoch"]), (0, 1, 1, 1))
        noise = wire.Noise(raw(vector, "prologue"), raw(handshake["responder"], "public"))
        peer, payload = noise.read_first(raw(handshake["responder"], "private"), first["noise"])
        self.assertEqual((peer, payload), (raw(handshake["initiator"], "public"), raw(vector, "payload")))
        answer = noise.write_second(raw(vector["responder_ephemeral"], "private"), raw(vector, "payload"))
        self.assertEqual(answer, second["noise"])
        key, _ = noise.split()
        packet = wire.parse_datagram(raw(vector, "first_packet"))
        number = wire.nonce(packet["path"], vector["first_packet_number"])
        self.assertEqual(wire.open_sealed(key, number, packet["sealed"], packet["header"]), b"\x01")


if __name__ == "__main__":
    unittest.main()
