"""Streams."""

import ctypes
import io
from dataclasses import dataclass
from typing import Optional

from . import _library
from ._keys import PublicKey
from ._library import Handle, check, library


@dataclass(frozen=True)
class Standing:
    """How a connection stands."""

    #: The adapter that carries it; None while it is suspended.
    adapter: Optional[str]
    #: Smoothed round trip, seconds.
    round_trip: Optional[float]
    #: What the adapter is expected to carry, bits a second.
    bandwidth: Optional[int]
    #: Paths that could carry it.
    paths: int


class Stream(io.RawIOBase):
    """A connection to a peer, as a raw binary file; `makefile` gives a buffered or a text one."""

    def __init__(self, pointer, peer, endpoint):
        super().__init__()
        self._handle = Handle(pointer, library.anabranch_stream_free)
        self._endpoint = endpoint
        #: Who is at the other end: proved by its key.
        self.peer = PublicKey(peer)

    def readable(self):
        return True

    def writable(self):
        return True

    def _held(self):
        """The handle, which the caller holds while the library works on it: another thread may close the stream."""
        handle = self._handle
        if handle is None:
            raise ValueError("the stream is closed")
        return handle

    def readinto(self, room):
        view = memoryview(room).cast("B")
        if not view.nbytes:
            return 0
        handle = self._held()
        place = (ctypes.c_char * view.nbytes).from_buffer(view)
        return check(library.anabranch_read(handle.pointer, place, view.nbytes))

    def write(self, data):
        """Takes over some of the bytes; how many. `write_all` takes all."""
        data = bytes(data)
        if not data:
            return 0
        handle = self._held()
        return check(library.anabranch_write(handle.pointer, data, len(data)))

    def write_all(self, data):
        """Takes over all of the bytes."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self.write(view[: 1 << 20]) :]

    def makefile(self, mode="rb", **options):
        """A buffered file of one direction ("rb", "wb"), or a text file ("r", "w"); to close it leaves the stream open."""
        file = _File(self)
        buffered = io.BufferedReader(file) if "r" in mode else io.BufferedWriter(file)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **options)

    def finish(self):
        """Says that no more bytes follow, and waits until the peer has all."""
        handle = self._held()
        check(library.anabranch_finish(handle.pointer))

    def reset(self, code=0):
        """Gives the connection up at once; calls of other threads that wait return."""
        handle = self._held()
        library.anabranch_reset(handle.pointer, code)

    def standing(self):
        """What carries the connection now."""
        told, handle = _library.Standing(), self._held()
        check(library.anabranch_stream_standing(handle.pointer, ctypes.byref(told)))
        return Standing(
            adapter=told.adapter.decode() or None,
            round_trip=told.round_trip / 1e9 if told.round_trip else None,
            bandwidth=told.bandwidth or None,
            paths=told.paths,
        )

    def close(self):
        """Lets go of it: what was written is still delivered while the endpoint lives."""
        if not self.closed:
            super().close()
            self._handle = None


class _File(io.RawIOBase):
    """A stream for a buffer, which closes what it reads from when it goes."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, room):
        return self._stream.readinto(room)

    def write(self, data):
        return self._stream.write(data)
