package main

import (
	"context"
	"encoding/json"
	"net/http"

	"postrider/jobs"
	"postrider/server"
)

// role is which part of the service a node runs. Nodes of all roles share one database and find each other's work
// there.
type role string

const (
	roleAll    role = "all"
	roleAPI    role = "api"    // answers: REST API and dashboard
	roleWorker role = "worker" // delivers
)

func (r role) answers() bool  { return r != roleWorker }
func (r role) delivers() bool { return r != roleAPI }

// keepPartitions is what a node without an engine needs of the clockwork: its publishes must find today's partitions
// also when no worker has run since yesterday.
func (a *instance) keepPartitions(ctx, run context.Context, o appOptions) error {
	if err := a.store.Maintenance.EnsurePartitions(ctx); err != nil {
		return err
	}
	a.running.Go(func() { jobs.KeepPartitions(run, a.store.Maintenance, o.log) })
	return nil
}

// healthOnly is a worker's door: what an orchestrator and a monitor ask, and for everybody else a word on where to go.
func healthOnly(full http.Handler) http.Handler {
	doors := http.NewServeMux()
	doors.Handle("GET /healthz", full)
	doors.Handle("GET /readyz", full)
	doors.Handle("GET /metrics", full)
	doors.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{
			"code": "NotFound", "message": "this node only delivers (--role worker); ask one with --role api or all",
		}})
	})
	return server.Guarded(doors)
}
