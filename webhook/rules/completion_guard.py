"""A Pod that was stopped before its work was done must not complete its Job.

When a Pod is evicted and its program tidies up and exits 0, the kubelet reports it as Succeeded. Beside a
podFailurePolicy the Job is then Complete although its work is unfinished, and no field of a manifest can say
otherwise. So the webhook also looks at the status that kubelets report.

**What the fix does.** A success is written as a failure (phase Failed, reason `StoppedBeforeCompletion`, and a
message that says why) when the Pod belongs to a Job, carries the condition DisruptionTarget, is being deleted or
was stopped by its kubelet, and is guarded. The Job then ignores it by its podFailurePolicy and makes a new Pod.
Guarded are Pods with the annotation `drainproof.dev/completion-guard: "on"`, which templates get together with an
injected podFailurePolicy, and those that declare `drainproof.dev/exit-contract: guard`. A declaration on the Job
itself is put on its template, for a Pod shows nothing of its Job.

A program that does finish its work within the grace period says so: its main container ends with the termination
message `completed` (written to `/dev/termination-log`, or to the container's terminationMessagePath). Then nothing
is changed. Not guarded are Pods with `drainproof.dev/exit-contract: nonzero-when-stopped`, which is believed, with
`drainproof.dev/completion-guard: "off"`, and those that are exempt. Indexed Jobs need nothing more: an index whose
Pod was stopped runs again.

**Limits.** Work that was finished without the word `completed` is done again: at least once, never lost. That also
holds for a program that ended by itself in the moment in which its Pod was evicted. With the webhook down, a
report is stored as it comes. Without a podFailurePolicy, and with one that counts disruptions, the failure uses up
backoffLimit. A plain `kubectl delete pod` carries no DisruptionTarget, so its success is believed.

What is a success all the same, for the Pod was not guarded or the webhook was not reached, is found by the
controller: an Event `CompletedUndone` on the Job says so. It does so also where the policy has switched the guard off,
for nobody has said that the work was done; not of Pods that are exempt or trusted, for there somebody has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core.declaration import EXIT_CONTRACT, GUARD
from webhook.core.guard import MARK, OFF, ON, RULE_ID, is_asked_for
from webhook.core.patch import Put
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.workload import MENDED, PREFIX, Workload


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds a guard that was asked for and will not act. What kubelets report comes to `webhook.core.guard`."""
    place, mark = workload.declarations.get(GUARD, ((), None))
    if mark not in (None, ON, OFF):
        yield Finding(place, f'{quoted(mark)} switches nothing; write "{ON}" or "{OFF}"')
    contract_place, contract = workload.declarations.get(EXIT_CONTRACT, ((), None))
    if workload.kind.name == "Pod" or not is_asked_for(mark, contract):
        return
    asking = place if mark == ON else contract_place
    if RULE_ID not in context.mending:
        text = "the policy has switched the guard off, so a Pod that exits 0 when it is stopped counts as done"
        yield Finding(asking, f"{text}; let it exit with 143")
    elif not is_asked_for(workload.annotations.get(MARK), workload.annotations.get(PREFIX + EXIT_CONTRACT)):
        text = "no Pod carries it, so none is guarded; write it in the metadata of the Pod template"
        is_passed_on = workload.kind.name == "Job" or asking[0] == "spec"  # to the Jobs of a CronJob
        is_free = MARK not in workload.annotations  # what an author wrote there is not overwritten
        yield Finding(asking, text, (Put(workload.at_annotation(MARK), ON),) if is_passed_on and is_free else ())


RULE: Final = Rule(RULE_ID, check, Options, Level.WARN, fix=True, kinds=MENDED)
