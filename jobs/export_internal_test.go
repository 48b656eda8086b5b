package jobs

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/event"
	"postrider/store"
)

func TestExportBody(t *testing.T) {
	t.Parallel()
	fit, unfit := uuid.New(), uuid.New()
	letter := func(id uuid.UUID, body string) store.ExportLetter {
		return store.ExportLetter{ID: id, DeadLetter: event.DeadLetter{Event: event.Event{Schema: event.CloudEvents, Body: []byte(body)}, Reason: "r"}}
	}
	const want = `{"id":"1","deadletterreason":"r","deliveryattempts":0,"publishtime":"0001-01-01T00:00:00.0000000Z"}`
	for name, c := range map[string]struct {
		letters []store.ExportLetter
		want    string
		unfit   int
	}{
		"none":      {nil, "[]", 0},
		"two":       {[]store.ExportLetter{letter(fit, `{"id":"1"}`), letter(fit, `{"id":"1"}`)}, "[" + want + "," + want + "]", 0},
		"the first": {[]store.ExportLetter{letter(unfit, `[`), letter(fit, `{"id":"1"}`)}, "[" + want + "]", 1},
		"the last":  {[]store.ExportLetter{letter(fit, `{"id":"1"}`), letter(unfit, `[`)}, "[" + want + "]", 1},
		"all":       {[]store.ExportLetter{letter(unfit, `[`)}, "[]", 1},
	} {
		body, left := exportBody(&store.Export{Letters: c.letters})
		require.Equal(t, c.want, string(body), name)
		require.Len(t, left, c.unfit, name)
		for id := range left {
			require.Equal(t, unfit, id, name)
		}
	}
}
