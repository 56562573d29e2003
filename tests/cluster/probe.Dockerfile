# A pod that tests look through: name resolution, connections, CPU affinity, all with Python's standard library.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python3"]
