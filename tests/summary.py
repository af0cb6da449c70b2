"""Counts the cases in a ctest JUnit file and appends "passed failed skipped" to a file of counts.

A ctest entry that says itself how many cases it ran (cmocka, the test programs) counts as
those; any other counts as one.
"""

import re
import sys
from xml.etree import ElementTree

# By kind: cmocka's line, that of the test programs.
PATTERNS = {
    "passed": (r"^\[  PASSED  \] (\d+) test", r"^(\d+) passed, \d+ failed"),
    "failed": (r"^\[  FAILED  \] (\d+) test", r"^\d+ passed, (\d+) failed"),
    "skipped": (r"^\[  SKIPPED \] (\d+) test", r", (\d+) skipped$"),
}


def cases(case: ElementTree.Element) -> dict[str, int]:
    """How many cases of each kind one ctest entry stands for."""
    status = case.get("status")
    if status in ("notrun", "disabled"):
        return {"passed": 0, "failed": int(status == "notrun"), "skipped": int(status != "notrun")}
    output = case.findtext("system-out") or ""
    counts = {
        kind: sum(int(n) for p in patterns for n in re.findall(p, output, re.MULTILINE))
        for kind, patterns in PATTERNS.items()
    }
    if status == "fail" and counts["failed"] == 0:
        counts["failed"] = 1
    if not any(counts.values()):
        counts["passed"] = 1
    return counts


def main() -> None:
    """Reads the file, prints each entry, and adds the sums to the counts."""
    name, path, counts_path = sys.argv[1:]
    sums = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        counts = cases(case)
        for kind in sums:
            sums[kind] += counts[kind]
        verdict = "FAILED " if counts["failed"] else "ok     "
        text = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
        print(f"{verdict} {name}: {case.get('name')}: {text}")
        if counts["failed"]:
            print("\n".join((case.findtext("system-out") or "").splitlines()[-40:]))
    with open(counts_path, "a", encoding="utf-8") as counts_file:
        print(*sums.values(), file=counts_file)


if __name__ == "__main__":
    main()
