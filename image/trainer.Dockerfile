# The trainer: launcher, ranks and everything they import. Build from the root of the repository.
#
#   target       `upstream`, the default, has the newest PyTorch; `intel` has PyTorch 2.8.0 and Intel's extension to it
#   BASE_IMAGE   a oneAPI image by default; any Debian or Ubuntu image with Python 3.11 or newer to be had does
#   TORCH_INDEX  `cpu` takes PyTorch's small CPU build from PyTorch's own index, which is right for nearly everybody;
#                empty takes what the configured index has, on x86 the CUDA build with 4 GB of libraries
#
# A target has three stages: the packages, the backend over oneCCL, and the image. The image has the packages' layers, and
# of the second stage what was compiled there: neither compiler nor headers.
ARG BASE_IMAGE=intel/oneapi-runtime:2025.2.2-0-devel-ubuntu24.04

FROM ${BASE_IMAGE} AS system
USER root
RUN if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
        apt-get update -q && apt-get install -qy --no-install-recommends python3 python3-venv ca-certificates \
        && rm -rf /var/lib/apt/lists/*; \
    fi
COPY image/install /build/
LABEL org.opencontainers.image.title="cpufinetune trainer" \
      org.opencontainers.image.description="Fine-tunes transformers on CPUs; started by the cpufinetune operator" \
      org.opencontainers.image.licenses="Apache-2.0"
# Libraries ask for the name of the user, who is in no password file.
ENV USER=cpufinetune HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/cpufinetune/bin:$PATH
WORKDIR /tmp
ENTRYPOINT ["/opt/cpufinetune/bin/cpufinetune"]
CMD ["--help"]
# For Docker: Kubernetes takes no notice of it, and images in OCI's format cannot have it.
HEALTHCHECK --interval=5m --timeout=1m CMD ["/opt/cpufinetune/bin/cpufinetune", "doctor"]

FROM system AS intel-packages
ARG TORCH_INDEX=cpu
# Large, and seldom changed: layers of their own (a test compares the lists with pyproject.toml). Compiled now, for the root
# file system is read-only later. Triton is for kernels that are compiled at run time, which CPU training here does not do.
COPY constraints-intel.txt image/trainer.requirements.txt image/trainer-intel.requirements.txt /build/
RUN python3 -m venv --without-pip /opt/cpufinetune \
    && sh /build/install --compile-bytecode --constraint /build/constraints-intel.txt \
        ${TORCH_INDEX:+--torch-backend=${TORCH_INDEX}} --requirement /build/trainer.requirements.txt \
        --requirement /build/trainer-intel.requirements.txt \
    && rm -rf /opt/cpufinetune/lib/python3*/site-packages/triton
COPY image/trainer-ccl.requirements.txt image/slim.py /build/
RUN sh /build/install --no-deps --requirement /build/trainer-ccl.requirements.txt && python /build/slim.py

FROM intel-packages AS intel-backend
# Nothing else of this project, so that few changes of it compile anew.
COPY image/compile image/trainer-ccl-build.requirements.txt /build/
COPY trainer/src/cpufinetune/__init__.py trainer/src/cpufinetune/errors.py /build/source/cpufinetune/
COPY trainer/src/cpufinetune/comms/__init__.py /build/source/cpufinetune/comms/
COPY trainer/src/cpufinetune/comms/ccl /build/source/cpufinetune/comms/ccl
RUN sh /build/compile

FROM intel-packages AS intel
COPY . /build/source
COPY --from=intel-backend /build/prebuilt /build/source/trainer/src/cpufinetune/comms/ccl/prebuilt
# The sources may have changed since the other stage began, and jobs would do without the backend.
RUN sh /build/install --compile-bytecode --no-deps /build/source && rm -rf /build \
    && python -c 'from cpufinetune.comms.ccl import build; assert build.built(), "it was compiled from other sources"'
ARG VERSION=dev
LABEL org.opencontainers.image.version="${VERSION}"
USER 65532:65532

FROM system AS upstream-packages
ARG TORCH_INDEX=cpu
COPY constraints.txt image/trainer.requirements.txt /build/
RUN python3 -m venv --without-pip /opt/cpufinetune \
    && sh /build/install --compile-bytecode --constraint /build/constraints.txt \
        ${TORCH_INDEX:+--torch-backend=${TORCH_INDEX}} --requirement /build/trainer.requirements.txt \
    && rm -rf /opt/cpufinetune/lib/python3*/site-packages/triton
COPY image/trainer-ccl.requirements.txt image/slim.py /build/
RUN sh /build/install --no-deps --requirement /build/trainer-ccl.requirements.txt && python /build/slim.py

FROM upstream-packages AS upstream-backend
COPY image/compile image/trainer-ccl-build.requirements.txt /build/
COPY trainer/src/cpufinetune/__init__.py trainer/src/cpufinetune/errors.py /build/source/cpufinetune/
COPY trainer/src/cpufinetune/comms/__init__.py /build/source/cpufinetune/comms/
COPY trainer/src/cpufinetune/comms/ccl /build/source/cpufinetune/comms/ccl
RUN sh /build/compile

FROM upstream-packages AS upstream
COPY . /build/source
COPY --from=upstream-backend /build/prebuilt /build/source/trainer/src/cpufinetune/comms/ccl/prebuilt
RUN sh /build/install --compile-bytecode --no-deps /build/source && rm -rf /build \
    && python -c 'from cpufinetune.comms.ccl import build; assert build.built(), "it was compiled from other sources"'
ARG VERSION=dev
LABEL org.opencontainers.image.version="${VERSION}"
USER 65532:65532
