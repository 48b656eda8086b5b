package queue_test

import (
	"testing"

	"postrider/internal/testnode"
	"postrider/jobs/queue"
)

func TestKeptPlansReadTablesByKeys(t *testing.T) {
	t.Parallel()
	testnode.RequireKeysInPlans(t, queue.QueueStatements())
}
