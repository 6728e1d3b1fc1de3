"""Endpoints, datagrams and events."""

import ctypes
from dataclasses import dataclass
from typing import Optional

from . import _library
from ._errors import ClosedError, InvalidError
from ._keys import PublicKey
from ._library import KEY_LENGTH, Handle, check, library
from ._stream import Stream

#: Wishes of a connection: the least cost, whenever another adapter becomes better;
BALANCED = 0
#: the fastest adapter of the beginning, for as long as it lasts;
REAL_TIME = 1
#: the lowest price, then the least energy.
CHEAPEST = 2

_KINDS = {1: "new", 2: "off", 3: "on", 4: "switch", 5: "control_deleted", 6: "control_changed", 7: "ended"}
_MOST = 1100


@dataclass(frozen=True)
class Event:
    """Something happened to the connection with a peer."""

    #: new, off, on, switch, control_deleted, control_changed or ended.
    kind: str
    peer: PublicKey
    #: The adapter; after a switch the one that carries now.
    adapter: Optional[str]
    #: After a switch, the adapter before.
    origin: Optional[str]
    #: off: no adapter is left, the connection is suspended.
    suspended: bool
    #: control_changed: it could carry data now.
    usable: bool


class Endpoint:
    """One end of virtual sockets: an identity, on all adapters of this machine."""

    def __init__(self, key, *, port=0, admit=(), name=None, patience=None, spread=False, adapters=None):
        """`admit`: the public keys of those who may call, or "anybody". `patience`: how long a connection waits for a network, seconds.
        `adapters`: the names of the only ones that are used."""
        options = _library.Options()
        options.private_key = _library.Key(*bytes(key))
        options.port = port
        options.name = name.encode() if name is not None else None
        options.patience = round(patience * 1000) if patience is not None else 0
        options.spread = spread
        options.adapters = _adapters(adapters)
        if isinstance(admit, str):
            if admit != "anybody":
                raise InvalidError(f'{admit!r} is neither "anybody" nor a list of keys')
            options.admission = 1
        elif admit:
            keys = b"".join(PublicKey(admitted) for admitted in admit)
            listed = (ctypes.c_uint8 * len(keys)).from_buffer_copy(keys)
            options.admission = 2
            options.admitted_keys = ctypes.cast(listed, ctypes.POINTER(ctypes.c_uint8))
            options.admitted_count = len(keys) // KEY_LENGTH
        pointer = ctypes.c_void_p()
        check(library.anabranch_endpoint_open(ctypes.byref(options), ctypes.byref(pointer)))
        self._handle = Handle(pointer, library.anabranch_endpoint_free)
        self.public_key = key.public
        if options.admission:
            check(library.anabranch_listen(self._handle.pointer))

    @property
    def addresses(self):
        """Where peers reach this end: "ADDRESS:PORT"."""
        room = library.anabranch_endpoint_addresses(self._handle.pointer, None, 0)
        text = ctypes.create_string_buffer(room + 200)
        library.anabranch_endpoint_addresses(self._handle.pointer, text, len(text))
        return text.value.decode().split()

    def connect(self, peer, addresses, *, deadline=None, wish=BALANCED):
        """A connection to the peer with this key; the addresses are hints, all tried at once. `deadline`: seconds for the set-up."""
        return Stream(self._reach(library.anabranch_connect, peer, addresses, deadline, wish), peer, self)

    def datagrams(self, peer, addresses, *, deadline=None, wish=BALANCED):
        """Datagrams to and from a peer: at most 1100 bytes each, not repeated if they are lost."""
        return Datagrams(self._reach(library.anabranch_datagrams_open, peer, addresses, deadline, wish), self)

    def datagrams_of(self, stream):
        """The datagrams of the peer of a stream."""
        pointer, held = ctypes.c_void_p(), stream._held()
        check(library.anabranch_datagrams_of(self._handle.pointer, held.pointer, ctypes.byref(pointer)))
        return Datagrams(pointer, self)

    def _reach(self, function, peer, addresses, deadline, wish):
        texts = (ctypes.c_char_p * len(addresses))(*(address.encode() for address in addresses))
        options = _library.ConnectOptions(round(deadline * 1000) if deadline is not None else 0, wish)
        pointer = ctypes.c_void_p()
        key, count = bytes(PublicKey(peer)), len(addresses)
        check(function(self._handle.pointer, key, texts, count, ctypes.byref(options), ctypes.byref(pointer)))
        return pointer

    def accept(self):
        """The next connection that a peer makes."""
        pointer, peer = ctypes.c_void_p(), ctypes.create_string_buffer(KEY_LENGTH)
        check(library.anabranch_accept(self._handle.pointer, ctypes.byref(pointer), peer))
        return Stream(pointer, peer.raw, self)

    def __iter__(self):
        """The connections that peers make, until the endpoint is closed."""
        while True:
            try:
                yield self.accept()
            except ClosedError:
                return

    def events(self):
        """What happens to connections from now on."""
        return Events(self)

    def close(self):
        """Ends all connections, after what was written to them has arrived, or five seconds."""
        library.anabranch_endpoint_close(self._handle.pointer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Datagrams:
    """Datagrams to and from one peer."""

    def __init__(self, pointer, endpoint):
        self._handle = Handle(pointer, library.anabranch_datagrams_free)
        self._endpoint = endpoint

    def send(self, data, *, deadline=1.0):
        """Sends one, unless it still waits for a network after `deadline` seconds."""
        data = bytes(data)
        check(library.anabranch_datagram_send(self._handle.pointer, data, len(data), round(deadline * 1000)))

    def receive(self):
        """The next one."""
        room = ctypes.create_string_buffer(_MOST)
        length = check(library.anabranch_datagram_receive(self._handle.pointer, room, len(room)))
        return room.raw[:length]


class Events:
    """An iterator of events; it ends when the endpoint is closed."""

    def __init__(self, endpoint):
        pointer = ctypes.c_void_p()
        check(library.anabranch_events_open(endpoint._handle.pointer, ctypes.byref(pointer)))
        self._handle = Handle(pointer, library.anabranch_events_free)
        self._endpoint = endpoint

    def __iter__(self):
        return self

    def __next__(self):
        told = _library.Event()
        outcome = library.anabranch_events_next(self._handle.pointer, ctypes.byref(told))
        if outcome == _library.CLOSED:
            raise StopIteration
        check(outcome)
        return Event(
            kind=_KINDS[told.kind],
            peer=PublicKey(bytes(told.peer)),
            adapter=told.adapter.decode() or None,
            origin=told.origin.decode() or None,
            suspended=told.kind == 2 and bool(told.flag),
            usable=told.kind == 6 and bool(told.flag),
        )


def _adapters(names):
    if names is None:
        return None
    if isinstance(names, str) or not names or any(name.split() != [name] for name in names):
        raise InvalidError(f"{names!r} is no list of names of adapters")
    return " ".join(names).encode()
