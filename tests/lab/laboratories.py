"""All laboratories of the lab, with their experiments."""

from typing import Final

from tests.lab import node
from tests.lab.experiments import (
    anew,
    backoff,
    containers,
    deadline,
    defied,
    deletion,
    drain,
    eviction,
    forced,
    grace,
    guard,
    policy,
    protection,
    restart,
    success,
)
from tests.lab.laboratory import Laboratory

NODE: Final = Laboratory(
    "node",
    (
        backoff.EXPERIMENT,
        anew.EXPERIMENT,
        defied.EXPERIMENT,
        protection.EXPERIMENT,
        forced.EXPERIMENT,
        eviction.EXPERIMENT,
        policy.EXPERIMENT,
        guard.EXPERIMENT,
        success.EXPERIMENT,
        drain.EXPERIMENT,
        restart.EXPERIMENT,
        deadline.EXPERIMENT,
        grace.EXPERIMENT,
        deletion.EXPERIMENT,
        containers.EXPERIMENT,
    ),
    node.opened,
)
LABORATORIES: Final = (NODE,)
EXPERIMENTS: Final = tuple(
    sorted((one for laboratory in LABORATORIES for one in laboratory.experiments), key=lambda one: one.number)
)
