package testnode

import "testing"

// Each of these counts the rows of a table for which a condition holds; all, if it is empty.

// Jobs counts River's jobs.
func (n *Node) Jobs(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "river_job", where, args)
}

// Pending counts pending deliveries.
func (n *Node) Pending(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "deliveries", where, args)
}

// Ended counts deliveries that have ended.
func (n *Node) Ended(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "delivery_history", where, args)
}

// Recorded counts recorded attempts.
func (n *Node) Recorded(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "delivery_attempts", where, args)
}

// Events counts stored events.
func (n *Node) Events(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "events", where, args)
}

// EventKeys counts the keys by which duplicates are found.
func (n *Node) EventKeys(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "event_keys", where, args)
}

// Routes counts publishes that are not routed to the end yet.
func (n *Node) Routes(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "routes", where, args)
}

// Batches counts batches.
func (n *Node) Batches(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "batches", where, args)
}

// Probations counts endpoints that have failed lately.
func (n *Node) Probations(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "probations", where, args)
}

// Nodes counts the rows of nodes, whether they live or not.
func (n *Node) Nodes(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "nodes", where, args)
}

// Exports counts exports of dead letters that have not ended.
func (n *Node) Exports(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "exports", where, args)
}

// Notices counts notices that are not published yet.
func (n *Node) Notices(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "notices", where, args)
}

// Repairs counts edited events.
func (n *Node) Repairs(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "repairs", where, args)
}

// Subscriptions counts event subscriptions, those that are being deleted too.
func (n *Node) Subscriptions(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "event_subscriptions", where, args)
}

// Sessions counts signed-in browsers.
func (n *Node) Sessions(t testing.TB, where string, args ...any) int {
	t.Helper()
	return n.rows(t, "sessions", where, args)
}

func (n *Node) rows(t testing.TB, table, where string, args []any) int {
	t.Helper()
	query := "SELECT count(*) FROM postrider_internal." + table
	if where != "" {
		query += " WHERE " + where
	}
	return n.Count(t, query, args...)
}
