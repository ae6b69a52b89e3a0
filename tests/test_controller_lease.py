"""Who leads, and how parts go round: the clock is given, the API server is a dict."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.test_controller_secret import Memory
from webhook.controller.api import ApiError, Thing
from webhook.controller.lease import Lease, lease
from webhook.controller.metrics import QUIET_SECONDS, Complaints, metrics
from webhook.controller.part import ASKED_SECONDS, LONGEST_SECONDS, Rounds

THING = lease("here", "drainproof-controller")


class Clock:
    """A clock that is set by hand; where it starts says nothing, as with monotonic clocks of different machines."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def candidate(api: Memory, name: str, clock: Clock) -> Lease:
    return Lease(api, THING, name, 15, Complaints(metrics()), clock=clock)


def pair() -> tuple[Memory, Clock, Lease, Clock, Lease]:
    api, one, other = Memory(), Clock(1000), Clock(5)
    return api, one, candidate(api, "one", one), other, candidate(api, "other", other)


def test_the_first_leads_for_as_long_as_it_renews_and_the_other_stands_by() -> None:
    _, clock, first, other_clock, second = pair()
    for _ in range(20):
        first.round()
        second.round()
        assert (first.leads(), second.leads()) == (True, False)
        clock.at += 2
        other_clock.at += 2


def test_a_holder_that_is_gone_is_followed_after_the_seconds_that_the_other_saw_pass() -> None:
    api, _, first, clock, second = pair()
    first.round()
    second.round()
    clock.at += 14.9
    second.round()
    assert not second.leads()
    clock.at += 0.2
    second.round()
    assert second.leads()
    assert api.objects[THING]["spec"]["leaseTransitions"] == 2


def test_a_holder_stops_to_lead_before_another_may_begin() -> None:
    api, clock, first, _, _ = pair()
    first.round()
    api.refusals["get", THING] = 500
    clock.at += 9.9
    first.round()
    assert first.leads()
    clock.at += 0.2
    assert not first.leads()
    first.round()
    assert not first.problem()
    clock.at += 10
    first.round()
    assert first.problem() == "the Lease can neither be read nor written"
    api.refusals.clear()
    first.round()
    assert first.leads()
    assert not first.problem()


def test_times_written_by_a_clock_that_is_wrong_do_not_matter() -> None:
    api, _, _, clock, second = pair()
    past = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z"}
    api.keep(THING, {"spec": past})
    second.round()
    assert not second.leads()
    clock.at += 15
    second.round()
    assert second.leads()


def test_of_two_that_write_at_once_one_is_refused() -> None:
    api, _, first, _, second = pair()

    class Late(Memory):
        def get(self, thing: Thing, form: str = "") -> dict[str, Any] | None:
            found = api.get(thing, form)
            second.round()
            return found

        def put(self, thing: Thing, body: Any) -> dict[str, Any]:
            return api.put(thing, body)

    first.api = Late()
    first.round()
    assert second.leads()
    assert not first.leads()


def test_a_lease_that_is_given_up_is_free_at_once_and_one_of_another_is_not_given_up() -> None:
    api, clock, first, _, second = pair()
    first.round()
    second.release()
    assert api.objects[THING]["spec"]["holderIdentity"] == "one"
    lost: list[int] = []
    first.on_lost = lambda: lost.append(1)
    first.release()
    assert not first.leads()
    assert lost == [1]
    second.round()
    assert second.leads()
    clock.at += 3
    first.round()
    assert not first.leads()


def test_a_lease_that_is_taken_away_or_deleted() -> None:
    api, clock, first, _, _ = pair()
    lost: list[int] = []
    first.on_lost = lambda: lost.append(1)
    first.round()
    api.keep(THING, {**api.objects[THING], "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}})
    clock.at += 2
    first.round()
    assert not first.leads()
    assert lost == [1]
    del api.objects[THING]
    first.round()
    assert first.leads()


def test_it_runs_until_it_is_told_to_stop_and_gives_the_lease_up() -> None:
    api, stop = Memory(), threading.Event()
    election = Lease(api, THING, "one", 15, Complaints(metrics()))
    thread = threading.Thread(target=election.run, args=(stop,))
    thread.start()
    while not election.leads():
        time.sleep(0.01)
    assert election.alive()
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert api.objects[THING]["spec"]["holderIdentity"] is None


def test_a_lease_that_cannot_be_given_up_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    api, _, first, _, _ = pair()
    first.round()
    api.refusals["update", THING] = 403
    first.release()
    assert caplog.messages == ["call to the API server failed"]


def rounds(once: Callable[[], bool], leads: bool = True) -> Rounds:
    return Rounds("part", once, 5.0, lambda: leads, Complaints(metrics()))


def failing(error: Exception) -> Callable[[], bool]:
    def once() -> bool:
        raise error

    return once


def test_rounds_come_at_their_pace_and_sooner_after_a_change_but_ever_more_slowly_if_each_one_changes_something() -> (
    None
):
    assert 4.5 <= rounds(lambda: False).round() <= 5.5
    busy = rounds(lambda: True)
    assert busy.round() <= 0.1
    assert [busy.round() for _ in range(20)][-1] == 5.0


@pytest.mark.parametrize("status", [0, 403, 404, 409, 410, 429, 500, 503])
def test_errors_are_one_line_each_and_tries_come_less_often(status: int, caplog: pytest.LogCaptureFixture) -> None:
    part = rounds(failing(ApiError("get", THING, status, "no\n way", retry_after=0)))
    pauses = [part.round() for _ in range(8)]
    assert 2.5 <= pauses[0] <= 5
    assert min(pauses[2:]) >= LONGEST_SECONDS / 2
    assert max(pauses) <= LONGEST_SECONDS
    assert part.problem().startswith("get leases here/drainproof-controller: ")
    assert part.problem().endswith("no way")
    [record] = caplog.records
    assert record.exc_info is None
    assert record.levelno == (logging.ERROR if status == 403 else logging.WARNING)
    assert part.complaints.metrics.errors.labels("get", "leases", str(status))._value.get() == 8
    part.once = lambda: False
    caplog.set_level("INFO", "drainproof")
    part.round()
    assert part.problem() == ""
    assert caplog.messages[-1] == "part goes on"


def test_what_the_server_asks_to_wait_is_waited_but_not_for_ever() -> None:
    assert rounds(failing(ApiError("get", THING, 429, "", retry_after=30))).round() == 30
    assert rounds(failing(ApiError("get", THING, 429, "", retry_after=9999))).round() == ASKED_SECONDS


def test_the_same_error_is_told_again_after_a_minute_and_another_at_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    complaints = Complaints(metrics(), clock)
    for status, at in [(403, 0), (403, 1), (404, 2), (403, QUIET_SECONDS + 1)]:
        clock.at = at
        complaints.about("part", ApiError("get", THING, status, "x"))
    assert [record.__dict__["fields"]["status"] for record in caplog.records] == [403, 404, 403]


def test_a_fault_of_ours_is_logged_with_its_trace_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    part = rounds(failing(KeyError("x")))
    assert part.round() > 0
    assert part.problem() == "KeyError('x')"
    assert caplog.records[0].exc_info


def test_who_does_not_lead_stands_by_and_is_well() -> None:
    part = rounds(failing(KeyError("x")), leads=False)
    stop = threading.Event()
    thread = threading.Thread(target=part.run, args=(stop,))
    thread.start()
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert part.problem() == ""
    assert part.alive()
