"""Traces by OpenTelemetry: a span for each decided review, sent to a collector beside the work.

What there is to say besides the collector's address, OpenTelemetry's own variables say: OTEL_EXPORTER_OTLP_HEADERS
for a collector that wants a token, OTEL_EXPORTER_OTLP_CERTIFICATE for its CA, OTEL_TRACES_SAMPLER, and so on.
"""

import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from webhook import __version__, observe
from webhook.annotation import brief, ids
from webhook.core.verdict import Verdict
from webhook.review import Deed, Request, mended

QUEUE: Final = 2048  # spans that wait to be sent; those beyond are dropped
BATCH: Final = 256  # spans of one request to the collector
WAIT_SECONDS: Final = 2.0  # at most, for a batch to become full
SEND_SECONDS: Final = 10.0  # for one batch, trying again included
FLUSH_SECONDS: Final = 2.0  # at the end, for what is still waiting
LIBRARY: Final = logging.getLogger("opentelemetry")


class Traces:
    """Makes spans and sends them to the collector at `url` from a thread of its own.

    Nothing but that thread waits for the collector: what it does not take in time is dropped. Raises ValueError where
    a variable of OpenTelemetry's has a value that it does not know.
    """

    def __init__(self, url: str) -> None:
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _Delivery(OTLPSpanExporter(endpoint=url, timeout=SEND_SECONDS), url),
                max_queue_size=QUEUE,
                schedule_delay_millis=WAIT_SECONDS * 1000,
                max_export_batch_size=BATCH,
            )
        )
        self._tracer = self._provider.get_tracer("drainproof", __version__)
        self._parent = TraceContextTextMapPropagator()

    def reviewed(self, headers: Mapping[str, str], began: int, deed: Deed, request: Request, verdict: Verdict) -> None:
        """Records a review whose request began at `began`, in nanoseconds since 1970, and has been decided now.

        The trace of the API server goes on, and its choice whether to sample holds: it sends `traceparent` with each
        call (Kubernetes 1.37.2 apiserver pkg/util/webhook/authentication.go, component-base tracing/utils.go).
        """
        span = self._tracer.start_span(
            f"POST /{deed}",
            context=self._parent.extract(headers),
            kind=SpanKind.SERVER,
            attributes={f"drainproof.{name}": value for name, value in _said(deed, request, verdict).items()},
            start_time=began,
        )
        span.end()

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Sends what is still waiting, for at most `seconds`."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(seconds)


class _Delivery(SpanExporter):
    """Sends batches, and says when that begins to fail and when it works again, where the library speaks of each."""

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self._works = True
        self._complaints = _Complaints()
        LIBRARY.addHandler(self._complaints)
        LIBRARY.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # 1.37 lets it through where no collector is there
            result, reason = SpanExportResult.FAILURE, str(error)
        else:
            reason = self._complaints.taken()
        if (result is SpanExportResult.SUCCESS) is not self._works:
            self._works = not self._works
            self._tell(reason)
        return result

    def _tell(self, reason: str) -> None:
        if self._works:
            observe.said("traces sent again", url=self._url)
        else:
            observe.said("traces not sent", logging.WARNING, url=self._url, reason=brief(reason, observe.REASON))

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Complaints(logging.Handler):
    """Keeps the first thing that the library's exporter says, until it is taken; the last is only that it gave up."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(logging.Filter(f"{LIBRARY.name}.exporter"))
        self._first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._first = self._first or record.getMessage()

    def taken(self) -> str:
        first, self._first = self._first, ""
        return first


def _resource() -> Resource:
    """Who makes the spans; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count before it."""
    ours = {"service.name": "drainproof", "service.version": __version__, "service.instance.id": socket.gethostname()}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _said(deed: Deed, request: Request, verdict: Verdict) -> dict[str, str | bool | int]:
    """What a span says of a review: nothing that stands in the object."""
    return {
        "deed": deed,
        "uid": request.uid,
        "kind": request.kind,
        "namespace": request.namespace,
        "operation": request.operation,
        "dry_run": request.dry_run,
        "outcome": observe.outcome(deed, verdict),
        "mended": len(mended(verdict, deed)),
        "denied": len(ids(verdict.denied)),
        "warned": len(ids(verdict.warned)),
    }
