"""The C interface, by ctypes: the structures and functions of anabranch.h."""

import ctypes
import os
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_size_t, c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from ._errors import BY_NUMBER, AnabranchError

KEY_LENGTH = 32
NAME_LENGTH = 16
CLOSED = -9

Key = c_uint8 * KEY_LENGTH


class Options(Structure):
    _fields_ = [
        ("private_key", Key),
        ("name", c_char_p),
        ("adapters", c_char_p),
        ("admitted_keys", POINTER(c_uint8)),
        ("admitted_count", c_size_t),
        ("patience", c_uint32),
        ("port", c_uint16),
        ("admission", c_uint8),
        ("spread", c_uint8),
    ]


class ConnectOptions(Structure):
    _fields_ = [("deadline", c_uint32), ("wish", c_uint32)]


class Standing(Structure):
    _fields_ = [
        ("round_trip", c_uint64),
        ("bandwidth", c_uint64),
        ("paths", c_uint32),
        ("adapter", c_char * NAME_LENGTH),
    ]


class Event(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("flag", c_uint32),
        ("peer", Key),
        ("adapter", c_char * NAME_LENGTH),
        ("origin", c_char * NAME_LENGTH),
    ]


_PEER = [c_char_p, POINTER(c_char_p), c_size_t, POINTER(ConnectOptions)]
_FUNCTIONS = {
    "anabranch_error": ([], c_char_p),
    "anabranch_key_generate": ([c_void_p], c_int),
    "anabranch_key_load": ([c_char_p, c_void_p], c_int),
    "anabranch_key_public": ([c_char_p, c_void_p], c_int),
    "anabranch_endpoint_open": ([POINTER(Options), POINTER(c_void_p)], c_int),
    "anabranch_endpoint_addresses": ([c_void_p, c_void_p, c_size_t], c_size_t),
    "anabranch_listen": ([c_void_p], c_int),
    "anabranch_accept": ([c_void_p, POINTER(c_void_p), c_void_p], c_int),
    "anabranch_connect": ([c_void_p, *_PEER, POINTER(c_void_p)], c_int),
    "anabranch_endpoint_close": ([c_void_p], None),
    "anabranch_endpoint_free": ([c_void_p], None),
    "anabranch_read": ([c_void_p, c_void_p, c_size_t], c_ssize_t),
    "anabranch_write": ([c_void_p, c_void_p, c_size_t], c_ssize_t),
    "anabranch_finish": ([c_void_p], c_int),
    "anabranch_reset": ([c_void_p, c_uint64], None),
    "anabranch_stream_standing": ([c_void_p, POINTER(Standing)], c_int),
    "anabranch_stream_free": ([c_void_p], None),
    "anabranch_datagrams_open": ([c_void_p, *_PEER, POINTER(c_void_p)], c_int),
    "anabranch_datagrams_of": ([c_void_p, c_void_p, POINTER(c_void_p)], c_int),
    "anabranch_datagram_send": ([c_void_p, c_char_p, c_size_t, c_uint32], c_int),
    "anabranch_datagram_receive": ([c_void_p, c_void_p, c_size_t], c_ssize_t),
    "anabranch_datagrams_free": ([c_void_p], None),
    "anabranch_events_open": ([c_void_p, POINTER(c_void_p)], c_int),
    "anabranch_events_next": ([c_void_p, POINTER(Event)], c_int),
    "anabranch_events_free": ([c_void_p], None),
}


def _load():
    name = os.environ.get("ANABRANCH_LIBRARY", "libanabranch.so.0")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"{name} cannot be loaded ({error}); `make install` of Anabranch brings it") from error
    for function, (arguments, outcome) in _FUNCTIONS.items():
        getattr(library, function).argtypes = arguments
        getattr(library, function).restype = outcome
    return library


library = _load()


def check(outcome):
    """The outcome of a call, or its error."""
    if outcome >= 0:
        return outcome
    words = (library.anabranch_error() or b"").decode("utf-8", "replace")
    raise BY_NUMBER.get(outcome, AnabranchError)(words)


class Handle:
    """Something of the library, freed once nobody uses it any more, in whatever thread."""

    def __init__(self, pointer, free):
        self._pointer = pointer
        self._free = free

    def __del__(self):
        if self._pointer:
            self._free(self._pointer)

    @property
    def pointer(self):
        return self._pointer
