"""The CPU as this process may really use it, and the layout of ranks on it.

`read` describes the machine (affinity ∩ cpuset ∩ quota, SMT, NUMA, instruction sets), `split` shares it among
simulated nodes, `plan_layout` places ranks, `thread_environment` and `describe` say what that means.
"""

from cpufinetune.cores.cpulist import format_cpus, parse_cpus
from cpufinetune.cores.description import Core, Cpu, Description, Feature, Isa
from cpufinetune.cores.environment import describe, thread_environment
from cpufinetune.cores.layout import Auto, Layout, RankLayout, plan_layout
from cpufinetune.cores.partition import LayoutError
from cpufinetune.cores.split import split
from cpufinetune.cores.sysfs import read

__all__ = [
    "Auto",
    "Core",
    "Cpu",
    "Description",
    "Feature",
    "Isa",
    "Layout",
    "LayoutError",
    "RankLayout",
    "describe",
    "format_cpus",
    "parse_cpus",
    "plan_layout",
    "read",
    "split",
    "thread_environment",
]
