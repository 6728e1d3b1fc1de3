"""Tests of what is read from cargo's output."""

import contextlib
import io
import sys
import time
import unittest
import unittest.mock
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import run_tests

OUTPUT = """\
   Compiling anabranch v0.1.0
     Running unittests src/lib.rs (target/debug/deps/bond-1c)
test path::tests::one ... ok
test path::tests::two ... FAILED
     Running unittests src/main.rs (target/debug/deps/anabranch-1c)
test three ... FAILED
     Running tests/networks.rs (target/debug/deps/networks-5e)
test four - should panic ... FAILED
     Running tests/lab/main.rs (target/debug/deps/lab-5e)
test five ... FAILED
"""


class Running(unittest.TestCase):
    def test_a_program_that_is_left_behind_is_not_waited_for(self) -> None:
        run_tests.LAST_WORDS = 0.5
        lines: list[str] = []
        begun = time.monotonic()
        ended = run_tests.run(["sh", "-c", "sleep 60 & echo left; exit 3"], lines.append)
        self.assertEqual((ended, lines), (3, ["left\n"]))
        self.assertLess(time.monotonic() - begun, 30)

    def run_impatiently(self, script: str) -> tuple[int, list[str], str]:
        """How a shell ends that stands for cargo, what it says, and what is shown of it."""
        shown, lines = io.StringIO(), []
        patience = unittest.mock.patch.multiple(run_tests, STANDS_STILL=2.0, STILL_STANDS=1.0)
        with patience, contextlib.redirect_stdout(shown):
            ended = run_tests.run(["sh", "-c", script], lines.append)
        # Some shells say so of what was ended.
        return ended, [line for line in lines if "Killed" not in line], shown.getvalue()

    def test_what_a_test_waits_for_is_shown_and_ended(self) -> None:
        ended, lines, shown = self.run_impatiently("sh -c 'echo begun; sleep 61; echo $?; exit 4'; exit $?")
        self.assertEqual((ended, lines), (4, ["begun\n", "137\n"]))
        self.assertRegex(shown, r"(?m)^===       sleep 61: sleep in \w+$")

    def test_what_goes_on_to_stand_still_is_ended_itself(self) -> None:
        ended, lines, shown = self.run_impatiently("sh -c 'sleep 61; exec sleep 62'; echo $?")
        self.assertEqual((ended, lines), (0, ["137\n"]))
        self.assertEqual(shown.count("=== nothing for"), 2)


class Reading(unittest.TestCase):
    def read(self, output: str) -> run_tests.Outcome:
        outcome = run_tests.Outcome()
        for line in output.splitlines():
            outcome.take(line)
        return outcome

    def test_each_failure_is_known_by_its_target(self) -> None:
        outcome = self.read(OUTPUT)
        found = [(test.target, test.name) for test in outcome.failed]
        self.assertEqual(
            found,
            [
                (("--lib",), "path::tests::two"),
                (("--bins",), "three"),
                (("--test", "networks"), "four"),
                (("--test", "lab"), "five"),
            ],
        )
        self.assertFalse(outcome.others)

    def test_an_example_in_the_documentation_is_not_tried_again(self) -> None:
        outcome = self.read(OUTPUT + "   Doc-tests units\ntest units/src/lib.rs - bytes (line 3) ... FAILED\n")
        self.assertEqual(len(outcome.failed), 4)
        self.assertTrue(outcome.others)
        outcome = self.read("   Doc-tests units\ntest units ... FAILED\n")
        self.assertTrue(outcome.others)

    def test_a_program_that_was_ended_runs_once_more_as_a_whole(self) -> None:
        caused = "Caused by:\n  process didn't exit successfully: `lab-5e` (signal: 9, SIGKILL: kill)\n"
        outcome = self.read(OUTPUT + caused)
        self.assertEqual(outcome.failed[-1], run_tests.Test(("--test", "lab"), None))
        self.assertEqual(outcome.failed[-1].command(), [*run_tests.TESTS, "--test", "lab"])
        self.assertFalse(outcome.others)
        self.assertTrue(self.read("   Doc-tests units\n" + caused).others)

    def test_a_first_failure_is_no_verdict(self) -> None:
        self.assertEqual(run_tests.first_time("test two ... FAILED\n"), "test two ... failed the first time\n")
        self.assertEqual(run_tests.first_time("it FAILED\n"), "it FAILED\n")

    def test_what_ran_nothing_has_not_passed(self) -> None:
        self.assertIsNone(run_tests.PASSED.search("test result: ok. 0 passed; 0 failed"))
        self.assertIsNotNone(run_tests.PASSED.search("x\ntest result: ok. 1 passed; 0 failed"))


class Selecting(unittest.TestCase):
    def test_every_test_runs_in_one_of_the_lanes(self) -> None:
        def target(name: str, kind: str) -> dict:
            return {"name": name, "kind": [kind]}

        packages = [
            {"targets": [target("lab", "lib"), target("vm_boot", "test"), target("upload", "test")]},
            {"targets": [target("daemon", "lib"), target("namespaces", "test"), target("upload", "test")]},
        ]
        self.assertEqual(
            run_tests.selections({"packages": packages}),
            ([["--test", "vm_boot"]], ["--lib", "--bins", "--test", "namespaces", "--test", "upload"]),
        )

    def test_lanes_take_what_is_left_once_each(self) -> None:
        shared: SimpleQueue[list[str]] = SimpleQueue()
        for name in "abc":
            shared.put([name])
        lanes = [run_tests.taken(shared), run_tests.taken(shared)]
        self.assertEqual([next(lanes[0]), next(lanes[1]), next(lanes[0])], [["a"], ["b"], ["c"]])
        self.assertEqual([list(lane) for lane in lanes], [[], []])


if __name__ == "__main__":
    unittest.main()
