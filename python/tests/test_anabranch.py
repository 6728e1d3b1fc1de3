"""The Python package over the library that was built: ANABRANCH_LIBRARY names it."""

import ctypes
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import anabranch
from anabranch import _library


class Pair:
    """Two ends that know each other."""

    def __init__(self):
        self.near_key, self.far_key = anabranch.PrivateKey.generate(), anabranch.PrivateKey.generate()
        self.far = anabranch.Endpoint(self.far_key, admit=[self.near_key.public], name="far")
        self.near = anabranch.Endpoint(self.near_key)

    def connect(self):
        return self.near.connect(self.far_key.public, self.far.addresses)

    def close(self):
        self.near.close()
        self.far.close()


class Connections(unittest.TestCase):
    def setUp(self):
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def test_bytes_go_both_ways_and_arrive_as_they_were(self):
        sent = os.urandom(1 << 20) * 5
        got = []

        def serve():
            stream = self.pair.far.accept()
            got.append((stream.peer, stream.makefile().read()))
            stream.write_all(hashlib.sha256(got[0][1]).digest())
            stream.finish()

        server = threading.Thread(target=serve)
        server.start()
        stream = self.pair.connect()
        stream.write_all(sent)
        stream.finish()
        self.assertEqual(stream.makefile().read(), hashlib.sha256(sent).digest())
        server.join()
        self.assertEqual(got[0][0], self.pair.near_key.public)
        self.assertEqual(stream.peer, self.pair.far_key.public)
        standing = stream.standing()
        self.assertGreaterEqual(standing.paths, 1)
        self.assertGreater(standing.round_trip, 0)
        stream.close()
        with self.assertRaises(ValueError):
            stream.read()

    def test_only_the_named_adapters_are_used(self):
        key = anabranch.PrivateKey.generate()
        with anabranch.Endpoint(key, adapters=["nothing0"]) as endpoint:
            self.assertEqual(endpoint.addresses, [])
        for wrong in ([], "lo", ["two words"], [""]):
            with self.assertRaises(anabranch.InvalidError):
                anabranch.Endpoint(key, adapters=wrong)

    def test_datagrams(self):
        stream = self.pair.connect()
        stream.write_all(b"x")
        far = self.pair.far.datagrams_of(self.pair.far.accept())
        near = self.pair.near.datagrams_of(stream)
        near.send(b"over there")
        self.assertEqual(far.receive(), b"over there")
        with self.assertRaises(anabranch.InvalidError):
            near.send(bytes(1101))

    def test_events_and_the_end(self):
        events = self.pair.near.events()
        stream = self.pair.connect()
        first = next(events)
        self.assertEqual((first.kind, first.peer), ("new", self.pair.far_key.public))
        self.assertTrue(first.adapter)
        waiting = threading.Thread(target=lambda: list(self.pair.far))
        waiting.start()
        del stream
        self.pair.close()
        waiting.join(10)
        self.assertFalse(waiting.is_alive(), "accept ends with the endpoint")
        self.assertEqual([event.kind for event in events][-1:], ["ended"])

    def test_a_reader_is_woken_by_a_reset(self):
        stream = self.pair.connect()
        reader = threading.Thread(target=stream.read)
        reader.start()
        stream.reset(7)
        reader.join(10)
        self.assertFalse(reader.is_alive())

    def test_strangers_are_refused_with_words(self):
        stranger = anabranch.Endpoint(anabranch.PrivateKey.generate())
        with self.assertRaisesRegex(anabranch.NotAdmittedError, "does not let this machine in"):
            stranger.connect(self.pair.far_key.public, self.pair.far.addresses)
        with self.assertRaises(anabranch.NoAddressError):
            stranger.connect(self.pair.far_key.public, [])
        with self.assertRaisesRegex(anabranch.InvalidError, "nowhere: not an address: expected ADDRESS:PORT"):
            stranger.connect(self.pair.far_key.public, ["nowhere"])
        with self.assertRaises(anabranch.TimedOutError):
            stranger.connect(self.pair.far_key.public, ["127.0.0.1:9"], deadline=0.2)
        stranger.close()
        with self.assertRaises(anabranch.ClosedError):
            stranger.accept()


class Keys(unittest.TestCase):
    def test_keys_are_text_and_bytes_and_are_kept(self):
        with tempfile.TemporaryDirectory() as directory:
            key = anabranch.PrivateKey.load(f"{directory}/state")
            self.assertEqual(bytes(anabranch.PrivateKey.load(f"{directory}/state")), bytes(key))
        self.assertEqual(anabranch.PublicKey(str(key.public)), key.public)
        self.assertNotIn(bytes(key).hex(), repr(key))
        with self.assertRaises(ValueError):
            anabranch.PublicKey(b"short")


class Layout(unittest.TestCase):
    """ctypes has the structures and functions as the header has them."""

    def test_structures(self):
        told = subprocess.run([self.compiled()], check=True, capture_output=True, text=True).stdout
        sizes = dict(line.split() for line in told.splitlines())
        structures = {
            "anabranch_options": _library.Options,
            "anabranch_connect_options": _library.ConnectOptions,
            "anabranch_standing": _library.Standing,
            "anabranch_event": _library.Event,
        }
        for name, structure in structures.items():
            self.assertEqual(int(sizes.pop(name)), ctypes.sizeof(structure), name)
            for member, _ in structure._fields_:
                # "from" is a word of Python.
                there = "from" if member == "origin" else member
                self.assertEqual(int(sizes.pop(f"{name}.{there}")), getattr(structure, member).offset, member)
        self.assertEqual(sizes, {})

    def compiled(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        program = f"{directory.name}/layout"
        source = ROOT / "crates/c/tests/layout.c"
        subprocess.run(["cc", f"-I{ROOT}/crates/c/include", "-o", program, source], check=True)
        return program

    def test_functions(self):
        header = (ROOT / "crates/c/include/anabranch.h").read_text()
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        self.assertEqual(set(re.findall(r"\b(anabranch_\w+)\(", code)), set(_library._FUNCTIONS))
        self.assertIn("ANABRANCH_CLOSED = -9", header)


class Example(unittest.TestCase):
    def test_it_runs(self):
        environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
        example = ROOT / "python/examples/echo.py"
        said = subprocess.run([sys.executable, example], env=environment, capture_output=True, text=True, timeout=30)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, "^hello over ")


if __name__ == "__main__":
    unittest.main()
