package publish_test

import (
	"testing"

	"postrider/internal/testnode"
	"postrider/jobs/publish"
)

func TestKeptPlansReadTablesByKeys(t *testing.T) {
	t.Parallel()
	testnode.RequireKeysInPlans(t, publish.PublishStatements())
}
