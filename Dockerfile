# The service's images. `make image` builds one with docker, podman or buildah; docs/deploy.md says how they are run.
#
#   cpu, cuda             with the starter models, in a layer of their own
#   cpu-bare, cuda-bare   without: TURNSCORE_MODELS names bundles that are mounted
#
# By hand: make wheels && docker build --target cpu -t turnscore .
# PYTHON is the base, with a Python 3.11; name it by digest (python:3.11-slim@sha256:...) to build the same image again.
# CUDA and cuDNN come as wheels, the driver (580 or later) from the host.
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS build
RUN ["python", "-m", "venv", "--without-pip", "/opt/venv"]

FROM build AS dependencies-cpu
COPY requirements/image-cpu.txt /tmp/requirements.txt
RUN ["pip", "--python", "/opt/venv/bin/python", "install", "--no-cache-dir", "--no-deps", "--require-hashes", "--requirement", "/tmp/requirements.txt"]

FROM build AS dependencies-cuda
COPY requirements/image-cuda.txt /tmp/requirements.txt
RUN ["pip", "--python", "/opt/venv/bin/python", "install", "--no-cache-dir", "--no-deps", "--require-hashes", "--requirement", "/tmp/requirements.txt"]

# Our wheels by themselves, dealt out to two trees, so that a change of the code leaves the layer of the models as it is.
FROM build AS ours
COPY dist/turnscore-*.whl dist/turnscore_core-*.whl dist/turnscore_client-*.whl /tmp/wheels/
RUN pip --python /opt/venv/bin/python install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && mkdir -p /trees/starter/turnscore_models /trees/code/bin \
    && mv /opt/venv/bin/turnscore* /trees/code/bin/ \
    && mv /opt/venv/lib/python3.11/site-packages/turnscore_models/starter /trees/starter/turnscore_models/ \
    && mkdir -p /trees/code/lib/python3.11 \
    && mv /opt/venv/lib/python3.11/site-packages /trees/code/lib/python3.11/

FROM ${PYTHON} AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="turnscore" \
      org.opencontainers.image.description="Scores dialogue turns while the conversation runs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# All that is written lies below /tmp; the root may be read-only, and the user any.
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp BENTOML_HOME=/tmp/bentoml BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TURNSCORE_HTTP__HOST=0.0.0.0 TURNSCORE_GRPC__HOST=0.0.0.0
WORKDIR /tmp
USER 10001:10001
EXPOSE 3000 50051
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('TURNSCORE_HTTP__PORT', '3000') + '/readyz', timeout=4)"]
CMD ["turnscore", "serve"]

FROM base AS cuda-base
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS cpu-bare
COPY --from=dependencies-cpu /opt/venv /opt/venv
COPY --from=ours /trees/code /opt/venv

FROM cuda-base AS cuda-bare
COPY --from=dependencies-cuda /opt/venv /opt/venv
COPY --from=ours /trees/code /opt/venv

FROM cuda-base AS cuda
COPY --from=dependencies-cuda /opt/venv /opt/venv
COPY --from=ours /trees/starter /opt/venv/lib/python3.11/site-packages
COPY --from=ours /trees/code /opt/venv

# The last target is the one that is built when none is named.
FROM base AS cpu
COPY --from=dependencies-cpu /opt/venv /opt/venv
COPY --from=ours /trees/starter /opt/venv/lib/python3.11/site-packages
COPY --from=ours /trees/code /opt/venv
