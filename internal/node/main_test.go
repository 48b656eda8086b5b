package node_test

import (
	"fmt"
	"os"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Migrate)) }

// smallMemory is a store that holds 1 MiB of bodies, the least there is.
func smallMemory(t *testing.T, tn *testnode.Node) *node.System {
	t.Helper()
	s := tn.Beside(t, node.Options{Node: "node-small", MaxBodyBytes: 1}).System
	return s
}

// bigPublication makes n events whose bodies have the size given.
func bigPublication(topic string, n, bytes int) publish.Publication {
	return publish.Publication{Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) {
		events := make([]event.Event, n)
		for i := range events {
			events[i] = event.Event{Schema: event.EventGrid, ID: fmt.Sprint(i), Type: "test", Body: make([]byte, bytes)}
		}
		return events, nil
	}}
}
