"""The record of what was rewritten, and putting the stored values back when a manifest is applied again.

A value of the author's that mutation replaced comes back with every `kubectl apply` of the unchanged manifest,
and the API server refuses it as immutable (Kubernetes 1.37.2 pkg/apis/batch/validation/validation.go
`ValidateJobSpecUpdate`). The annotation `drainproof.dev/mended` keeps it: a JSON object from JSON pointer to
the value that the author wrote.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core.declaration import MENDED
from webhook.core.patch import MISSING, Path, Put, at, mapping, pointer
from webhook.core.rule import Rule
from webhook.core.workload import PREFIX, Kind, Workload

KEY: Final = PREFIX + MENDED
PATH: Final = ("metadata", "annotations", KEY)
LARGEST: Final = 64 * 1024  # bytes of one record
ANNOTATIONS_LARGEST: Final = 256 * 1024  # bytes; Kubernetes 1.37.2 apimachinery pkg/api/validation/objectmeta.go


def read(document: Any) -> dict[str, Any]:
    """The record that an object carries; empty where it has none, or none that can be read."""
    text = at(document, PATH)
    if not isinstance(text, str) or len(text) > LARGEST:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def written(document: Any, replaced: Mapping[Path, Any]) -> Put:
    """The wish that the record of `document` holds what stood at each path before it was rewritten."""
    entries = {**read(document), **{pointer(path): value for path, value in replaced.items()}}
    return Put(PATH, json.dumps(entries, separators=(",", ":"), sort_keys=True, ensure_ascii=False))


def fits(document: Any, kind: Kind) -> bool:
    """Whether the annotations of an object and of its Pod template are within what Kubernetes accepts."""
    if len(str(at(document, PATH, "")).encode(errors="replace")) > LARGEST:
        return False
    return all(_size(mapping(document, *place, "annotations")) <= ANNOTATIONS_LARGEST for place in kind.places)


def _size(annotations: Mapping[str, Any]) -> int:
    return sum(
        len(text.encode(errors="replace")) for pair in annotations.items() for text in pair if isinstance(text, str)
    )


def put_back(new: Workload, old: Any, rules: Iterable[Rule]) -> list[Put]:
    """The wishes that make an unchanged manifest agree with what is stored.

    Where the old object's record holds a path that a rule may rewrite, and the new object holds the recorded value
    there, the old object's value is to stand. Anything else in a record is passed over.
    """
    recorded = read(old)
    if not recorded:
        return []
    wishes = []
    for path in (path for rule in rules for path in rule.rewrites(new)):
        author, stored = recorded.get(pointer(path), MISSING), at(old, path, MISSING)
        if author is not MISSING and stored is not MISSING and _same(at(new.root, path, MISSING), author):
            wishes.append(Put(path, stored))
    return wishes


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    except RecursionError:
        return False
