"""Removes what drainproof has in a cluster, in the order in which nothing is made again and nobody waits in vain."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.uninstall import contents, kinds, ownership
from webhook.uninstall.account import Account
from webhook.uninstall.kinds import Kind
from webhook.uninstall.survey import Found, survey

POLL_SECONDS: Final = 1.0
_SAID_SECONDS: Final = 15.0  # between two lines about the same wait
_SHOWN: Final = 5  # objects that a line names
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Removal:
    """One removal; `seconds` bounds each wait. What fails is told to `account`, and the rest goes on."""

    api: Api
    namespace: str
    account: Account
    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def everything(self, secret: str, keep_namespace: bool) -> None:
        """Removes all that is ours; `secret` is the name of the Secret with the serving certificate."""
        self.of(kinds.CONFIGURATIONS)
        before = self.account.problems
        self.of([kinds.DEPLOYMENTS])
        if self.account.problems == before and not self.account.is_dry:
            self._wait("the controller ends", self._running)  # until then it can make its Secrets again
        self.of(kinds.rest(secret))
        if not keep_namespace:
            self._home()

    def of(self, some: Iterable[Kind], by_name: bool = False) -> None:
        """Removes what there is of some kinds."""
        for one in survey(self.api, some, self.namespace, by_name):
            if isinstance(one, ApiError):
                self.account.could_not(one)
            elif one.stays:
                self.account.stays(one.thing, one.stays)
            else:
                self._remove(one)

    def _remove(self, found: Found) -> bool:
        """Whether the removal was begun."""
        if self.account.is_dry:
            self.account.is_removed(found.thing, found.uid)
            return True
        try:
            answer = self.api.delete(found.thing, found.uid)
        except ApiError as error:
            if error.status != 404:  # somebody was faster
                self.account.could_not(error)
                return False
            answer = {}
        metadata = answer.get("metadata") or {}
        if metadata.get("deletionTimestamp") and (finalizers := metadata.get("finalizers")):
            self.account.lasts(found.thing, f"it is removed once these finalizers let it: {', '.join(finalizers)}")
            self.account.gone[found.thing] = found.uid
        else:
            self.account.is_removed(found.thing, found.uid)
        return True

    def _home(self) -> None:
        """Removes the namespace, if it is ours and holds nothing else."""
        thing = kinds.NAMESPACES.place("", self.namespace)
        try:
            body = self.api.get(thing)
            if body is None:
                return
            why = self._keeps(body)
        except ApiError as error:
            self.account.could_not(error)
            self.account.stays(thing, "what is in it could not be looked at")
            return
        if why:
            self.account.stays(thing, why)
        elif self._remove(Found(thing, body)) and not self.account.is_dry:
            self._wait("the namespace is gone", lambda: [thing] if self.api.get(thing) else [])

    def _keeps(self, body: dict[str, Any]) -> str:
        """Why a namespace has to stay; empty where it can go. Raises ApiError."""
        if body["metadata"].get("deletionTimestamp"):
            return ""
        if not ownership.is_labelled(body):
            return f"it does not carry the label {ownership.SELECTOR}, so that it was made for more than drainproof"
        left = [str(one) for one in contents.others(self.api, self.namespace, self.account.gone)]
        return f"it holds what is not ours: {_some(left)}" if left else ""

    def _running(self) -> list[Thing]:
        """The Pods of the controller that have not ended."""
        place = Thing("/api/v1", "pods", namespace=self.namespace)
        pods = self.api.items(place, ownership.CONTROLLERS)
        running = (one for one in pods if (one.get("status") or {}).get("phase") not in _ENDED)
        return [Thing("/api/v1", "pods", str(one["metadata"]["name"]), self.namespace) for one in running]

    def _wait(self, what: str, left: Callable[[], list[Thing]]) -> None:
        """Waits until nothing is left, and says so now and then; it is a failure when that takes too long."""
        began, said = self.clock(), -math.inf
        while found := self._asked(left):
            now = self.clock()
            if now >= began + self.seconds:
                for thing in found:
                    self.account.lasts(thing, f"{self.seconds:g} s were not enough until {what}")
                return
            if now >= said + _SAID_SECONDS:
                self.account.say(f"waiting until {what}, for at most {self.seconds:g} s: {_some(map(str, found))}")
                said = now
            self.sleep(POLL_SECONDS)

    def _asked(self, left: Callable[[], list[Thing]]) -> list[Thing]:
        try:
            return left()
        except ApiError as error:
            self.account.could_not(error)
            return []


def _some(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
