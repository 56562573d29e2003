# The operator: no torch, nothing that trains. Build from the root of the repository.
ARG BASE_IMAGE=python:3.13-slim
FROM ${BASE_IMAGE}
USER root

RUN if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
        apt-get update -q && apt-get install -qy --no-install-recommends python3 python3-venv ca-certificates \
        && rm -rf /var/lib/apt/lists/*; \
    fi

# The Kubernetes client is 60 MB of source; it is kept in compiled form only.
COPY constraints.txt image/operator.requirements.txt /build/
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet --no-cache-dir uv \
    && python3 -m venv --without-pip /opt/cpufinetune \
    && /opt/build/bin/uv pip install --quiet --compile-bytecode --python /opt/cpufinetune/bin/python \
        --constraint /build/constraints.txt --requirement /build/operator.requirements.txt \
    && cd /opt/cpufinetune/lib/python3*/site-packages/kubernetes \
    && /opt/cpufinetune/bin/python -m compileall -q -b . \
    && find . -name '*.py' -delete && find . -name __pycache__ -prune -exec rm -r {} + && cd / \
    && rm -rf /opt/build && { mountpoint -q /root/.cache || rm -rf /root/.cache; }

COPY . /build/source
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet --no-cache-dir uv \
    && /opt/build/bin/uv pip install --quiet --compile-bytecode --no-deps --python /opt/cpufinetune/bin/python \
        /build/source \
    && rm -rf /opt/build /build && { mountpoint -q /root/.cache || rm -rf /root/.cache; }

ARG VERSION=dev
LABEL org.opencontainers.image.title="cpufinetune operator" \
      org.opencontainers.image.description="Watches CpuFineTune objects and runs them on a cluster" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Libraries ask for the name of the user, who is in no password file.
ENV USER=cpufinetune HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/cpufinetune/bin/python", "-m", "cpufinetune_operator"]
