// Package server is the REST API: publishing on /topics, management under /v1, health checks, and the specification of
// all that at /openapi.yaml, for people at /openapi. It answers requests and never calls out. It decides nothing about
// events or deliveries: envelopes are read by package event, ranges and addresses are judged by package policy, and
// publishing in package jobs/publish. It serves no other pages.
package server
