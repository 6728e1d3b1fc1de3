"""Virtual sockets: connections to a peer, known by its key, that outlive the network that they began on.

    import anabranch

    key = anabranch.PrivateKey.generate()
    with anabranch.Endpoint(key) as endpoint:
        with endpoint.connect(far_key, ["192.0.2.7:4700"]) as stream:
            stream.write(b"hello")
            stream.finish()
            print(stream.read())

Needs the library of the C interface, libanabranch.so.0, which `make install` brings, and nothing else; ANABRANCH_LIBRARY names
another file. All calls wait until they are done and let other threads run meanwhile.
"""

from ._endpoint import BALANCED, CHEAPEST, REAL_TIME, Datagrams, Endpoint, Event, Events
from ._errors import (
    AnabranchError,
    ClosedError,
    InvalidError,
    NoAddressError,
    NotAdmittedError,
    ProtocolError,
    RefusedError,
    ResetError,
    SystemError,
    TimedOutError,
)
from ._keys import PrivateKey, PublicKey
from ._stream import Standing, Stream

__all__ = [
    "BALANCED",
    "CHEAPEST",
    "REAL_TIME",
    "AnabranchError",
    "ClosedError",
    "Datagrams",
    "Endpoint",
    "Event",
    "Events",
    "InvalidError",
    "NoAddressError",
    "NotAdmittedError",
    "PrivateKey",
    "ProtocolError",
    "PublicKey",
    "RefusedError",
    "ResetError",
    "Standing",
    "Stream",
    "SystemError",
    "TimedOutError",
]
