"""Names that other programs rely on: labels, annotations, ports, exit codes, condition types and reasons."""

from __future__ import annotations

GROUP = "cpufinetune.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "CpuFineTune"
PLURAL = "cpufinetunes"
MANAGER = "cpufinetune"
COMPONENT = "cpufinetune-operator"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_JOB = f"{GROUP}/job"
LABEL_JOB_UID = f"{GROUP}/job-uid"
SELECTOR = f"{LABEL_MANAGED_BY}={COMPONENT}"

# The job document, in the pods' annotations, from where a downwardAPI volume shows it as a file.
ANNOTATION_JOB = f"{GROUP}/job"
# What a child was built as, so that an unchanged one is told without comparing what the API server made of it.
ANNOTATION_HASH = f"{GROUP}/spec-hash"
# The part of it that the API server lets nobody change.
ANNOTATION_SHAPE = f"{GROUP}/shape-hash"

LABEL_VENDOR = "feature.node.kubernetes.io/cpu-model.vendor_id"
INTEL = "Intel"
LABEL_FEATURE = "feature.node.kubernetes.io/cpu-cpuid."
LABEL_HOST = "kubernetes.io/hostname"

TRAINER = "trainer"
FETCH = "fetch"
OUTPUT = "output"
PORT_COORDINATOR = 29400
PORT_REPORT = 8080

# Exit codes of the launcher; a test holds them against `cpufinetune.errors.ExitCode`.
EXIT_OK = 0
EXIT_GAVE_UP = 1
EXIT_BAD_INPUT = 2
EXIT_DEADLINE = 3
EXIT_RETRY = 75
EXIT_INTERRUPTED = 143
EXIT_KILLED = 137

# Condition types. Ready is always there; Reconciling and Stalled (abnormal when true) only while true.
READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
SUSPENDED = "Suspended"
COMPLETE = "Complete"
FAILED = "Failed"

# Phases: a word for people, derived from the rest and never an input but for telling "first" from "again".
PHASE_PENDING = "Pending"
PHASE_STARTING = "Starting"
PHASE_RUNNING = "Running"
PHASE_RESTARTING = "Restarting"
PHASE_SUSPENDED = "Suspended"
PHASE_SUCCEEDED = "Succeeded"
PHASE_FAILED = "Failed"
PHASES = (
    PHASE_PENDING,
    PHASE_STARTING,
    PHASE_RUNNING,
    PHASE_RESTARTING,
    PHASE_SUSPENDED,
    PHASE_SUCCEEDED,
    PHASE_FAILED,
)

# Reasons why a job ended.
REASON_TRAINED = "Trained"
REASON_BACKOFF = "BackoffLimitExceeded"
REASON_DEADLINE = "DeadlineExceeded"
REASON_BAD_INPUT = "BadInput"
REASON_FETCH = "FetchFailed"
