"""A program that is stopped with its work undone must not exit with 0.

With a podFailurePolicy (and with podReplacementPolicy Failed, which comes with it) a Pod that ends with exit
code 0 counts as a success, whoever stopped it. A program that catches SIGTERM, tidies up and exits 0 makes its
Job Complete, and nobody is told that the work is unfinished. No field of the object shows what the program
does, so this rule asks its author to declare it.

Declare `drainproof.dev/exit-contract: nonzero-when-stopped` when the program exits with another code than 0
after it was stopped with work left, or `drainproof.dev/exit-contract: guard` when it may exit 0 and its Pods
are to be guarded. Jobs into which a policy is injected are marked as guarded, so only Jobs with a policy of
their own are asked. `drainproof probe` runs the program, stops it as a kubelet would, and says what it did. A
visible `trap '… exit 0' TERM` is warned about whatever is declared.

**Limits.** What is declared is believed. A trap in a script of the image cannot be seen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from webhook.core import failurepolicy
from webhook.core.declaration import EXIT_CONTRACT
from webhook.core.failurepolicy import Plan
from webhook.core.guard import MARK, ON, RULE_ID
from webhook.core.patch import entries
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.workload import BATCH, PREFIX, Workload

CONTRACTS: Final = failurepolicy.CONTRACTS
# A trap whose last command is `exit 0`, on SIGTERM: in quotes, then the names or numbers of signals.
_TRAP: Final = re.compile(
    r"""trap\s+(?:--\s+)?(['"])(?:(?!\1).)*?\bexit\s+0\s*;?\s*\1(?:\s+[A-Z0-9]+)*?\s+(?:SIG)?(?:TERM|15)\b""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set."""

    inject: Literal["always", "when-declared"] = field(
        default="always", metadata={"says": "whether a podFailurePolicy is injected into Jobs that declare no contract"}
    )


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds Jobs that may be Complete with their work undone."""
    path, contract = workload.declarations.get(EXIT_CONTRACT, ((), None))
    if contract is not None and contract not in CONTRACTS:
        yield Finding(path, f"{quoted(contract)} is no contract; write {' or '.join(CONTRACTS)}")
    if not failurepolicy.rules_of(workload) or failurepolicy.plan(workload, context) is Plan.MALFORMED:
        return
    trapped = list(_traps(workload))
    yield from trapped
    if contract is None and workload.annotations.get(MARK) != ON and not trapped:
        promises = CONTRACTS if RULE_ID in context.mending else CONTRACTS[:1]  # nothing guards where that is off
        yield Finding(
            workload.at_job("podFailurePolicy"),
            "a Pod that exits 0 when it is stopped makes the Job Complete; declare "
            f"{PREFIX}{EXIT_CONTRACT}: {' or '.join(promises)}; drainproof probe finds out which",
        )


def _traps(workload: Workload) -> Iterator[Finding]:
    for container in workload.containers:
        for part in ("command", "args"):
            words = [word for word in entries(container.spec, part) if isinstance(word, str)]
            if any(_TRAP.search(word) for word in words):
                text = "its trap on TERM ends with exit 0, so a stopped Pod counts as done; exit with 143 there"
                yield Finding((*container.path, part), text)


RULE: Final = Rule("exit-code", check, Options, Level.WARN, fix=None, kinds=BATCH)
