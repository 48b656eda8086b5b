package testnode

import "testing"

// Each of these counts the rows of a table for which a condition holds; all, if it is empty.

// Jobs counts River's jobs.
func (tn *Node) Jobs(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "river_job", where, args)
}

// Pending counts pending deliveries.
func (tn *Node) Pending(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "deliveries", where, args)
}

// Ended counts deliveries that have ended.
func (tn *Node) Ended(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "delivery_history", where, args)
}

// Recorded counts recorded attempts.
func (tn *Node) Recorded(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "delivery_attempts", where, args)
}

// Events counts stored events.
func (tn *Node) Events(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "events", where, args)
}

// EventKeys counts the keys by which duplicates are found.
func (tn *Node) EventKeys(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "event_keys", where, args)
}

// Routes counts publishes that are not routed to the end yet.
func (tn *Node) Routes(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "routes", where, args)
}

// Batches counts batches.
func (tn *Node) Batches(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "batches", where, args)
}

// Probations counts endpoints that have failed lately.
func (tn *Node) Probations(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "probations", where, args)
}

// Nodes counts the rows of nodes, whether they live or not.
func (tn *Node) Nodes(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "nodes", where, args)
}

// Exports counts exports of dead letters that have not ended.
func (tn *Node) Exports(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "exports", where, args)
}

// Notices counts notices that are not published yet.
func (tn *Node) Notices(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "notices", where, args)
}

// Repairs counts edited events.
func (tn *Node) Repairs(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "repairs", where, args)
}

// Subscriptions counts event subscriptions, those that are being deleted too.
func (tn *Node) Subscriptions(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "event_subscriptions", where, args)
}

// Sessions counts signed-in browsers.
func (tn *Node) Sessions(t testing.TB, where string, args ...any) int {
	t.Helper()
	return tn.rows(t, "sessions", where, args)
}

func (tn *Node) rows(t testing.TB, table, where string, args []any) int {
	t.Helper()
	query := "SELECT count(*) FROM postrider_internal." + table
	if where != "" {
		query += " WHERE " + where
	}
	return tn.Count(t, query, args...)
}

// Rows counts the rows of a documented view for which a condition holds; all, if it is empty.
func (tn *Node) Rows(t testing.TB, view, where string, args ...any) int {
	t.Helper()
	return tn.Count(t, viewQuery(view, where), args...)
}

// BecomeRows waits until Rows returns a number.
func (tn *Node) BecomeRows(t testing.TB, want int, view, where string, args ...any) {
	t.Helper()
	tn.Become(t, want, viewQuery(view, where), args...)
}

func viewQuery(view, where string) string {
	query := "SELECT count(*) FROM postrider." + view
	if where != "" {
		query += " WHERE " + where
	}
	return query
}
