"""A real Kubernetes cluster on one machine, for tests: every program is the real one, nothing comes from a registry."""
