"""The same drain with the policy that drainproof injects.

The Job of experiment 2, not changed by a letter, where drainproof looks: it adds a podFailurePolicy that ignores
disruptions, and podReplacementPolicy Failed. When the other experiments are over, the node is drained with
`kubectl drain` itself, which closes it to new Pods too, and is opened again.

**Expected.** The old Pod may end in peace, and only 10 s after its end (the back-off) comes the next one. Nothing
counts as failed, and the Job is Complete in the end.

**What it means.** A drain costs some time, and nothing else. The price is that a replacement waits for the end of the
old Pod.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab import lane
from tests.lab.bench import WITH, Bench, Trial
from tests.lab.experiment import Figure, Observation, described, equal
from tests.lab.experiments import drain
from tests.lab.history import OWNER, Story


def observe(bench: Bench) -> Observation:
    """Evicts the Pod, and waits for the end of the Job; beside it, for comparison, the same without drainproof."""
    with ThreadPoolExecutor() as pool:
        without = pool.submit(drain.evicted, bench, "drained-beside")
        with_policy = pool.submit(_evicted, bench).result()
        other = without.result()
    shown = lane.run("Without drainproof, one eviction", other, other.pods[0].asked or 0)
    return Observation((shown,)) + _observation("With drainproof, one eviction", with_policy)


def _evicted(bench: Bench) -> Story:
    trial = bench.start(drain.JOB, WITH, "drained")
    trial.evict(trial.has_begun())
    story = trial.has_become("Complete")
    trial.end()
    return story


def by_kubectl(bench: Bench) -> Observation:
    """Has kubectl drain the node, which nobody else may need meanwhile."""
    trial = bench.start(drain.job(3), WITH, "drained-by-kubectl")
    trial.has_begun()
    code = _drained(trial)
    story = trial.has_become("Complete")
    trial.end()
    claim = equal("kubectl drain ends with exit code", code, 0)
    return Observation(claims=(claim,)) + _observation("With drainproof, kubectl drain", story)


def _drained(trial: Trial) -> int:
    ring = trial.bench.ring
    words = ("--ignore-daemonsets", "--force", "--timeout=80s", f"--pod-selector={OWNER}={trial.name}")
    try:
        return ring.kubectl("drain", ring.node, *words, check=False, timeout=90).returncode
    finally:
        ring.kubectl("uncordon", ring.node)


def _observation(title: str, story: Story) -> Observation:
    old, new = story.pods[:2]
    ended = old.main.ended or 0 if old.main else 0
    return Observation(
        (lane.run(title, story, old.asked or 0),),
        (
            drain.after_backoff(f"{title}: the replacement is created after the old Pod's end", new.created - ended),
            equal(f"{title}: failed", story.count("failed"), 0),
            equal(f"{title}: Pods", len(story.pods), 2),
        ),
        (Figure(f"{title}: replacement after the old Pod's end", new.created - ended),),
    )


EXPERIMENT: Final = described(3, __doc__, observe=observe, alone=by_kubectl, manifest=drain.JOB)
