#!/usr/bin/env python3
"""Runs the tests of the workspace, and those that failed once more, each alone.

Many of them start programs and network namespaces, and wait for what these do. Those that start virtual machines, whose time is their own, run beside
them, and two at once when nothing else is left. A machine that stands still for seconds can break a test; it does not break the same one twice. What
passed only then is named at the end. Where tests stand still it is shown what waits for what, and the programs that
they have started are ended, of which a test most often fails; if it goes on to stand still, its own program is, and all targets of that kind and name run once more.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

TESTS = ["cargo", "test", "--locked", "--workspace"]
# How the names of tests begin that run beside all others.
BESIDE = "vm_"
# More than this is no accident.
MOST_AGAIN = 5
# Seconds.
LAST_WORDS = 5.0
# No test is silent for so long, seconds.
STANDS_STILL = 600.0
# For so long if what it had started has been ended, seconds.
STILL_STANDS = 60.0

RUNNING = re.compile(r"^\s+Running (?:unittests )?(?P<source>\S+) \(\S+\)$")
FAILED = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. FAILED$")
# What cargo says of a program that was ended, here or for want of memory.
WAS_ENDED = re.compile(r"\(signal: 9, SIGKILL\b")
PASSED = re.compile(r"^test result: ok\. (?P<count>[1-9]\d*) passed", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Test:
    """A test by where it is: what selects its target for cargo, and its name there; without a name all of that target."""

    target: tuple[str, ...]
    name: str | None

    def command(self) -> list[str]:
        return [*TESTS, *self.target, *(["--", "--exact", self.name, "--nocapture"] if self.name else [])]

    def __str__(self) -> str:
        return self.name or "all of " + " ".join(self.target)


def target_of(source: str) -> tuple[str, ...] | None:
    """What selects the target with this source for cargo; None if it cannot be run by itself."""
    directory, _, file = source.rpartition("/")
    stem = file.removesuffix(".rs")
    if directory == "tests":
        return ("--test", stem)
    if directory.startswith("tests/") and stem == "main":
        return ("--test", directory.removeprefix("tests/"))
    if stem == "lib":
        return ("--lib",)
    if directory == "src" and stem == "main":
        return ("--bins",)
    return None


class Outcome:
    """What failed, read from cargo's output line by line."""

    def __init__(self) -> None:
        self.failed: list[Test] = []
        # Something failed that cannot be run by itself.
        self.others = False
        self._target: tuple[str, ...] | None = None

    def take(self, line: str) -> None:
        running = RUNNING.match(line)
        if running:
            self._target = target_of(running["source"])
        elif line.lstrip().startswith("Doc-tests "):
            self._target = None
        failed = FAILED.match(line)
        if failed and self._target:
            self.failed.append(Test(self._target, failed["name"]))
        elif line.startswith("test ") and line.endswith(" ... FAILED"):
            self.others = True
        if WAS_ENDED.search(line):
            if self._target:
                self.failed.append(Test(self._target, None))
            else:
                self.others = True


def first_time(line: str) -> str:
    """A line of the first run as it is shown: a failure there is no verdict yet."""
    return line.replace(" ... FAILED", " ... failed the first time") if line.startswith("test ") else line


def children(process: int) -> list[int]:
    """The processes that one has started; none if it has gone."""
    found: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def waiting(process: int, depth: int = 0) -> Iterator[str]:
    """A line for a process and each that it has started, with its threads, which tests name after themselves, and what they wait for in the kernel."""
    try:
        arguments = Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        threads = [
            f"{(thread / 'comm').read_text(errors='replace').strip()} in {(thread / 'wchan').read_text()}"
            for thread in sorted(Path(f"/proc/{process}/task").iterdir())
        ]
    except OSError:
        return
    yield f"===   {'  ' * depth}{arguments[:200]}: {', '.join(threads)}"
    for child in children(process):
        yield from waiting(child, depth + 1)


def end(processes: list[int]) -> None:
    """Ends them, and what they have started."""
    for process in processes:
        begun = children(process)
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
        end(begun)


def run(command: list[str], heed: Callable[[str], None], shown: Callable[[str], str] = str) -> int:
    """Runs a command, shows its output and hands on each line; how it ended. What it started is ended if it says nothing for too long."""
    heard, patience = time.monotonic(), STANDS_STILL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tests:

        def read() -> None:
            nonlocal heard, patience
            for line in tests.stdout or []:
                heard, patience = time.monotonic(), STANDS_STILL
                print(shown(line), end="", flush=True)
                heed(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while True:
            try:
                ended = tests.wait(timeout=min(10.0, patience))
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() - heard > patience:
                    print(f"=== nothing for {patience:.0f} s:", *waiting(tests.pid), sep="\n", flush=True)
                    # None if another cargo builds, for which this one waits.
                    programs = children(tests.pid)
                    begun = [process for program in programs for process in children(program)]
                    is_first = patience == STANDS_STILL
                    heard, patience = time.monotonic(), STILL_STANDS
                    end(begun if begun and is_first else programs)
        # A program that a test has left behind may hold the output open for ever.
        reader.join(LAST_WORDS)
        if reader.is_alive():
            print("=== a program that a test has started still runs", flush=True)
            tests.stdout = None
    return ended


def selections(metadata: dict) -> tuple[list[list[str]], list[str]]:
    """What selects each target whose tests run beside the others, and the others, but for those in the documentation, which cargo runs by themselves only."""
    targets = [target for package in metadata["packages"] for target in package["targets"] if "test" in target["kind"]]
    names = sorted({target["name"] for target in targets})
    beside = [["--test", name] for name in names if name.startswith(BESIDE)]
    others = [word for name in names if not name.startswith(BESIDE) for word in ("--test", name)]
    return beside, ["--lib", "--bins", *others]


def taken(queue: SimpleQueue[list[str]]) -> Iterator[list[str]]:
    """What is left in a queue from which others take, too."""
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


class Lane(threading.Thread):
    """Commands of cargo, one after the other, beside others: its own, then what is left of those for all lanes."""

    def __init__(self, shared: SimpleQueue[list[str]], *selections: list[str]) -> None:
        super().__init__()
        self.outcome = Outcome()
        # Not before its end.
        self.passed = False
        self._shared = shared
        self._selections = selections

    def run(self) -> None:
        passed = True
        for selection in itertools.chain(self._selections, taken(self._shared)):
            command = [*TESTS, "--no-fail-fast", *selection]
            passed &= run(command, lambda line: self.outcome.take(line.rstrip("\n")), first_time) == 0
        self.passed = passed


def main() -> int:
    # Built before, as one that builds keeps the others waiting.
    if subprocess.run([*TESTS, "--no-run"]).returncode:
        return 1
    told = subprocess.run(
        ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"], check=True, stdout=subprocess.PIPE
    )
    beside, others = selections(json.loads(told.stdout))
    shared: SimpleQueue[list[str]] = SimpleQueue()
    for selection in beside:
        shared.put(selection)
    lanes = [Lane(shared), Lane(shared, others, ["--doc"])]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    if all(lane.passed for lane in lanes):
        return 0
    failed = [test for lane in lanes for test in lane.outcome.failed]
    is_unknown = any(lane.outcome.others or not lane.passed and not lane.outcome.failed for lane in lanes)
    if is_unknown or len(failed) > MOST_AGAIN:
        for test in failed:
            print(f"test {test} ... FAILED", flush=True)
        return 1
    for test in failed:
        print(f"=== once more, alone: {test}", flush=True)
        lines: list[str] = []
        if run(test.command(), lines.append) != 0 or not PASSED.search("".join(lines)):
            print(f"=== failed twice: {test}; to repeat it: {' '.join(test.command())}", flush=True)
            return 1
    print("=== passed, but only the second time: " + ", ".join(map(str, failed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
