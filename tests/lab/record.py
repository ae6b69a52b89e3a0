"""A record of all that happens in a cluster: watches of its API, what its container runtime does, what programs say.

One clock for everything, that of the machine since it was started, which programs read in /proc/uptime.
"""

import json
import math
import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from tests.cluster import process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import Process
from tests.lab import history
from tests.lab.history import Act, Pod, Seen, Story, Word
from tests.node.configuration import SOCKET
from tests.node.ring import Ring

PATHS: Final = {
    "pods": "/api/v1/pods",
    "jobs": "/apis/batch/v1/jobs",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/events",
}
LOOK_SECONDS: Final = 0.1
SAID: Final = re.compile(r"\S+ stdout F (\d+\.\d+) (.+)")  # what containerd writes for a line, and what programs say
Found = TypeVar("Found")


class RecordError(Exception):
    """A record that has a gap, or something that did not come; the text says what."""


@dataclass(frozen=True)
class Record:
    """What was seen so far. Only `recording` adds to it."""

    offset: float = field(default_factory=lambda: time.time() - now())  # what the wall clock is ahead
    pods: dict[str, list[Seen]] = field(default_factory=dict)  # by uid, in the order of their creation
    jobs: dict[tuple[str, str], list[Seen]] = field(default_factory=lambda: defaultdict(list))
    nodes: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))  # by their names
    events: list[Seen] = field(default_factory=list)
    words: dict[str, list[Word]] = field(default_factory=lambda: defaultdict(list))  # by the Pod's uid
    acts: dict[str, list[Act]] = field(default_factory=lambda: defaultdict(list))  # by the container's id
    gaps: list[str] = field(default_factory=list)

    def story(self, namespace: str, name: str) -> Story:
        """What became of a Job until it was removed, or of a bare Pod."""
        jobs = tuple(self.jobs.get((namespace, name), ()))
        told = next((seen.at for seen in jobs if seen.gone), now())
        found = [uid for uid, seen in list(self.pods.items()) if _belongs(seen[0].object, namespace, name)]
        pods = tuple(self.pod(uid, told) for uid in found if self.pods[uid][0].at <= told)
        return Story(name, pods, jobs, told)

    def nodes_of(self, story: Story) -> dict[str, tuple[Seen, ...]]:
        """What was seen of the nodes of a Job's Pods, by their names, in the order in which they had a Pod."""
        names = dict.fromkeys(pod.node for pod in story.pods if pod.node)
        return {name: tuple(one for one in list(self.nodes.get(name, ())) if one.at <= story.told) for name in names}

    def pod(self, uid: str, until: float = math.inf) -> Pod:
        """What became of a Pod, as the API told of it until then."""
        seen = tuple(one for one in list(self.pods[uid]) if one.at <= until)
        return history.pod(seen, tuple(self.words.get(uid, ())), dict(self.acts))

    def until(self, found: Callable[[], Found | None], what: str, seconds: float) -> Found:
        """What `found` returns as soon as it is true. Raises RecordError after `seconds`, and for a gap."""
        deadline = now() + seconds
        while not (value := found()):
            if self.gaps:
                raise RecordError(f"the record has a gap: {'; '.join(self.gaps)}")
            if now() > deadline:
                raise RecordError(f"{what}: it did not come within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)
        return value

    def on_this_clock(self, written: str) -> float:
        """A time that Kubernetes wrote, as RFC 3339 in UTC, on the clock of the record."""
        return datetime.fromisoformat(written).timestamp() - self.offset


def now() -> float:
    """Seconds since this machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _belongs(pod: Any, namespace: str, name: str) -> bool:
    metadata = pod["metadata"]
    owner: str = metadata.get("labels", {}).get(history.OWNER, metadata["name"])
    return (metadata["namespace"], owner) == (namespace, name)


@contextmanager
def recording(plane: ControlPlane, ring: Ring | None = None) -> Iterator[Record]:
    """Keep a record of a control plane and, where it has one, of its node, until it is left."""
    record = Record()
    ending = threading.Event()
    with ExitStack() as stack:
        for kind, path in PATHS.items():
            command = [str(plane.programs["kubectl"].path), "get", "--raw", f"{path}?watch=true"]
            _follow(record, ending, command, _taking(record, kind), stack, dict(plane.environment))
        if ring:
            words = [str(ring.programs["ctr"].path), f"--address={SOCKET}", "--namespace=k8s.io", "events"]
            _follow(record, ending, [*ring.enter, *words], lambda line: _take_act(record, line), stack)
            thread = threading.Thread(target=_listen, args=(record, ring.pod_logs, ending), daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(record.gaps.append, "it is over")  # who still waits for something need not
        stack.callback(ending.set)
        yield record


def _follow(
    record: Record,
    ending: threading.Event,
    command: Sequence[str],
    take: Callable[[str], None],
    stack: ExitStack,
    environment: dict[str, str] | None = None,
) -> None:
    """Take each line that a program prints, in a thread of its own."""
    popen = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )

    def read() -> None:
        assert popen.stdout is not None
        with popen.stdout:
            for line in popen.stdout:
                take(line.decode())
        if not ending.is_set():
            record.gaps.append(f"{' '.join(command[-3:])} ended")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(process.stop, Process(command[0], popen, Path()), seconds=1)


def _taking(record: Record, kind: str) -> Callable[[str], None]:
    def take(line: str) -> None:
        event = json.loads(line)
        found, metadata = event["object"], event["object"].get("metadata", {})
        seen = Seen(now(), found, event["type"] == "DELETED")
        if event["type"] == "ERROR":
            record.gaps.append(f"watch of {kind}: {found.get('message')}")
        elif kind == "pods":
            record.pods.setdefault(metadata["uid"], []).append(seen)
        elif kind == "jobs":
            record.jobs[metadata["namespace"], metadata["name"]].append(seen)
        elif kind == "nodes":
            record.nodes[metadata["name"]].append(seen)
        else:
            record.events.append(seen)

    return take


def _take_act(record: Record, line: str) -> None:
    """One event of containerd: DATE TIME ZONE NAME NAMESPACE TOPIC JSON."""
    date, clock, _, _, _, topic, told = line.split(" ", 6)
    event = json.loads(told)
    if topic in ("/tasks/start", "/tasks/exec-started"):
        at = record.on_this_clock(f"{date}T{clock[:8]}+00:00") + float(
            f"0{clock[8:]}"
        )  # Go leaves out zeros at the end
        record.acts[event["container_id"]].append(Act(at, event.get("exec_id", event["container_id"])))
    elif topic == "/tasks/exit":
        ended = event["exited_at"]
        at = ended["seconds"] + ended.get("nanos", 0) / 1e9 - record.offset
        record.acts[event["container_id"]].append(Act(at, event["id"], event.get("exit_status", 0)))


def _listen(record: Record, folder: Path, ending: threading.Event) -> None:
    """Read the logs of all containers as they grow; an open one is read on when the kubelet has removed it."""
    opened: dict[Path, BinaryIO] = {}
    rests: dict[Path, bytes] = defaultdict(bytes)
    while not ending.wait(LOOK_SECONDS):
        for path in _logs(folder):
            if path not in opened:
                try:
                    opened[path] = path.open("rb")
                except FileNotFoundError:
                    record.gaps.append(f"{path.name} of {path.parent.parent.name} was gone before it was read")
        for path, file in opened.items():
            *lines, rests[path] = (rests[path] + file.read()).split(b"\n")
            for line in lines:
                _take_word(record, path, line.decode())
    for file in opened.values():
        file.close()


def _logs(folder: Path) -> list[Path]:
    """The logs that there are; none where the kubelet removes some just now, for the next look is soon."""
    try:
        return list(folder.glob("*/*/*.log"))
    except FileNotFoundError:  # as Python before 3.13 has it
        return []


def _take_word(record: Record, path: Path, line: str) -> None:
    """One line of NAMESPACE_POD_UID/CONTAINER/RESTART.log."""
    said = SAID.fullmatch(line)
    if said:
        uid = path.parent.parent.name.rpartition("_")[2]
        record.words[uid].append(Word(float(said[1]), path.parent.name, int(path.stem), said[2]))
