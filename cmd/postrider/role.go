package main

import (
	"context"
	"encoding/json"
	"net/http"

	"postrider/jobs"
	"postrider/server"
)

// role is the part of the service that a node runs. Nodes of all roles share one database.
type role string

const (
	roleAll    role = "all"
	roleAPI    role = "api"    // serves REST API and dashboard
	roleWorker role = "worker" // delivers
)

func (r role) serves() bool   { return r != roleWorker }
func (r role) delivers() bool { return r != roleAPI }

// keepPartitions is the maintenance of a node without an engine: its publishes need today's partitions, even if no
// worker has run since yesterday.
func (a *instance) keepPartitions(ctx, run context.Context, o appOptions) error {
	if err := a.store.Maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	a.running.Go(func() { jobs.KeepPartitions(run, a.store.Maintenance, o.log) })
	return nil
}

// healthOnly is the API of a worker: health and metrics. Other requests are directed to other nodes.
func healthOnly(full http.Handler) http.Handler {
	paths := http.NewServeMux()
	paths.Handle("GET /healthz", full)
	paths.Handle("GET /readyz", full)
	paths.Handle("GET /metrics", full)
	paths.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{
			"code": "NotFound", "message": "this node only delivers (--role worker); use one with --role api or all",
		}})
	})
	return server.Guarded(paths)
}
