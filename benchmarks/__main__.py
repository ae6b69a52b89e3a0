"""Prints what one decision costs on this machine, beside reading the same bytes as JSON, and how that grows.

Every figure is a median in microseconds of one process and one run: compare ratios, not figures of two machines.
"""

import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

from webhook import review
from webhook.core import engine, policy
from webhook.rules import RULES

CASES: Final = Path(__file__).parents[1] / "tests" / "cases" / "reviews"
TYPICAL: Final = "027-failjob-notin-exit-codes.0.mutate.json"  # a Job with a policy of its own, which is mended
SECONDS: Final = 0.7  # for each figure
SIZES: Final = (2_000, 20_000, 200_000, 1_500_000)  # bytes of the object; etcd takes about 1.5 MB


def median(action: Callable[[], Any], seconds: float = SECONDS) -> float:
    """Microseconds of one call: the median of as many calls as fit into `seconds`, at least 5, after a warm-up."""
    action()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def grown(request: dict[str, Any], size: int) -> bytes:
    """A review whose Job has `size` bytes, made of what real ones are made of: environment variables."""
    grown = copy.deepcopy(request)
    container = grown["request"]["object"]["spec"]["template"]["spec"]["containers"][0]
    room = size - len(orjson.dumps(grown["request"]["object"]))
    container["env"] = [{"name": f"SETTING_{i:06}", "value": "x" * 60} for i in range(max(room, 0) // 97)]
    return orjson.dumps(grown)


def rows(request: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each size of object: what evaluating costs, what all of it costs, and what reading JSON costs."""
    shipped = policy.default(RULES)
    for size in SIZES:
        body = grown(request, size)
        document = orjson.loads(body)["request"]["object"]
        evaluate = median(lambda document=document: engine.mutate(document, shipped))  # type: ignore[misc]
        judge = median(lambda document=document: engine.validate(document, shipped))  # type: ignore[misc]
        whole = median(lambda body=body: review.decide(body, shipped, "mutate"))  # type: ignore[misc]
        loads = median(lambda body=body: orjson.loads(body))  # type: ignore[misc]
        standard = median(lambda body=body: json.loads(body))  # type: ignore[misc]
        actual = len(orjson.dumps(document))
        yield (
            f"{actual:,}",
            f"{evaluate:.0f}",
            f"{judge:.0f}",
            f"{whole:.0f}",
            f"{loads:.0f}",
            f"{standard:.0f}",
            f"{whole / standard:.2f}",
            f"{whole / actual * 1000:.1f}",
        )


def main() -> None:
    """Prints the table."""
    request = json.loads((CASES / TYPICAL).read_text())
    console = Console(highlight=False, width=None if Console().is_terminal else 110)
    typical = request["request"]["object"]
    shipped = policy.default(RULES)
    console.print(f"One captured AdmissionReview of a Job ({len(orjson.dumps(typical)):,} bytes), median microseconds:")
    console.print(f"  evaluate for /mutate    {median(lambda: engine.mutate(typical, shipped)):6.0f}   aim: below 100")
    console.print(f"  evaluate for /validate  {median(lambda: engine.validate(typical, shipped)):6.0f}")
    body = orjson.dumps(request)
    console.print(f"  bytes to bytes, /mutate {median(lambda: review.decide(body, shipped, 'mutate')):6.0f}\n")
    table = Table("object, bytes", "mutate", "validate", "bytes to bytes", "orjson reads", "json reads", box=None)
    table.add_column("bytes to bytes / json reads")
    table.add_column("us per 1,000 bytes")
    for column in table.columns:
        column.justify = "right"
    for row in rows(request):
        table.add_row(*row)
    console.print("The same Job with more and more environment variables, median microseconds:")
    console.print(table)


if __name__ == "__main__":
    main()
