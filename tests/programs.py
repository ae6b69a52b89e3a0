"""Finds or builds all programs that tests run, with progress, before the first of them waits for one."""

import sys
from collections.abc import Callable, Iterator

from tests.cluster import helm, programs
from tests.cluster.building import ProgramError
from tests.karpenter import programs as karpenter
from tests.node import requirements


def searches() -> Iterator[Callable[[], object]]:
    """What finds programs, those that the first tests need first."""
    yield programs.find
    unfit = requirements.unfit()
    if unfit:
        print(f"no programs of a node: {unfit}", file=sys.stderr)
    else:
        yield lambda: programs.find(programs.NODE_PACKAGES)
    yield helm.find
    for version in (karpenter.NEWEST, karpenter.BEFORE_DURATIONS):
        yield lambda version=version: karpenter.find(version)  # type: ignore[misc]


def main() -> int:
    """0 where all are there; 1, and why, where one cannot be had."""
    try:
        for search in searches():
            search()
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell reports for SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
