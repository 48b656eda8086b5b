package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A column that is equal in all rows is one line above the table, but not with one row. Dead letters show the last
// error or response.
func TestFoldedColumns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now(), subject: "/orders/1", outcome: "Busy"})
	page := b.page(t, "/ui/dead-letters")
	require.NotContains(t, page, `class="folded"`)
	b.insert(t, deadLetter{at: time.Now(), subject: "/orders/2", outcome: "Busy"})
	b.Exec(t, "UPDATE postrider_internal.dead_letters SET last_response = 'currency is not enabled' "+
		"WHERE subject = '/orders/2'")
	page = b.page(t, "/ui/dead-letters")
	requireValidMarkup(t, "/ui/dead-letters", page)
	require.Contains(t, text(page), "Type Order.Placed , Event subscription billing of orders , "+
		"Reason MaxDeliveryAttemptsExceeded , Last outcome Busy in all rows.")
	require.NotContains(t, page, `data-label="Reason"`)
	require.Contains(t, page, `data-label="Subject"`)
	require.Contains(t, page, `data-label="Attempts"`, "numbers are not folded")
	require.Contains(t, text(page), "currency is not enabled")
	b.Exec(t, `UPDATE postrider_internal.dead_letters SET last_response = NULL`)
	b.requireTexts(t, "/ui/dead-letters", "No value in Last error.")
}
