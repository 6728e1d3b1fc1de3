#!/usr/bin/env python3
"""Two ends that know each other's keys, in one program for once: what one says the other says back."""

import threading

import anabranch


def serve(endpoint):
    for stream in endpoint:
        stream.write_all(stream.read())
        stream.finish()


def main():
    near_key, far_key = anabranch.PrivateKey.generate(), anabranch.PrivateKey.generate()
    with anabranch.Endpoint(far_key, admit=[near_key.public]) as far, anabranch.Endpoint(near_key) as near:
        threading.Thread(target=serve, args=[far]).start()
        with near.connect(far_key.public, far.addresses) as stream:
            stream.write_all(b"hello")
            stream.finish()
            print(stream.read().decode(), "over", stream.standing().adapter)


if __name__ == "__main__":
    main()
