#!/usr/bin/env python3
"""The control API against its own description: docs/openapi.json is what the types give, and a generated load of right and wrong
requests to the real server (a made-up device and a made-up gateway) gets only answers that the description allows.

Schemathesis is installed from PyPI below .cache the first time; without it, and not in CI, the second half is skipped."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/examples"
DESCRIPTION = ROOT / "docs/openapi.json"
SCHEMATHESIS = "4.32.5"
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "ignored_auth", "missing_required_header", "unsupported_method",
]


def tool() -> Path | None:
    """The program `schemathesis`, installed if need be."""
    place = ROOT / ".cache" / f"schemathesis-{SCHEMATHESIS}"
    program = place / "bin/schemathesis"
    if program.exists():
        return program
    try:
        venv.create(place, with_pip=True, clear=True)
        pip = [place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", f"schemathesis=={SCHEMATHESIS}"]
        subprocess.run(pip, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            sys.exit(f"check_api: schemathesis cannot be installed: {error}")
        print(f"check_api: skipped, schemathesis cannot be installed: {error}")
        return None
    return program


def attack(program: Path, role: str) -> bool:
    """Whether all answers of a server of this role are as described."""
    server = subprocess.Popen([EXAMPLES / "web_page", role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address, token = server.stdout.readline().strip().split("/#token=")
        command = [
            program, "run", DESCRIPTION, "--url", address, "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS),
            "--max-examples", "15", "--generation-deterministic", "--exclude-path", "/v1/down", "--suppress-health-check", "all",
        ]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=EXAMPLES, check=False)
        print(f"check_api: a {role}: {done.stdout.strip().splitlines()[-1].strip('= ')}")
        if done.returncode != 0:
            print(done.stdout)
        return done.returncode == 0
    finally:
        server.stdin.close()
        server.wait()


def main() -> None:
    given = subprocess.run([EXAMPLES / "openapi"], check=True, text=True, stdout=subprocess.PIPE).stdout
    if given != DESCRIPTION.read_text():
        sys.exit("check_api: docs/openapi.json is old: cargo run --example openapi -p anabranch-lab > docs/openapi.json")
    program = tool()
    if program and not all([attack(program, role) for role in ("device", "gateway")]):
        sys.exit("check_api: answers are not as docs/openapi.json has them")


if __name__ == "__main__":
    main()
