"""A Pod that Karpenter deletes by force must not use up its Job's backoffLimit.

When a node has to be gone (its NodePool's terminationGracePeriod is over, or node repair replaces it), Karpenter
does not evict the Pods that are left but deletes them. Such a deletion sets no DisruptionTarget, so a
podFailurePolicy that ignores disruptions does not match, and each one counts as a failure of the program. With
backoffLimit 0 the first one fails the Job.

**What the fix does.** When a user named in `users` deletes a Pod of a Job, the Pod gets the condition
DisruptionTarget (status True, reason `DeletionByKarpenter`, and a message with the user's name), and then the
deletion goes on as it came. The Job takes it for the disruption that it is. Left alone are Pods that carry the
condition already or have ended, Pods of other controllers, dry runs, and deletions tied to a resourceVersion, which
the stamp would change. An exemption counts when it stands on the Pod, so in the metadata of the Job's Pod template,
and where the policy exempts the Job by its name; an annotation of the Job itself is not seen.

**To switch it on** takes two things: the component `disruption-stamp` of deploy/ (in the chart `stamp.enabled`),
which has the API server ask the controller at /stamp and lets the controller patch the status of Pods, and
`disruption-stamp: {fix: true}` in the policy, for the cluster or for some namespaces. A Karpenter that runs as
another user belongs into `users` and into the matchConditions of the webhook, for these choose what the API server
asks about at all.

**Limits.** The webhook is registered with failurePolicy Ignore, and whatever goes wrong, from a missing right to
an API server that is slow, the deletion goes on without the stamp and counts as before; it is logged, and counted in
`drainproof_controller_stamps_total`. Where a webhook of somebody else then refuses the deletion, the condition
stays on a Pod that lives on, until Kubernetes takes it back after two minutes. A user who matches and deletes for
another reason is believed all the same; and so is whoever reaches the port of /stamp and claims to be an API server,
unless `--client-ca` says which clients are. Without a podFailurePolicy that ignores disruptions, the stamp changes
nothing. What the rule does shows when Pods are deleted; of manifests it says nothing, and its level is of no account.
"""

from collections.abc import Iterable
from typing import Final

from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.stamp import RULE_ID, Options
from webhook.core.workload import Workload


def check(workload: Workload, options: Options, context: Context) -> Iterable[Finding]:
    """Finds nothing: no manifest tells how its Pods will be deleted. Deletions come to `webhook.core.stamp`."""
    return ()


RULE: Final = Rule(RULE_ID, check, Options, Level.IGNORE, fix=False, kinds=frozenset({"Pod"}))
