"""FEED: seeded workloads and real data, streamed as Arrow tables."""

from nearcast.workload.generator import WORKLOADS, Workload, make
