"""What can go wrong; each is an OSError as sockets have it, and an AnabranchError."""


class AnabranchError(OSError):
    """Any failure of a virtual socket."""


class InvalidError(AnabranchError, ValueError):
    """An argument cannot be used."""


class SystemError(AnabranchError):
    """No adapter can be used, a port is taken, a file cannot be read."""


class TimedOutError(AnabranchError, TimeoutError):
    """The peer does not answer, or no network has reached it for too long."""


class NoAddressError(AnabranchError):
    """No address of the peer is known."""


class NotAdmittedError(AnabranchError, PermissionError):
    """The peer does not let this end in."""


class RefusedError(AnabranchError, ConnectionRefusedError):
    """The peer takes no connections."""


class ProtocolError(AnabranchError):
    """The peer broke the protocol."""


class ResetError(AnabranchError, ConnectionResetError):
    """The peer ended or reset the connection, or was started anew."""


class ClosedError(AnabranchError, BrokenPipeError):
    """This endpoint or direction is closed."""


# By the numbers of anabranch.h.
BY_NUMBER = {
    -1: InvalidError,
    -2: SystemError,
    -3: TimedOutError,
    -4: NoAddressError,
    -5: NotAdmittedError,
    -6: RefusedError,
    -7: ProtocolError,
    -8: ResetError,
    -9: ClosedError,
}
