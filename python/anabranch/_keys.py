"""Keys: who an end is."""

import base64
import ctypes
import os

from ._library import KEY_LENGTH, check, library


class PublicKey(bytes):
    """Who a peer is: 32 bytes; as text what the anabranch command shows."""

    def __new__(cls, key):
        if isinstance(key, str):
            padding = "=" * (-len(key) % 8)
            key = base64.b32decode(key.upper() + padding)
        if len(key) != KEY_LENGTH:
            raise ValueError("a key has 32 bytes")
        return super().__new__(cls, key)

    def __str__(self):
        return base64.b32encode(self).decode().rstrip("=").lower()

    def __repr__(self):
        return f"PublicKey('{self}')"


class PrivateKey:
    """What proves who an end is; keep it secret."""

    def __init__(self, secret):
        if len(secret) != KEY_LENGTH:
            raise ValueError("a key has 32 bytes")
        self._secret = bytes(secret)
        public = ctypes.create_string_buffer(KEY_LENGTH)
        check(library.anabranch_key_public(self._secret, public))
        self.public = PublicKey(public.raw)

    @classmethod
    def generate(cls):
        """A new one."""
        secret = ctypes.create_string_buffer(KEY_LENGTH)
        check(library.anabranch_key_generate(secret))
        return cls(secret.raw)

    @classmethod
    def load(cls, state_directory):
        """That of a state directory, as the anabranch command uses it; made if there is none."""
        secret = ctypes.create_string_buffer(KEY_LENGTH)
        check(library.anabranch_key_load(os.fsencode(state_directory), secret))
        return cls(secret.raw)

    def __bytes__(self):
        return self._secret

    def __repr__(self):
        return f"<PrivateKey of {self.public}>"
