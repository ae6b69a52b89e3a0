"""What a kubelet evicts by itself.

Four Jobs have an injected policy. One fills an emptyDir beyond its sizeLimit, another one its file system beyond its
limit of ephemeral-storage. Then the node runs short of memory, and the Pod of the lowest priority, which has taken most
of it, exits 0 when it is stopped. At last the node is shut down.

**Expected.** A Pod that breaks a limit of its own carries no DisruptionTarget and counts as failed. A Pod that goes
because its node is short of memory or shuts down carries it, with the reason TerminationByKubelet, and is ignored. If
it exits 0, it is a matter of moments whether the kubelet reports it as Failed (Evicted) or as Succeeded; guarded, it
is stored as Failed either way. For an eviction the kubelet gives about 2 s, whatever the grace period is, and for a
shutdown what its configuration has for it.

**What it means.** A limit is a contract with the program, and breaking it uses up backoffLimit; what the node does to
its Pods does not. An eviction by the kubelet leaves 2 s, for which no preStop hook and no grace period can make up:
save work as you go.

What this machine does not allow: there is no systemd beside this kubelet, so a stand-in for systemd-logind announced
the shutdown over D-Bus, and all that followed was the kubelet's own doing. The node was cordoned before, as the taint
of a node that is not ready would do in a cluster with a node lifecycle controller. That memory was short was the doing
of a high threshold (the machine itself had enough), and pressure on the disk and on process numbers was left out, for
those are the whole machine's, on which other things run.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.lab import lane, program
from tests.lab.bench import WITH, Bench
from tests.lab.experiment import Claim, Figure, Observation, between, described, equal
from tests.lab.history import Story
from tests.lab.node import CRITICAL_SECONDS, LOWEST, PRESSURE_KIB, SHUTDOWN_SECONDS

GRACE: Final = 60
IGNORES: Final = "trap 'say SIGTERM; sleep 50; exit 0' TERM; say begins; {}; sleep 600 & wait $!"
FILLS: Final = "dd if=/dev/zero of={}/filled bs=1M count=20 2> /dev/null; say has filled"
# 1.37.2 pkg/kubelet/eviction/eviction_manager.go immediateEvictionGracePeriodSeconds is 1, and kuberuntime_manager.go
# minimumGracePeriodInSeconds 2.
AT_ONCE: Final = 2
LATE: Final = 5
EATEN_MIB: Final = PRESSURE_KIB // 1024 * 5 // 4
# Under pressure a kubelet takes no Pod that asks for no memory; the replacement asks for some, and is not told to eat.
EATS: Final = (
    "trap 'say SIGTERM; exit 0' TERM; say begins; until [ -e /tmp/hungry ]; do sleep 0.2; done; say eats; "
    f"{{ head -c {EATEN_MIB}m /dev/zero; sleep 600; }} | tail > /dev/null & wait $!"
)
MODEST: Final = {"requests": {"memory": "8Mi"}}
VOLUME: Final = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "4Mi"}}]}
MOUNT: Final = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
LIMIT: Final = {"resources": {"limits": {"ephemeral-storage": "4Mi"}}}


def _job(script: str, pod: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return program.job(program.pod([program.container(script, **more)], GRACE, **pod))


EMPTY_DIR: Final = _job(IGNORES.format(FILLS.format("/scratch")), VOLUME, **MOUNT)
EPHEMERAL: Final = _job(IGNORES.format(FILLS.format("/tmp")), {}, **LIMIT)
HUNGRY: Final = _job(EATS, {"priorityClassName": LOWEST["metadata"]["name"]}, resources=MODEST)
SHUT_DOWN: Final = _job("trap 'say SIGTERM; sleep 5; exit 143' TERM; say begins; sleep 600 & wait $!", {})


def limits(bench: Bench) -> Observation:
    """Two Pods that use more storage than they may."""
    with ThreadPoolExecutor() as pool:
        volume = pool.submit(_over_limit, bench, EMPTY_DIR, "over-size-limit", "sizeLimit of an emptyDir")
        storage = pool.submit(_over_limit, bench, EPHEMERAL, "over-storage", "limit of ephemeral-storage")
        return volume.result() + storage.result()


def _over_limit(bench: Bench, document: dict[str, Any], name: str, title: str) -> Observation:
    trial = bench.start(document, WITH, name)
    trial.has_ended()
    story = trial.until(lambda story: story.count("failed"), "the Pod is counted")
    trial.end()
    pod, term = story.pods[0], _term(story)
    killed = pod.main.killed if pod.main else None
    return Observation(
        (lane.run(f"Over the {title}", story, term, end=term + 8),),
        (
            equal(f"{title}: the Pod is", pod.state, "Failed (Evicted)"),
            equal(f"{title}: DisruptionTarget", pod.disruption, "none"),
            equal(f"{title}: failed", story.count("failed"), 1),
            between(
                f"{title}: SIGKILL after SIGTERM, with a grace period of {GRACE} s",
                killed - term if killed else None,
                AT_ONCE - 0.6,
                AT_ONCE + LATE,
                about="about 2 s",
            ),
        ),
    )


def pressure_and_shutdown(bench: Bench) -> Observation:
    """A node that is short of memory, and then one that shuts down, after which the bench is of no more use."""
    return _pressure(bench) + _shutdown(bench)


def _pressure(bench: Bench) -> Observation:
    trial = bench.start(HUNGRY, WITH, "hungry")
    trial.run(trial.has_begun(), "touch", "/tmp/hungry")
    trial.has_begun(2)
    story = trial.end()
    pod, term = story.pods[0], _term(story)
    return Observation(
        (lane.run("Memory pressure; the program exits 0, and is guarded", story, term),),
        (
            equal("memory pressure: DisruptionTarget", pod.disruption, "TerminationByKubelet"),
            Claim("memory pressure: the Pod that exited 0 is", "Failed", pod.state, pod.phase == "Failed"),
            _not_counted("memory pressure", story),
        ),
    )


def _shutdown(bench: Bench) -> Observation:
    trial = bench.start(SHUT_DOWN, WITH, "shut-down")
    trial.has_begun()
    # As the taint of a node that is not ready would, it keeps the replacement away from the node that goes.
    bench.ring.kubectl("cordon", bench.ring.node)
    bench.logind.announce()
    trial.until(lambda story: len(story.pods) > 1, "a new Pod")
    released = bench.logind.released.wait(SHUTDOWN_SECONDS)
    story = trial.end()
    pod, term = story.pods[0], _term(story)
    stop = pod.main.ended - term if pod.main and pod.main.ended else None
    budget = SHUTDOWN_SECONDS - CRITICAL_SECONDS
    return Observation(
        (lane.run("Node shutdown", story, term),),
        (
            equal("node shutdown: DisruptionTarget", pod.disruption, "TerminationByKubelet"),
            between("node shutdown: exit after SIGTERM", stop, 4.9, budget, about=f"5 s, of {budget} s at most"),
            _not_counted("node shutdown", story),
            equal(f"node shutdown: the kubelet lets go within {SHUTDOWN_SECONDS} s", released, True),
        ),
        (Figure("node shutdown: exit after SIGTERM", stop or 0),),
    )


def _term(story: Story) -> float:
    main = story.pods[0].main
    return (main.term if main else None) or story.pods[0].ended or 0


def _not_counted(what: str, story: Story) -> Claim:
    """Seen once there is a new Pod, and so after the old one was counted or ignored."""
    return equal(f"{what}: failed", story.count("failed"), 0)


EXPERIMENT: Final = described(8, __doc__, observe=limits, alone=pressure_and_shutdown, manifest=EMPTY_DIR)
