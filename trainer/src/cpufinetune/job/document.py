"""The job document: what a user asks for, as frozen dataclasses.

Field for field the `spec` of `manifests/crd/cpufinetunes.yaml` (a test walks both); the CRD holds the bounds and
the prose. Names are the CRD's in snake_case. `None` means "not given". Values that are computed (ranks per node,
threads, the backend in use) are never written back here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

API_VERSION = "cpufinetune.dev/v1alpha1"
KIND = "CpuFineTune"

Auto = Literal["Auto"]
Schedule = Literal["Linear", "Cosine", "Constant"]
Precision = Literal["Auto", "Float32", "BFloat16"]
Intel = Literal["Auto", "On", "Off"]
GradientCompression = Literal["None", "BFloat16"]
Backend = Literal["Auto", "CCL", "Gloo"]
Metric = Literal["Accuracy", "MacroF1", "F1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A pretrained encoder: a hub name at a revision, a folder of a claim, or (for `run`) a local folder."""

    name: str | None = None
    revision: str | None = None
    claim: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """One value a split: file names below the dataset's folder, or the hub's split names."""

    train: str
    validation: str | None = None
    test: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Labelled text: a hub dataset at a revision, or files (csv, tsv, jsonl, parquet) of a claim or folder."""

    name: str | None = None
    config: str | None = None
    revision: str | None = None
    splits: Splits | None = None
    claim: str | None = None
    path: str | None = None
    files: Splits | None = None
    validation_fraction: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is learnt: `text` names one column or a pair, `label` the column of classes."""

    type: Literal["TextClassification"] = "TextClassification"
    text: tuple[str, ...]
    label: str
    max_length: int = 128
    metric: Metric = "Accuracy"
    positive_label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters on the named linear layers; they are merged into the saved model."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Hyperparameters. `batch_size` is the global batch, whatever the number of ranks."""

    epochs: float = 3.0
    max_steps: int | None = None
    batch_size: int = 32
    micro_batch_size: int | None = None
    learning_rate: float = 2e-5
    schedule: Schedule = "Linear"
    warmup_ratio: float = 0.06
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    dropout: float | None = None
    precision: Precision = "Auto"
    intel: Intel = "Auto"
    gradient_compression: GradientCompression = "None"
    seed: int = 42
    evaluate_every: str | int = "Epoch"
    checkpoint_every: int = 200
    lora: Lora | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The share of a machine that one node of the job gets."""

    cpu: int | None = None
    memory: str | None = None
    ranks: Auto | int = "Auto"
    backend: Backend = "Auto"
    shared_memory: str = "2Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A Kubernetes toleration."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which machines will do; used by the cluster only."""

    cpu: Literal["Xeon", "PreferXeon", "Any"] = "Xeon"
    features: tuple[str, ...] = ()
    spread: Literal["Node", "None"] = "Node"
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume made for the job."""

    size: str
    storage_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where model, checkpoints and report go: a new volume, a folder of a claim, or nowhere that lasts."""

    volume: Volume | None = None
    claim: str | None = None
    path: str | None = None
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """When to pause, give up and clean up."""

    suspend: bool = False
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    stall_seconds: Auto | int = "Auto"
    ttl_seconds_after_finished: int | None = None
    clean_pods: Literal["Always", "OnSuccess", "Never"] = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole of what is asked."""

    model: Model
    dataset: Dataset
    task: Task
    training: Training = field(default_factory=Training)
    nodes: int = 1
    node: Node = field(default_factory=Node)
    placement: Placement = field(default_factory=Placement)
    output: Output = field(default_factory=lambda: Output(ephemeral=True))
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    image: str | None = None
    hub_token_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A parsed, valid `CpuFineTune`; `uid` is the API server's, None outside of a cluster."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    spec: Spec
