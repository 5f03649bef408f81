"""Prometheus metrics of a running server. No label value comes from a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from ripml.server.served_store import ServedStore

__all__ = ["METHODS", "Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class Metrics:
    """The metrics of one app.

    >>> metrics = Metrics({})
    >>> metrics.answered("GET", "/health", 200, 0.001)
    >>> b'ripml_requests_total{method="GET",route="/health",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self, stores: Mapping[str, ServedStore]) -> None:
        self._stores = stores
        self._registry = registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("ripml_requests_total", "Requests answered.", labels, registry=registry)
        self._seconds = Histogram(
            "ripml_request_seconds", "Time to answer.", ("route",), buckets=_SECONDS, registry=registry
        )
        self.requests_in_flight = Gauge("ripml_requests_in_flight", "Requests being answered.", registry=registry)
        self.bytes_in_flight = Gauge(
            "ripml_bytes_in_flight", "Bytes of their bodies and of large responses.", registry=registry
        )
        self.batch_sizes = Histogram(
            "ripml_batch_size", "Texts scored together.", ("store",), buckets=_SIZES, registry=registry
        )
        # Drift: texts like those of the fit have familiarities that are uniform between 0 and 1.
        self._familiarity = Histogram(
            "ripml_familiarity", "Familiarity of texts asked about.", ("store",), buckets=_SHARES, registry=registry
        )
        self._best_scores = Histogram(
            "ripml_best_score", "Best scores of texts asked about.", ("store",), buckets=_SHARES, registry=registry
        )
        self.writes = Counter("ripml_writes_total", "Writes to the disk.", ("store", "kind"), registry=registry)
        self.refits = Counter("ripml_refits_total", "Refits that ended.", ("store", "outcome"), registry=registry)
        labels = ("store", "kind", "outcome")
        self.jobs = Counter(
            "ripml_jobs_total", "Compactions, checks, audits, reports, backups that ended.", labels, registry=registry
        )
        registry.register(self)

    def asked(self, store: str, familiarity: Iterable[float], best: Iterable[float]) -> None:
        """Count how familiar texts are that a store was asked about, and the scores of their best labels."""
        for histogram, values in ((self._familiarity, familiarity), (self._best_scores, best)):
            of_store = histogram.labels(store)
            for value in values:
                of_store.observe(value)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the path's template."""
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The sizes of the stores, and what was decided in them; called by the registry."""
        gauges = {
            "documents": GaugeMetricFamily("ripml_documents", "Documents of a store.", labels=["store"]),
            "labels": GaugeMetricFamily("ripml_labels", "Labels of a store.", labels=["store"]),
            "version": GaugeMetricFamily("ripml_version", "Number of a store's last change.", labels=["store"]),
        }
        decided = CounterMetricFamily(
            "ripml_decided_labels", "Labels that were accepted and rejected.", labels=["store", "outcome"]
        )
        for name, store in self._stores.items():
            for size, value in store.sizes().items():
                gauges[size].add_metric([name], value)
            for outcome, value in store.decided_labels().items():
                decided.add_metric([name, outcome], value)
        yield from (*gauges.values(), decided)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
