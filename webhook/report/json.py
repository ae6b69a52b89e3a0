"""Findings as one JSON array, for programs."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from webhook.report.finding import Finding


def rendered(findings: Iterable[Finding]) -> str:
    """An array of the findings, one on each line, without a line break at the end."""
    lines = [json.dumps(asdict(finding)) for finding in findings]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
