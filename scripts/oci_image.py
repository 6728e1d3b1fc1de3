#!/usr/bin/env python3
"""Makes the container image of a gateway: scripts/oci_image.py PROGRAM FILE.tar

An OCI layout (https://github.com/opencontainers/image-spec) in a tar file, for `podman load`, `skopeo copy` or `docker load`. In it are
the program, nft from this machine with the libraries that either needs, their licences, and a user for the daemon: no shell, no
package system. The same files give the same bytes.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
STATE = "var/lib/anabranch"
# Nobody's number on usual systems; the daemon becomes this user once it is set up.
USER = 4600
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def needed(program):
    """The program's libraries and loader, by the paths under which they are looked for."""
    told = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    # Of a static program ldd says that it is no dynamic executable.
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", told.stdout)))


def licences(paths):
    """The licences of the Debian packages that the files come from."""
    for path in paths:
        # Of merged directories the package system knows one name or the other.
        for name in (path, os.path.realpath(path), path.removeprefix("/usr"), "/usr" + path):
            owner = subprocess.run(["dpkg", "--search", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            if owner:
                yield f"/usr/share/doc/{owner.split(':')[0]}/copyright"
                break


def files(program):
    """Path in the image, mode, contents."""
    nft = shutil.which("nft", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if nft is None:
        sys.exit("image: nft is missing (package nftables)")
    libraries = sorted({*needed(program), *needed(nft)})
    yield "usr/bin/anabranch", 0o755, pathlib.Path(program).read_bytes()
    yield "usr/sbin/nft", 0o755, pathlib.Path(nft).read_bytes()
    for library in libraries:
        yield library.lstrip("/"), 0o755, pathlib.Path(library).read_bytes()
    for licence in sorted({*licences([nft, *libraries])}):
        yield licence.lstrip("/"), 0o644, pathlib.Path(licence).read_bytes()
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        yield f"usr/share/doc/anabranch/{name}", 0o644, (ROOT / name).read_bytes()
    accounts = [("root", 0), ("anabranch", USER), ("nobody", 65_534)]
    yield "etc/passwd", 0o644, "".join(f"{name}:x:{number}:{number}::/:/nonexistent\n" for name, number in accounts).encode()
    yield "etc/group", 0o644, "".join(f"{name}:x:{number}:\n" for name, number in accounts).encode()


def layer(program, epoch):
    """The one layer, as a tar file."""
    contents = {path: (mode, data) for path, mode, data in files(program)}
    directories = {str(parent): 0o755 for path in contents for parent in pathlib.PurePath(path).parents if str(parent) != "."}
    directories |= {"var": 0o755, "var/lib": 0o755, STATE: 0o700, "tmp": 0o1777, "run": 0o755}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted({*contents, *directories}):
            entry = tarfile.TarInfo(path)
            entry.mtime = epoch
            if path in directories:
                entry.type, entry.mode = tarfile.DIRTYPE, directories[path]
                tar.addfile(entry)
            else:
                entry.mode, data = contents[path]
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def image(program, version, epoch):
    """Path and contents of each file of the layout."""
    unpacked = layer(program, epoch)
    packed = gzip.compress(unpacked, 9, mtime=0)
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    architecture = ARCHITECTURES[platform.machine()]
    labels = {
        "org.opencontainers.image.title": "anabranch",
        "org.opencontainers.image.description": "Gateway of Anabranch: one interface over all networks of a device",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/anabranch/anabranch",
        "org.opencontainers.image.created": created,
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            # It begins as root and gives that up by itself; what it needs is in docs/installing.md.
            "User": "0:0",
            "Entrypoint": ["/usr/bin/anabranch", "--state", f"/{STATE}"],
            "Cmd": ["gateway", "run"],
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "ExposedPorts": {"4600/udp": {}, "4600/tcp": {}},
            "Volumes": {f"/{STATE}": {}},
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(unpacked)]},
        "history": [{"created": created, "created_by": "scripts/oci_image.py"}],
    }
    blobs = {}

    def blob(kind, data):
        blobs[f"blobs/{digest(data).replace(':', '/')}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", encoded(config)),
        "layers": [blob("layer.v1.tar+gzip", packed)],
        "annotations": labels,
    }
    described = blob("manifest.v1+json", encoded(manifest))
    described["platform"] = {"architecture": architecture, "os": "linux"}
    described["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        # The name that docker and podman give it when they load it.
        "io.containerd.image.name": f"localhost/anabranch:{version}",
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
    return {"oci-layout": encoded({"imageLayoutVersion": "1.0.0"}), "index.json": encoded(index), **blobs}


def digest(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def encoded(value):
    return json.dumps(value, sort_keys=True).encode()


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    git = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(git, check=True, stdout=subprocess.PIPE, text=True).stdout)
    path = pathlib.Path(sys.argv[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in image(sys.argv[1], version, epoch).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), epoch, 0o644
            tar.addfile(entry, io.BytesIO(data))
    print(f"image: {path} has {path.stat().st_size / 1e6:.1f} MB: anabranch:{version} for {ARCHITECTURES[platform.machine()]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
