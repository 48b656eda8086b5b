package testnode

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/require"
)

// BrokenTokens counts violations: every pending delivery has exactly one of: a live job, and both name each other; a
// pending batch that has a live job or a hold; a hold; the open set of an event subscription with a live batch
// cutter; or a consumer may receive it. And every live job but a batch cutter has such a delivery or batch; a lock's
// job is one, too.
//
//go:embed broken_tokens.sql
var BrokenTokens string

// BrokenRoutes counts violations: every route has exactly one live job, and both name each other; and every live
// route job has such a route.
//
//go:embed broken_routes.sql
var BrokenRoutes string

// BrokenOperations counts violations: every running operation has exactly one live job, and both name each other.
//
//go:embed broken_operations.sql
var BrokenOperations string

// EndedTwice counts violations: a delivery that has ended is not pending, and has one row of history.
//
//go:embed ended_twice.sql
var EndedTwice string

// Miscounted counts violations: the attempts of a delivery, alone and in a batch, are numbered 1, 2, 3, …, as many
// as the delivery counts and the limit allows. A late response is a second row of an attempt.
//
//go:embed miscounted.sql
var Miscounted string

// TooEarly counts violations: no attempt began before the time that the attempt before it had set, nor before the
// minimum delay of its status, unless an operator requested it.
//
//go:embed too_early.sql
var TooEarly string

// MiscountedBacklogs counts violations: the counted backlogs are equal to the real ones.
//
//go:embed miscounted_backlogs.sql
var MiscountedBacklogs string

// RequireInvariants runs after every test of New. Each of the statements counts what must never be.
func (tn *Node) RequireInvariants(t testing.TB) {
	t.Helper()
	require.Zero(t, tn.Count(t, BrokenTokens),
		"every pending delivery has exactly one live job, batch, hold, or batch cutter")
	require.Zero(t, tn.Count(t, BrokenRoutes), "every route has exactly one live job")
	require.Zero(t, tn.Count(t, BrokenOperations), "every operation has exactly one live job")
	require.Zero(t, tn.Count(t, EndedTwice), "every delivery ends once")
	require.Zero(t, tn.Count(t, Miscounted), "recorded attempts are counted and never exceed the limit")
	require.Zero(t, tn.Count(t, TooEarly), "no attempt runs before its time")
	require.Zero(t, tn.Count(t, MiscountedBacklogs), "backlogs are exact")
}
