"""The operator: turns `CpuFineTune` objects into pods that train, and tells how far they are."""
