// Package observe has no code: its tests try docs/observability.md on what it speaks of, that is, on the exporters of
// OpenTelemetry, a collector, and Prometheus.
package observe
