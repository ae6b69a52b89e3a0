# The image of drainproof: both the webhook (`serve`) and the controller (`controller`) run from it.
#
#   docker build -t registry.example/drainproof:1 .
#   docker build --build-arg PYTHON_IMAGE=… --secret id=pip,src=pip.conf .    # a base of your own, an index of your own
#   docker build --build-arg EXTRAS=traces .                                  # with OpenTelemetry, for --traces
#
# The base needs Python 3.11 or newer with its venv module, and a shell; both stages must have the same Python.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# One environment has pip and the build backend and stays behind; the other is what goes into the image.
RUN python3 -m venv /tools && python3 -m venv --without-pip /opt/drainproof
COPY requirements.lock requirements-traces.lock requirements-dev.lock ./
# Every archive is known by its hash, the build backend too, and none is compiled here.
# The client of Kubernetes brings a second one, for asyncio, which is larger than the first and is not used.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    awk '/^[^ #]/ { wanted = /^setuptools==/ } wanted' requirements-dev.lock > /tools/backend.lock \
    && /tools/bin/pip install --require-hashes --no-deps --only-binary :all: -r /tools/backend.lock \
    && /tools/bin/pip --python /opt/drainproof/bin/python install \
        --require-hashes --no-deps --only-binary :all: --compile -r "requirements${EXTRAS:+-$EXTRAS}.lock" \
    && rm -rf /opt/drainproof/lib/python3.*/site-packages/kubernetes/aio
COPY LICENSE README.md pyproject.toml ./
COPY webhook webhook
RUN /tools/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /tools/wheels . \
    && /tools/bin/pip --python /opt/drainproof/bin/python install --no-index --no-deps --compile /tools/wheels/*.whl
COPY deploy/image deploy/image
RUN /opt/drainproof/bin/python deploy/image/sbom.py > /opt/drainproof/sbom.cdx.json

FROM ${PYTHON_IMAGE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="drainproof" \
      org.opencontainers.image.description="Kubernetes admission webhook that makes Jobs survive being drained" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN --mount=type=bind,source=deploy/image,target=/image python3 /image/trim.py
COPY --from=build /opt/drainproof /opt/drainproof
# Nothing is written at run time: the file system is read-only in our manifests, and the bytecode was made above.
ENV PATH=/opt/drainproof/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONFAULTHANDLER=1
# A number, for the kubelet cannot tell whether a name is root.
USER 65532:65532
WORKDIR /
EXPOSE 8443
ENTRYPOINT ["/opt/drainproof/bin/drainproof"]
CMD ["serve"]
