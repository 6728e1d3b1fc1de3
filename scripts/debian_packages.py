#!/usr/bin/env python3
"""Makes the Debian packages of what is built: scripts/debian_packages.py [--profile release] [--into target/debian] [--version V] [--quick]

packaging/debian/packages.toml says which file of `make install` goes into which package. The same programs and the same
commit give the same bytes. --quick packs faster and larger, for tests.
"""

import argparse
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEBIAN = ROOT / "packaging" / "debian"
MAINTAINER = "The Anabranch contributors <anabranch@users.noreply.github.com>"
HOMEPAGE = "https://github.com/anabranch/anabranch"
SCRIPTS = ("postinst", "prerm", "postrm")


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


def staged(stage, profile, libdir):
    """Everything that `make install` puts in place, moved to where Debian has it."""
    places = [f"PROFILE={profile}", f"DESTDIR={stage}", "PREFIX=/usr", f"LIBDIR=/{libdir}"]
    places += ["NETWORKMANAGER=/usr/lib/NetworkManager/conf.d"]
    subprocess.run(["make", "--silent", "install", *places], check=True, cwd=ROOT)
    moves = {
        "usr/share/zsh/site-functions": "usr/share/zsh/vendor-completions",
        "usr/share/anabranch/python/anabranch": "usr/lib/python3/dist-packages/anabranch",
    }
    for old, new in moves.items():
        (stage / new).parent.mkdir(parents=True, exist_ok=True)
        (stage / old).rename(stage / new)
    shutil.rmtree(stage / "usr/share/anabranch")
    documents = stage / "usr/share/doc/anabranch"
    subprocess.run([sys.executable, ROOT / "scripts/sbom.py", documents / "sbom.cdx.json"], check=True, stdout=subprocess.DEVNULL)
    # Their texts are in `copyright`, and what is new in `changelog.gz`.
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"):
        (documents / name).unlink()
    for path in [*stage.glob("usr/share/man/*/*"), documents / "sbom.cdx.json"]:
        compress(path)


def compress(path):
    """The file by `gzip -9n`."""
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


def move(stage, tree, patterns):
    """What the patterns name, from the stage to the tree of a package."""
    for pattern in patterns:
        # Of a name without wildcards `glob` wants that what it leads to is still there.
        found = sorted(stage.glob(pattern)) if "*" in pattern else [stage / pattern] * os.path.lexists(stage / pattern)
        if not found:
            sys.exit(f"packages: `make install` puts nothing at /{pattern}")
        for path in found:
            target = tree / path.relative_to(stage)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)


def linked_libraries(programs, work):
    """The packages that the programs' libraries come from, as dpkg-shlibdeps writes them."""
    if not programs:
        return []
    (work / "debian").mkdir(exist_ok=True)
    (work / "debian/control").write_text("Source: anabranch\n\nPackage: anabranch\nArchitecture: any\n")
    said = output("dpkg-shlibdeps", "-O", *(f"-e{path}" for path in programs), cwd=work)
    return re.split(r",\s*", said.partition("=")[2])


def document(tree, name, version, epoch):
    """Licence and what is new, where Debian's policy wants them."""
    documents = tree / "usr/share/doc" / name
    documents.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DEBIAN / "copyright", documents / "copyright")
    date = email.utils.formatdate(epoch)
    entry = f"anabranch ({version}) unstable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n -- {MAINTAINER}  {date}\n"
    for file, text in (("changelog.Debian", entry), ("changelog", (ROOT / "CHANGELOG.md").read_text())):
        (documents / file).write_text(text)
        compress(documents / file)


def control(name, package, facts):
    """The package's control file."""
    described = "\n".join(f" {line}" if line else " ." for line in package["description"].strip().splitlines())
    fields = {
        "Package": name,
        "Source": "anabranch" if name != "anabranch" else None,
        "Version": facts["version"],
        "Architecture": package.get("architecture", facts["architecture"]),
        "Multi-Arch": package.get("multi-arch"),
        "Maintainer": MAINTAINER,
        "Installed-Size": str(facts["kibibytes"]),
        **{
            field: ", ".join(facts["libraries"] * (field == "Depends") + package.get(field.lower(), []))
            for field in ("Depends", "Recommends", "Suggests")
        },
        "Section": package["section"],
        "Priority": "optional",
        "Homepage": HOMEPAGE,
        "Description": f"{package['summary']}\n{described}",
    }
    return "".join(f"{field}: {value}\n" for field, value in fields.items() if value)


def filled(package, values):
    """The package's entry with `${version}` and `${libdir}` filled in."""
    fill = lambda text: re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], text)
    return {key: [fill(word) for word in value] if isinstance(value, list) else value for key, value in package.items()}


def make(name, package, stage, work, facts, into, quick):
    """One package; returns its path."""
    tree = work / name
    tree.mkdir()
    move(stage, tree, package.get("programs", []) + package.get("files", []))
    programs = [tree / path for path in package.get("programs", [])]
    for program in programs:
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", program], check=True)
        program.chmod(0o644 if ".so" in program.name else 0o755)
    facts = {**facts, "libraries": linked_libraries(programs, work)}
    document(tree, name, facts["version"], facts["epoch"])
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    facts["kibibytes"] = sum(-(-path.stat().st_size // 1024) for path in files)
    meta = tree / "DEBIAN"
    meta.mkdir()
    (meta / "control").write_text(control(name, package, facts))
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files)
    (meta / "md5sums").write_text("".join(sums))
    for script in SCRIPTS:
        if (DEBIAN / f"{name}.{script}").exists():
            shutil.copyfile(DEBIAN / f"{name}.{script}", meta / script)
            (meta / script).chmod(0o755)
    if shared := package.get("shared-library"):
        (meta / "shlibs").write_text(f"{shared} {name} (>= {facts['version']})\n")
        (meta / "triggers").write_text("activate-noawait ldconfig\n")
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    packed = ["-Zgzip", "-z1"] if quick else ["-Zxz"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(facts["epoch"])}
    command = ["dpkg-deb", "--root-owner-group", *packed, "--build", tree, into]
    return pathlib.Path(re.search(r"'([^']+\.deb)'", output(*command, env=environment))[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="release")
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "target/debian")
    parser.add_argument("--version")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    upstream = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    architecture = output("dpkg", "--print-architecture")
    facts = {
        "version": arguments.version or f"{upstream}-1",
        "architecture": architecture,
        "epoch": int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct", cwd=ROOT)),
    }
    libdir = "usr/lib/" + output("dpkg-architecture", "-a", architecture, "-q", "DEB_HOST_MULTIARCH")
    os.umask(0o022)
    arguments.into.mkdir(parents=True, exist_ok=True)
    for old in arguments.into.glob("*.deb"):
        old.unlink()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        stage = work / "stage"
        staged(stage, arguments.profile, libdir)
        for name, package in tomllib.loads((DEBIAN / "packages.toml").read_text()).items():
            package = filled(package, {"version": facts["version"], "libdir": libdir})
            print(make(name, package, stage, work, facts, arguments.into, arguments.quick))
        left = sorted(str(path.relative_to(stage)) for path in stage.rglob("*") if not path.is_dir())
        if left:
            sys.exit(f"packages: of `make install` no package has {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
