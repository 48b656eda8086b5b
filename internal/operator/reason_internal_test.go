package operator

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// What an operation shows as its last error has neither the SQL hint of our functions nor PostgreSQL's own text.
func TestReasonsOfOperationsAreReadable(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*pgconn.PgError{
		"event subscription \"all\" was deleted": {
			Code: "55000", ConstraintName: "deleted", Routine: "exec_stmt_raise",
			Message: "event subscription \"all\" was deleted", Hint: "SELECT topic FROM postrider.topics lists those there are.",
		},
		"the database rejected a change; the log of the node has the cause": {
			Code: "55000", Routine: "exec_stmt_raise", Message: "no partition", Hint: "Start postrider serve.",
		},
	} {
		require.Equal(t, want, reason(err))
	}
}
