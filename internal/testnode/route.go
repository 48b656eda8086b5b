package testnode

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
)

// RouteJobs lists the jobs of routes.
func (tn *Node) RouteJobs(t testing.TB) []int64 {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(),
		"SELECT id FROM postrider_internal.river_job WHERE kind = 'route' AND finalized_at IS NULL ORDER BY id")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return ids
}

// StepRoutes makes one step of each route, on all stores at once, and says how many routes there were.
func (tn *Node) StepRoutes(t testing.TB, stores ...*node.System) int {
	t.Helper()
	var group sync.WaitGroup
	_, _, err := stores[0].Publisher.CollectPublishes(t.Context())
	require.NoError(t, err)
	jobs := tn.RouteJobs(t)
	for _, s := range stores {
		for _, job := range jobs {
			group.Go(func() { require.NoError(t, s.Publisher.Route(t.Context(), job)) })
		}
	}
	group.Wait()
	require.Zero(t, tn.Count(t, BrokenRoutes))
	return len(jobs)
}

// RouteAll routes to the end and says how many rounds it took.
func (tn *Node) RouteAll(t testing.TB, stores ...*node.System) (rounds int) {
	t.Helper()
	for tn.StepRoutes(t, stores...) > 0 {
		rounds++
	}
	return rounds
}
