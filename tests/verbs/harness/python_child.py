"""Runs the tests of one module; writes a line of JSON for each test that begins and ends. Started by python_tests.py, in the
directory where the tests are."""

import json
import sys
import time
import types
import unittest

order = json.loads(sys.argv[1])
# As their run_tests.py has it.
sys.path[0:1] = [".", "tests"]
sys.argv = ["run_tests.py", "--dev", "vnic0", "--gid", "1"]

from args_parser import parser  # noqa: E402

parser.parse_args()
# Their package imports every module there is as soon as it is named: one is enough.
package = types.ModuleType("tests")
package.__path__ = ["tests"]
sys.modules["tests"] = package


def like(pattern, name):
    """Shell patterns, as expected.py has them."""
    import fnmatch

    return fnmatch.fnmatchcase(name, pattern)


class Result(unittest.TestResult):
    """Tells of each test at once: the process may end any time."""

    def __init__(self):
        super().__init__()
        self.out = open(order["results"], "a")
        self.began = 0.0
        self.told = False

    def tell(self, event, test, text=""):
        if self.told and event != "start":
            # What its end has to say after its body has failed.
            return
        self.told = event != "start"
        row = {"event": event, "test": test.id(), "text": text, "seconds": time.monotonic() - self.began}
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()

    def startTest(self, test):
        self.began = time.monotonic()
        self.tell("start", test)

    def addSuccess(self, test):
        self.tell("ok", test)

    def addSkip(self, test, reason):
        self.tell("skip", test, reason)

    def addFailure(self, test, error):
        self.tell("fail", test, self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.tell("fail", test, self._exc_info_to_string(error, test))

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.tell("fail", test, self._exc_info_to_string(error, subtest))

    def addExpectedFailure(self, test, error):
        self.tell("ok", test)

    def addUnexpectedSuccess(self, test):
        self.tell("fail", test, "it was not to succeed")


def leaves(suite):
    """Single tests."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from leaves(item)
        else:
            yield item


def chosen(test):
    """Is it still to be run?"""
    if test.id() in order["done"]:
        return False
    return not order["only"] or any(like(p, f"{order['suite']} {test.id()}") for p in order["only"])


suite = unittest.defaultTestLoader.loadTestsFromName(f"tests.{order['module']}")
unittest.TestSuite(t for t in leaves(suite) if chosen(t)).run(Result())
