#!/usr/bin/env python3
"""Checks the Wireshark dissector with tshark on a capture made from docs/wire-vectors.json."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = json.loads((HERE.parents[1] / "docs" / "wire-vectors.json").read_text())
PORT = 4600
FIELDS = ["anabranch.type", "anabranch.receiver_index", "anabranch.sender_index", "anabranch.path", "anabranch.number"]
FIELDS += ["anabranch.epoch", "anabranch.retry_token", "_ws.expert", "_ws.col.Info"]


def ip_packet(protocol, payload):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, b"\xc0\0\2\1", b"\xc0\0\2\2")
    total = sum(struct.unpack("!10H", header))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return header[:10] + checksum.to_bytes(2, "big") + header[12:] + payload


def udp(payload):
    return ip_packet(17, struct.pack("!HHHH", 40000, PORT, 8 + len(payload), 0) + payload)


def tcp(sequence, payload):
    return ip_packet(6, struct.pack("!HHIIBBHHH", 40000, PORT, sequence, 1, 0x50, 0x18, 65535, 0, 0) + payload)


def capture(packets):
    """A pcap file of raw IP packets (link type 101)."""
    blocks = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)]
    for second, packet in enumerate(packets):
        blocks.append(struct.pack("<IIII", second, 0, len(packet), len(packet)) + packet)
    return b"".join(blocks)


def dissect(packets):
    """For each packet a dictionary of what tshark shows."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "vectors.cap"
        path.write_bytes(capture(packets))
        command = ["tshark", "-r", path, "-X", f"lua_script:{HERE / 'anabranch.lua'}", "-T", "fields", "-E", "separator=|"]
        command += [word for field in FIELDS for word in ("-e", field)]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    problems = [line for line in result.stderr.splitlines() if "Lua" in line or "lua" in line]
    if result.returncode or problems:
        sys.exit(f"dissector: tshark says: {result.stderr}")
    return [dict(zip(FIELDS, line.split("|"))) for line in result.stdout.splitlines()]


def main():
    if not shutil.which("tshark"):
        print("dissector: skipped: tshark is not installed (package tshark)")
        return 0
    raw = bytes.fromhex
    good = [(row["name"], raw(row["bytes"])) for row in VECTORS["datagrams"]]
    good += [("initiation", raw(VECTORS["handshake"]["initiation"])), ("response", raw(VECTORS["handshake"]["response"]))]
    good += [("data", raw(row["datagram"])) for row in VECTORS["data_packets"]]
    bad = [raw(row["bytes"]) for row in VECTORS["refused_datagrams"] if row["bytes"]]
    shown = dissect([udp(datagram) for _, datagram in good] + [udp(datagram) for datagram in bad])

    faults = []
    codes = {"initiation": "1", "response": "2", "retry": "3", "reset": "4", "data": "128"}
    for (name, _), row in zip(good, shown):
        if row["anabranch.type"] != codes[name] or row["_ws.expert"]:
            faults.append(f"{name} is shown as {row}")
    for datagram, row in zip(bad, shown[len(good) :]):
        if row["_ws.col.Info"] != "Malformed":
            faults.append(f"malformed {datagram.hex()} is shown as {row}")
    first = shown[0]
    expected = ("0x01020304", "7", str(0x0A0B), "2")
    found = tuple(first[f"anabranch.{name}"] for name in ("receiver_index", "path", "number", "epoch"))
    if found != expected:
        faults.append(f"the first data packet is shown with {found}, not {expected}")
    if not shown[2]["anabranch.retry_token"]:
        faults.append(f"no retry token is shown in {shown[2]}")

    # One datagram cut in two by TCP, another behind it.
    framed = b"".join(len(datagram).to_bytes(2, "big") + datagram for _, datagram in good[:2])
    shown = dissect([tcp(1, framed[:20]), tcp(21, framed[20:])])
    if shown[-1]["anabranch.type"] != "128,1":
        faults.append(f"datagrams on TCP are shown as {shown}")

    for fault in faults:
        print(f"dissector: {fault}")
    if not faults:
        print(f"dissector: {len(good)} datagrams shown right, {len(bad)} as malformed, and two on TCP")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
