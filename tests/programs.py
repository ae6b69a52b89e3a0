"""Finds or builds all programs that tests run, with progress, before the first of them waits for one."""

import sys

from tests.cluster import building, helm, programs
from tests.karpenter import programs as karpenter
from tests.node import requirements


def search() -> None:
    """Those that the first tests need come first. Raises ProgramError."""
    programs.find()
    unfit = requirements.unfit()
    if unfit:
        print(f"no programs of a node: {unfit}", file=sys.stderr)
    else:
        programs.find(programs.NODE_PACKAGES)
    helm.find()
    for version in (karpenter.NEWEST, karpenter.BEFORE_DURATIONS):
        karpenter.find(version)


if __name__ == "__main__":
    sys.exit(building.told(search))
