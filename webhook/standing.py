"""What a running server stands on: its certificate, its policy and the facts for it, each as new as its files."""

import asyncio
import time
from typing import Any

from webhook import observe, tls
from webhook.core.ruleset import Facts, Policy
from webhook.metrics import Metrics, Reloads
from webhook.server import State
from webhook.watched import Change, Watched


class Standing:
    """Keeps `state`, by which the application goes, as new as the files.

    The policy in force has the facts that are known in it. It is replaced as a whole, never changed; whatever a file
    comes to hold, what was good last stays in force.
    """

    def __init__(
        self,
        serving: tls.Serving,
        policy: Policy | Watched[Policy],
        facts: Watched[Facts] | None,
        metrics: Metrics,
        known_clients_only: bool = False,
    ) -> None:
        self._serving = serving
        self._given = policy
        self._facts = facts
        self._metrics = metrics
        self._files: list[tuple[str, Watched[Any], Reloads]] = []
        metrics.expiry.set_function(lambda: serving.expires)
        metrics.policy.generation.set(1)
        metrics.policy.loaded.set(policy.loaded if isinstance(policy, Watched) else time.time())
        if isinstance(policy, Watched):
            self._files.append(("policy", policy, metrics.policy))
        if facts:
            self._files.append(("facts", facts, metrics.facts))
            self._tell("facts", facts, metrics.facts, facts.reload())
        self.state = State(self._policy(), self.certificate_problem, self.remarks, known_clients_only)

    async def keep_up(self, seconds: float) -> None:
        """Looks for ever, so that a change is in force within `seconds`: it has to be found by two looks."""
        while True:
            await asyncio.sleep(seconds / 2)
            try:
                await self.look()
            except Exception:  # a fault of ours that must not end the looking
                observe.LOG.exception("files not looked at")

    async def look(self) -> None:
        """Takes over what is new in the files. Reading a policy takes a while, and goes on beside the reviews."""
        self._look_at_certificate()
        for name, file, reloads in self._files:
            change = await asyncio.to_thread(file.reload)
            if change == "swapped":
                self.state.policy = self._policy()
            self._tell(name, file, reloads, change)

    def certificate_problem(self) -> str:
        """What is wrong with the certificate served, once a good pair on disk, if there is another, is served.

        Looking first, readiness does not depend on when the last look was: a replica that is ready never serves
        another certificate than the good one on disk, and one that fails to take it over answers 500.
        """
        self._look_at_certificate()
        return self._serving.problem()

    def remarks(self) -> dict[str, str]:
        """What there is to say, by name, of each of them while it serves."""
        remarks = {
            "policy": "ok, the default policy",
            "certificate": "; ".join(filter(None, ("ok", self._serving.remark()))),
        }
        for name, file, _ in self._files:
            number, remark = f"generation {file.generation}" if file.generation else "", file.remark()
            remarks[name] = f"{number or 'none'} is in force; {remark}" if remark else f"ok, {number or 'none yet'}"
        return remarks

    def _policy(self) -> Policy:
        policy = self._given.value if isinstance(self._given, Watched) else self._given
        assert policy is not None, "a server starts only with a policy"
        known = self._facts.value if self._facts else None
        return policy.with_facts(known) if known else policy

    def _look_at_certificate(self) -> None:
        change = self._serving.reload()
        observe.reloaded("certificate", self._serving, change, expires=self._serving.expires)
        if self._serving.remark():
            self._metrics.reload_failures.inc()

    def _tell(self, name: str, file: Watched[Any], reloads: Reloads, change: Change) -> None:
        told = {"file": str(file.path), "generation": file.generation, "problems": file.problems}
        observe.reloaded(name, file, change, **told)
        if change == "swapped":
            reloads.generation.set(file.generation)
            reloads.loaded.set(file.loaded)
        if change in ("swapped", "broken"):
            reloads.total.labels("loaded" if change == "swapped" else "refused").inc()
