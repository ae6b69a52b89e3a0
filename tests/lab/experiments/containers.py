"""Two hooks, and a native sidecar.

Two Pods are deleted: one has two containers, whose preStop hooks take 3 s and 7 s; the other has a native sidecar (an
init container with restartPolicy Always), whose hook takes 3 s, beside a program that needs 6 s to stop.

**Expected.** Hooks run side by side: the Pod with two of them has ended after 7 s, not after 10. The hook of a sidecar
begins at once too, but SIGTERM reaches it only when the main container has ended. Its exit code does not count.

**What it means.** The hooks of different containers are not to be added up, for each container has the whole grace
period; and a sidecar serves the main container to its end.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITHOUT, Bench
from tests.lab.experiment import Figure, Observation, Run, between, described, equal
from tests.lab.history import Container, Pod

SHORT: Final = 3
LONG: Final = 7
TASK: Final = 6
LATE: Final = 5  # seconds that a busy machine may take on top
SOON: Final = 5
EARLY: Final = -0.5  # the kubelet may learn of a deletion before we do
TIDIES: Final = "trap 'say SIGTERM; exit {}' TERM; say begins; sleep 600 & wait $!"

TWO: Final = program.bare(
    program.pod(
        [
            program.container(TIDIES.format(0), lifecycle=program.pre_stop(SHORT)),
            program.container(TIDIES.format(0), "other", lifecycle=program.pre_stop(LONG)),
        ],
        30,
    )
)
SIDECAR: Final = program.bare(
    program.pod(
        [program.container(program.works(600, f"sleep {TASK}; exit 0"))],
        30,
        initContainers=[
            program.container(TIDIES.format(7), "sidecar", restartPolicy="Always", lifecycle=program.pre_stop(SHORT))
        ],
    )
)


def observe(bench: Bench) -> Observation:
    """Deletes a Pod with two hooks, and one with a native sidecar."""
    with ThreadPoolExecutor() as pool:
        two, sidecar = pool.submit(_two, bench), pool.submit(_sidecar, bench)
        return two.result() + sidecar.result()


def _deleted(bench: Bench, document: dict[str, object], name: str) -> tuple[Pod, float]:
    trial = bench.start(document, WITHOUT, name)
    trial.until(lambda story: story.pods and _all_begun(story.pods[0]), "all containers run")
    trial.delete(trial.story.pods[0])
    trial.until(lambda story: story.pods[0].gone, "the Pod is gone")
    return trial.story.pods[0], trial.story.pods[0].asked or 0


def _all_begun(pod: Pod) -> bool:
    return len(pod.containers) == 2 and all(one.said("begins") is not None for one in pod.containers)


def _named(pod: Pod, name: str) -> Container:
    return next(one for one in pod.containers if one.name == name)


def _two(bench: Bench) -> Observation:
    pod, asked = _deleted(bench, TWO, "two-hooks")
    short, long = _named(pod, "main"), _named(pod, "other")
    last = max(one.ended or 0 for one in pod.containers) - asked
    apart = abs((short.pre_stop or (0, 0))[0] - (long.pre_stop or (0, 0))[0])
    return Observation(
        (_run(bench, pod, "Two containers with hooks of 3 s and 7 s", asked, last),),
        (
            between("the two hooks begin apart", apart, 0, 1.5, about="at the same time"),
            between(
                "SIGTERM where it takes 3 s", _since(short.term, asked), SHORT - 0.1, SHORT + LATE, about="about 3 s"
            ),
            between("SIGTERM where it takes 7 s", _since(long.term, asked), LONG - 0.1, LONG + LATE, about="about 7 s"),
            between("all has ended", last, LONG - 0.1, LONG + LATE, about="about 7 s, not 10 s"),
        ),
        (Figure("two hooks: all has ended", last),),
    )


def _sidecar(bench: Bench) -> Observation:
    pod, asked = _deleted(bench, SIDECAR, "native-sidecar")
    main, sidecar = _named(pod, "main"), _named(pod, "sidecar")
    hook, last = (sidecar.pre_stop or (None, None))[0], (sidecar.ended or 0) - asked
    after = sidecar.term - main.ended if sidecar.term and main.ended else None
    return Observation(
        (_run(bench, pod, "A native sidecar with a hook of 3 s", asked, last),),
        (
            between("the sidecar's hook begins", _since(hook, asked), EARLY, SOON, about="at once"),
            between("SIGTERM for the main container", _since(main.term, asked), EARLY, SOON, about="at once"),
            between("SIGTERM for the sidecar after the main one's end", after, -0.1, LATE, about="right after it"),
            equal("the sidecar exits", sidecar.code, 7),
            equal("and the Pod is all the same", pod.phase, "Succeeded"),
        ),
    )


def _run(bench: Bench, pod: Pod, title: str, asked: float, last: float) -> Run:
    return lane.run(title, bench.record.story(WITHOUT, pod.name), asked, end=asked + last + 1)


def _since(at: float | None, asked: float) -> float | None:
    return at - asked if at is not None else None


EXPERIMENT: Final = described(14, __doc__, observe=observe, manifest=SIDECAR)
