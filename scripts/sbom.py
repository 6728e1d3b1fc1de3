#!/usr/bin/env python3
"""Writes the list of all parts of the programs and libraries that are installed: scripts/sbom.py FILE

CycloneDX 1.6, JSON (https://cyclonedx.org/docs/1.6/json/). Parts are the crates that are linked or that build what is
linked, from `cargo metadata`, with the checksums of Cargo.lock. The same sources give the same bytes: the serial number is
made from the contents, and there is no time in it.
"""

import json
import pathlib
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLATFORM = "x86_64-unknown-linux-gnu"

# Kinds of build targets that are installed.
INSTALLED = {"bin", "cdylib"}


def linked(metadata):
    """The ids of all packages that installed programs and libraries are made of, and those they depend on, by id."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    waiting = [
        package["id"]
        for package in metadata["packages"]
        if package["id"] in members and any(INSTALLED & set(target["kind"]) for target in package["targets"])
    ]
    found = {}
    while waiting:
        package = waiting.pop()
        if package not in found:
            # `dev` are those of tests only.
            found[package] = sorted(
                dependency["pkg"]
                for dependency in nodes[package]["deps"]
                if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
            )
            waiting += found[package]
    return found


def reference(package):
    """The package URL (https://github.com/package-url/purl-spec) of a package of `cargo metadata`."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    """A package as a component."""
    own = package["source"] is None
    described = {
        "type": "application" if any("bin" in target["kind"] for target in package["targets"]) and own else "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package.get("description"):
        described["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # Older crates write `A/B` for `A OR B`.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def bill(metadata, checksums, version):
    """The whole list."""
    packages = {package["id"]: package for package in metadata["packages"]}
    graph = linked(metadata)
    own = [package for package in graph if package in set(metadata["workspace_members"])]
    whole = {"type": "application", "bom-ref": "anabranch", "name": "anabranch", "version": version}
    references = {package: reference(packages[package]) for package in graph}
    listed = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": sorted((component(packages[package], checksums) for package in graph), key=lambda part: part["bom-ref"]),
        "dependencies": [{"ref": "anabranch", "dependsOn": sorted(references[package] for package in own)}]
        + sorted(
            (
                {"ref": references[package], "dependsOn": sorted({references[other] for other in others})}
                for package, others in graph.items()
            ),
            key=lambda dependency: dependency["ref"],
        ),
    }
    contents = json.dumps(listed, sort_keys=True)
    return {**listed, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}"}


def main():
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]
    metadata = json.loads(subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout)
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    written = bill(metadata, checksums, version)
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1) + "\n")
    print(f"sbom: {path} lists {len(written['components'])} crates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
