"""All laboratories of the lab, with their experiments."""

from typing import Final

from tests.lab import node
from tests.lab.experiments import (
    backoff,
    containers,
    deadline,
    deletion,
    drain,
    eviction,
    grace,
    guard,
    policy,
    restart,
    success,
)
from tests.lab.laboratory import Laboratory

NODE: Final = Laboratory(
    "node",
    (
        backoff.EXPERIMENT,
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
