// Package observe has no code. Its tests run docs/observability.md and docs/alerts.yaml against the
// exporters of OpenTelemetry, a collector and Prometheus.
package observe
