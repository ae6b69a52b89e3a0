"""do-not-disrupt does not help a Pod with too much grace.

The Pod of a Job has do-not-disrupt `4h` and a grace period of 300 s, on a NodePool that grants 30 s. The NodePool is
made after drainproof was installed; nobody tells drainproof of it. Then the node is taken away, without drainproof and
with it. For comparison, the node is taken from a Pod with do-not-disrupt `true` and a grace period of 5 s.

**Expected.** drainproof's controller finds the NodePool and writes its limit into the ConfigMap drainproof-facts, and
the webhook warns of both: [do-not-disrupt](rules/do-not-disrupt.md) where the annotation is,
[platform-limits](rules/platform-limits.md) where it is not. Karpenter deletes the Pod at once, protected or not. The
Pod with 5 s is left alone until these would no longer fit into the 30 s, and then deleted, too.

**What it means.** What protects a Pod from a node that has to be gone is a grace period below the NodePool's limit, and
even then only until the limit is near: of 5 s it may get 1.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.karpenter import experiments, subject
from tests.karpenter.pool import node_pool
from tests.karpenter.programs import NEWEST
from tests.lab import karpenter
from tests.lab.bench import PATIENCE, WITH, WITHOUT, Bench
from tests.lab.experiment import Figure, Observation, between, contains, described, equal
from tests.lab.experiments import forced
from tests.lab.experiments.forced import GRACE, LIMIT, SHORT
from tests.lab.record import RecordError
from tests.node import installation
from tests.node.installation import NAMESPACE
from webhook.settings import Settings

POOL: Final = "defied-with"
LOOK_SECONDS: Final = 2
FILE: Final = "/etc/drainproof/facts/facts.json"
JOB: Final = subject.job("defied", "4h", grace=GRACE)


def observe(bench: Bench) -> Observation:
    """Takes the nodes without drainproof, and as soon as it knows of the NodePool with it."""
    with ThreadPoolExecutor() as pool:
        known = pool.submit(_known, bench)
        without = pool.submit(_deleted, bench, "Without drainproof", WITHOUT, "defied", None)
        waited = pool.submit(_waited, bench)
        found = known.result()
        with_stamp = _deleted(bench, "With drainproof", WITH, POOL, "DeletionByKarpenter")
        return found + without.result() + with_stamp + waited.result()


def _known(bench: Bench) -> Observation:
    """Makes a NodePool, and asks for Jobs on it once all of drainproof has had the chance to know."""
    bench.karpenter.add(node_pool(POOL, f"{LIMIT}s", consolidate_after="Never"))
    made = time.monotonic()
    facts = _facts(bench)
    _mounted(bench)
    took = time.monotonic() - made
    time.sleep(2 * Settings().reload_seconds)  # a change counts within these
    limit = f"{GRACE} is not below the {LIMIT}s of NodePool"
    bare, protected = (bench.ask(subject.job(POOL, value, grace=GRACE), WITH).warnings for value in (None, "4h"))
    return Observation(
        claims=(
            equal("drainproof-facts says of the NodePool", facts["nodepools"].get(POOL), f"{LIMIT}s"),
            equal("and of Karpenter", facts["karpenter"]["version"], NEWEST),
            *(
                contains(f"warning of {rule}", karpenter.warning(warnings, rule), limit)
                for rule, warnings in (("platform-limits", bare), ("do-not-disrupt", protected))
            ),
        ),
        figures=(Figure("from the NodePool to the facts of the webhook", took),),
    )


def _facts(bench: Bench) -> dict[str, Any]:
    """The facts document as soon as the NodePool stands in it. Raises RecordError."""
    words = ("get", "configmap", "drainproof-facts", "--namespace", NAMESPACE, "--ignore-not-found")
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        text = bench.ring.kubectl(*words, "-o", r"jsonpath={.data.facts\.json}").stdout
        if f'"{POOL}"' in text:
            found: dict[str, Any] = json.loads(text)
            return found
        time.sleep(LOOK_SECONDS)
    raise RecordError(f"NodePool {POOL} is not among the facts after {PATIENCE} s")


def _mounted(bench: Bench) -> None:
    """Returns as soon as the kubelet has brought them to every replica. Raises RecordError."""
    end = time.monotonic() + PATIENCE
    installation.poke(bench.ring)
    while not all(_has(bench, pod["metadata"]["name"]) for pod in installation.pods(bench.ring)):
        if time.monotonic() > end:
            raise RecordError(f"NodePool {POOL} has not come to every replica after {PATIENCE} s")
        time.sleep(LOOK_SECONDS)
        installation.poke(bench.ring)


def _has(bench: Bench, replica: str) -> bool:
    words = ("exec", replica, "--namespace", NAMESPACE, "--", "python", "-c", f"print(open({FILE!r}).read())")
    return f'"{POOL}"' in bench.ring.kubectl(*words, check=False).stdout


def _deleted(bench: Bench, title: str, namespace: str, name: str, disrupted: str | None) -> Observation:
    seen = experiments.forced(bench.setting(namespace), name, "4h", limit=LIMIT, grace=GRACE)
    return (
        forced.shown(bench, title, namespace, name, seen)
        + Observation(claims=forced.at_once(title, seen, LIMIT))
        + forced.counted(title, seen, disrupted)
    )


def _waited(bench: Bench) -> Observation:
    title = f'For comparison, "true" and a grace period of {SHORT} s'
    seen = experiments.forced(bench.setting(WITHOUT), "waited", "true", limit=LIMIT, grace=SHORT)
    return forced.shown(bench, title, WITHOUT, "waited", seen, karpenter.FOR_EVER) + Observation(
        claims=(
            # Karpenter looks at such a Pod again after 0.1, 0.2, 0.4 and so on up to 10 s (v1.15.0
            # terminator/eviction.go evictionQueueMaxDelay), so that it may be late even for the limit, and grant 1 s.
            between(f"{title}: told to go after", seen.after, LIMIT - SHORT - 2, LIMIT + 15, about="25 s or later"),
            between(f"{title}: with a grace of", seen.grace, 1, SHORT, about="what is left, or 1 s"),
            equal(f"{title}: DisruptionTarget", seen.disrupted or "none", "none"),
        ),
        figures=(Figure(f"{title}: told to go after", seen.after),),
    )


EXPERIMENT: Final = described(15, __doc__, observe=observe, manifest=JOB)
