# The trainer: launcher, ranks and everything they import. Build from the root of the repository.
#
#   BASE_IMAGE   a oneAPI image by default; any Debian or Ubuntu image with Python 3.11 or newer to be had does
#   TORCH_INDEX  `cpu` takes PyTorch's small CPU build from PyTorch's own index, which is right for nearly everybody;
#                empty takes what the configured index has, on x86 the CUDA build with 4 GB of libraries
ARG BASE_IMAGE=intel/oneapi-runtime:2025.2.2-0-devel-ubuntu24.04
FROM ${BASE_IMAGE}
ARG TORCH_INDEX=cpu
USER root

RUN if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
        apt-get update -q && apt-get install -qy --no-install-recommends python3 python3-venv ca-certificates \
        && rm -rf /var/lib/apt/lists/*; \
    fi

# Dependencies change seldom and are large: a layer of their own (a test compares the list with pyproject.toml). Compiled now, for the root file system is read-only
# later. Triton is for kernels that are compiled at run time, which CPU training here does not do.
COPY constraints.txt image/trainer.requirements.txt /build/
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet --no-cache-dir uv \
    && python3 -m venv --without-pip /opt/cpufinetune \
    && /opt/build/bin/uv pip install --quiet --compile-bytecode --python /opt/cpufinetune/bin/python \
        --constraint /build/constraints.txt ${TORCH_INDEX:+--torch-backend=${TORCH_INDEX}} \
        --requirement /build/trainer.requirements.txt \
    && rm -rf /opt/cpufinetune/lib/python3*/site-packages/triton /opt/build \
    && { mountpoint -q /root/.cache || rm -rf /root/.cache; }

COPY . /build/source
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet --no-cache-dir uv \
    && /opt/build/bin/uv pip install --quiet --compile-bytecode --no-deps --python /opt/cpufinetune/bin/python \
        /build/source \
    && rm -rf /opt/build /build && { mountpoint -q /root/.cache || rm -rf /root/.cache; }

ARG VERSION=dev
LABEL org.opencontainers.image.title="cpufinetune trainer" \
      org.opencontainers.image.description="Fine-tunes transformers on CPUs; started by the cpufinetune operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Libraries ask for the name of the user, who is in no password file.
ENV USER=cpufinetune HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/cpufinetune/bin:$PATH
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/cpufinetune/bin/cpufinetune"]
CMD ["--help"]
