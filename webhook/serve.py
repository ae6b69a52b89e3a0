"""`drainproof serve`: puts the server together, starts it, and ends it so that no request is lost."""

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from webhook import connection, observe, policyfile, server, tls
from webhook.command import refuse
from webhook.core import policy
from webhook.core.policy import Policy
from webhook.listener import listening
from webhook.rules import RULES
from webhook.settings import Settings, options
from webhook.standing import Standing
from webhook.watched import Watched

if TYPE_CHECKING:
    from webhook.tracing import Traces

BACKLOG: Final = 2048  # connections that wait to be taken
ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@click.command()
@options
def serve(**given: Any) -> None:
    """Serves the webhooks over HTTPS until SIGTERM or SIGINT.

    Reviews go to /mutate, /validate and /guard; /healthz, /readyz and /metrics are for kubelets and
    Prometheus. A renewed certificate, a changed policy and new facts are taken over within seconds,
    without a restart; a file that cannot be used changes nothing, and /readyz?verbose says why. After
    the signal it is not ready any more and goes on answering for the drain time. Exits with 0 after
    that, with 1 where it cannot listen or a second signal stops it at once, and with 2 where a setting
    or the policy is wrong at the start.

    With --dev it makes a certificate and prints the file of its CA, here ca.crt, for curl to trust. What
    you do with kubectl comes to it through an API server on the same machine and a webhook with
    clientConfig.url https://localhost:8443/mutate and that file in base64 as clientConfig.caBundle.

    \b
    Examples:
      drainproof serve --certificate tls.crt --key tls.key --policy policy.yaml
      drainproof serve --dev
      curl --cacert ca.crt --data-binary @review.json https://localhost:8443/mutate
    """
    settings = Settings(**given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server has its own answer: leave nothing behind
    observe.configure(settings.log_level)
    with contextlib.ExitStack() as stack:
        chosen, serving, pair, traces = _prepared(settings, stack)
        listener = stack.enter_context(listening(settings.address, settings.port, BACKLOG))
        host, port = listener.getsockname()[:2]
        if settings.dev:
            click.echo(f"Serving https://localhost:{port}")
            click.echo(f"The CA of its certificate: {pair.ca}")
        observe.said("serving", host=host, port=port, policy=str(settings.policy or "default"))
        run = _Run(settings, chosen, serving, listener, traces)
        with asyncio.Runner(loop_factory=run.server.config.get_loop_factory()) as runner:
            well = runner.run(run.until_stopped())
    sys.exit(0 if well else 1)


def _prepared(
    settings: Settings, stack: contextlib.ExitStack
) -> "tuple[Policy | Watched[Policy], tls.Serving, tls.Pair, Traces | None]":
    """Policy, certificate and traces. Exits with 2, and every reason on stderr, where there is something wrong."""
    problems = list(settings.problems())
    chosen: Policy | Watched[Policy] = policy.default(RULES)
    serving, pair = None, None
    if settings.policy:
        chosen = Watched(settings.policy, partial(policyfile.stated, rules=RULES))
        chosen.reload()
        problems += chosen.problems
    try:
        pair = _pair(settings, stack) if not list(settings.problems()) else None
        serving = tls.Serving(pair, settings.client_ca) if pair else None
    except tls.CertificateError as error:
        problems.append(str(error))
    traces = _traces(settings.traces, problems)
    if problems or serving is None or pair is None:
        refuse(problems)
    return chosen, serving, pair, traces


def _pair(settings: Settings, stack: contextlib.ExitStack) -> tls.Pair:
    if settings.certificate and settings.key:
        return tls.Pair(settings.certificate, settings.key)
    ours = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # a folder that the stack does not know yet would stay
    try:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drainproof-"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, ours)
    return tls.throw_away(Path(folder))


def _traces(url: str | None, problems: list[str]) -> "Traces | None":
    """Where spans go, if anywhere; what stands in the way is added to `problems`."""
    if url is None:
        return None
    try:
        from webhook import tracing  # noqa: PLC0415 - an extra, which nobody is to load who does not ask for it

        return tracing.Traces(url)
    except ModuleNotFoundError as error:
        problems.append(
            f"--traces needs the extra traces ({error.name} is not installed): pip install 'drainproof[traces]', "
            "or build the image with --build-arg EXTRAS=traces"
        )
    except ValueError as error:
        problems.append(f"--traces: a variable of OpenTelemetry's is wrong: {error}")
    return None


class _Run:
    """One run of the server, from its start to the end of its drain."""

    def __init__(
        self,
        settings: Settings,
        chosen: Policy | Watched[Policy],
        serving: tls.Serving,
        listener: socket.socket,
        traces: "Traces | None",
    ) -> None:
        self.settings = settings
        self.listener = listener
        self.traces = traces
        metrics = observe.metrics()
        facts = Watched(settings.facts, policyfile.facts, optional=True) if settings.facts else None
        self.standing = Standing(serving, chosen, facts, metrics, settings.client_ca is not None)
        self.state = self.standing.state
        application = server.app(self.state, metrics, trace=traces.reviewed if traces else None)
        self.server = connection.server(
            application, serving.context, settings.drain_seconds, settings.keep_alive_seconds
        )

    async def until_stopped(self) -> bool:
        """Serves until a signal has ended it; whether the drain was left its time."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.stop)
        keeping_up = loop.create_task(self.standing.keep_up(self.settings.reload_seconds))
        try:
            await self.server.serve(sockets=[self.listener])
        finally:
            keeping_up.cancel()
            if self.traces and not self.server.force_exit:
                self.traces.close()
        observe.said("stopped", drained=not self.server.force_exit)
        return not self.server.force_exit

    def stop(self) -> None:
        """A signal came: the first one begins the drain, a second one ends it."""
        if self.state.draining:
            self.server.stop_at_once()
            return
        self.state.draining = True
        observe.said("draining", seconds=self.settings.drain_seconds)
        self.server.stop_after_drain()
