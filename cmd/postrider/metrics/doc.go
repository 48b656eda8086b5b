// Package metrics serves the metrics of a node to Prometheus.
package metrics
