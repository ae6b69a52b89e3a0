"""How property tests run: no deadline, for a shared machine stalls at times; in CI the same examples each time."""

import os

from hypothesis import settings

settings.register_profile("drainproof", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("drainproof")
