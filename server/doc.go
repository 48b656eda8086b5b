// Package server is the REST API: publishing on /topics, management under /v1, health checks and metrics, and the
// OpenAPI document at /openapi.yaml and /openapi.
package server
