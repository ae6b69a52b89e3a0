"""One deletion of a Pod: the core decides, one call to the API server stamps the Pod, and the deletion is allowed.

Whatever goes wrong, it is allowed as it came: a stamp that is missing costs a retry, a deletion that is refused keeps a
node that has to go.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.metrics import Complaints, Metrics
from webhook.core import stamp
from webhook.core.patch import at
from webhook.core.ruleset import Policy
from webhook.core.verdict import Verdict
from webhook.observe import LOG, said
from webhook.review import Request, judge, parse, respond

PART: Final = "stamp"  # as logs call it
WORKERS: Final = 8  # stamps that are stored at once
CALL_SECONDS: Final = 2.0  # for the API server to store a stamp
ANSWER_SECONDS: Final = 2.5  # for the same and for waiting until it is its turn; the API server gives up after 3


@dataclass(frozen=True, slots=True)
class Desk:
    """Answers deletions. `policy` gives the one in force, or None as long as there is none."""

    api: Api
    policy: Callable[[], Policy | None]
    metrics: Metrics
    complaints: Complaints
    workers: Executor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix=PART))
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def answer(self, body: bytes) -> bytes:
        """The answer to a review, which always allows. Raises ReviewError where the bytes are none."""
        began = time.perf_counter()
        request = parse(body)
        try:
            verdict = self._judged(request)
            outcome, reason = await self._done(request, verdict)
            answer = respond(request, verdict if outcome != "failed" else Verdict(request.object), "stamp")
        except Exception as error:  # a fault of ours
            LOG.exception("deletion not decided", extra={"fields": {"uid": request.uid}})
            outcome, reason = "failed", repr(error)
            answer = respond(request, Verdict(request.object), "stamp")
        self.metrics.stamps.labels(outcome).inc()
        said(
            "deletion reviewed",
            uid=request.uid,
            namespace=request.namespace,
            name=request.name,
            user=request.user,
            dryRun=request.dry_run,
            outcome=outcome,
            reason=reason,
            ms=round((time.perf_counter() - began) * 1000, 3),
        )
        return answer

    def _judged(self, request: Request) -> Verdict:
        policy = self.policy()
        return judge(request, policy, "stamp") if policy else Verdict(request.object, left="no policy")

    async def _done(self, request: Request, verdict: Verdict) -> tuple[str, str]:
        """What comes of a verdict, in a word that is counted, and why it is not that the Pod is stamped."""
        if not verdict.steps:
            return "left", verdict.left
        if verdict.monitored:
            return "left", "monitor"
        if request.dry_run:
            return "dry-run", ""
        try:
            await self._stamp(request)
        except ApiError as error:
            self.complaints.about(PART, error, apart=False)
            return "failed", str(error)
        return "stamped", ""

    async def _stamp(self, request: Request) -> None:
        """Stores the condition, in a thread, for the call blocks. Raises ApiError, also where it takes too long."""
        namespace, name = (str(at(request.old, ("metadata", key)) or "") for key in ("namespace", "name"))
        pod = Thing("/api/v1", "pods", name, namespace or request.namespace, "status")
        change = stamp.patch(request.old, request.user, self.now())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.run_in_executor(self.workers, self.api.strategic, pod, change, CALL_SECONDS)
        except TimeoutError:
            raise ApiError("patch", pod, 0, f"it is not done after {ANSWER_SECONDS:g} seconds") from None
