package event_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/event"
)

var update = flag.Bool("update", false, "write testdata/deadletters.txt")

// Every form of a dead letter that Microsoft's pages and real files have. The expected texts are in
// testdata/deadletters.txt.
func TestReadDeadLetter(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/deadletters/*")
	require.NoError(t, err)
	require.Len(t, files, 12)
	var read strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		schema := event.EventGrid
		if strings.Contains(file, "custom") {
			schema = event.Custom
		}
		letters, err := event.SplitDeadLetters(text)
		fmt.Fprintf(&read, "== %s\n", filepath.Base(file))
		for _, letter := range letters {
			d, err := deadLetterInput(schema).ReadDeadLetter(letter)
			require.NoError(t, err, file)
			read.WriteString(printed(d))
		}
		if err != nil {
			fmt.Fprintln(&read, "error:", err)
		}
	}
	const golden = "testdata/deadletters.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(read.String()), 0o600))
	}
	expected, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(expected), read.String())
}

func deadLetterInput(schema event.Schema) event.Input {
	in := event.Input{Schema: schema, Topic: "orders"}
	if schema == event.Custom {
		in.Mapping, in.NewID, in.Now = &event.Mapping{}, uuid.NewString, time.Now()
	}
	return in
}

func printed(d *event.DeadLetter) string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format(time.RFC3339Nano)
	}
	e := &d.Event
	return fmt.Sprintf("%q attempts %d outcome %q status %d published %s last %s\n%s id %q type %q subject %q source %q "+
		"time %s version %q trace %q\n%s\n", d.Reason, d.Attempts, d.Outcome, d.Status, at(d.PublishedAt),
		at(d.LastAttemptAt), e.Schema, e.ID, e.Type, e.Subject, e.Source, at(e.Time), e.DataVersion, e.Trace.Parent, e.Body)
}

func TestReadDeadLetterRejects(t *testing.T) {
	t.Parallel()
	const grid = `{"id":"1","subject":"s","eventType":"t","eventTime":"2026-03-04T05:06:07Z","deadLetterReason":"R"`
	const custom = `,"data":null}`
	for _, row := range []struct{ text, says string }{
		{`[]`, "not an object of JSON"},
		{`{"id":"1"}`, "no dead letter: it has none of the members"},
		{grid + `,"id":"2"}`, "id: appears twice"},
		{grid + `,"deliveryAttempts":-1}`, "deliveryAttempts: must be a whole number from 0 to 2147483647, is -1"},
		{grid + `,"deliveryAttempts":1.5}`, "is 1.5"},
		{grid + `,"lastHttpStatusCode":1000}`, "lastHttpStatusCode: must be a whole number from 0 to 999"},
		{grid + `,"publishTime":"yesterday"}`, "publishTime: not an RFC 3339 time"},
		{strings.Replace(grid, `"R"`, `""`, 1) + `}`, "deadLetterReason: must be 1 to 1024 bytes long"},
		{strings.Replace(grid, `"R"`, `"a\nb"`, 1) + `}`, "deadLetterReason: must not contain a line break"},
		{strings.Replace(grid, `"id":"1",`, ``, 1) + `}`, "id: is required"},
		{grid + custom, "data: is required: topic \"orders\" has custom events"},
		{`{"deadletterreason":"R","id":"1","source":"s","type":"t","data":1,"data_base64":"AA=="}`, "data_base64: must be"},
		{
			`{"deadLetterProperties":{},"event":{"specversion":"1.0","id":"1","source":"s","type":"t"}}`,
			"deadletterreason: is required",
		},
		{
			`{"deadLetterProperties":{"deadletterreason":"R"},"event":{"specversion":"0.3","id":"1","source":"s","type":"t"}}`,
			"specversion: must be",
		},
		{grid + `,"data":"` + strings.Repeat("a", 2<<20) + `"}`, "an event has at most 2097152 bytes"},
		{grid + `,"data":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, "nested deeper than"},
	} {
		schema := event.EventGrid
		if strings.HasSuffix(row.text, custom) {
			schema = event.Custom
		}
		_, err := deadLetterInput(schema).ReadDeadLetter([]byte(row.text))
		var rejected *event.Error
		require.ErrorAs(t, err, &rejected, row.says)
		require.Contains(t, rejected.About("it"), row.says)
	}
}

func TestSplitDeadLettersRejects(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                  "",
		"{}\n[{},":          "not JSON: the text ends too early, at line 2, column 5",
		"{}\n{\"a\":1,}":    "not JSON: expected a member's name in double quotes, at line 2, column 8",
		"{}\n[{}, 5]":       "must be an object, is a number",
		"{}{}\nnull":        "must be an object, is null",
		"{}{}<html></html>": "not JSON: expected a value, at line 1, column 5",
	} {
		letters, err := event.SplitDeadLetters([]byte(text))
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
		require.NotEmpty(t, letters, "those before the mistake")
	}
}

// What AppendDeadLetter writes is read again.
func TestReadWrittenDeadLetter(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 8900, time.UTC)
	for _, e := range []event.Event{
		{Schema: event.EventGrid, Body: []byte(`{"id":"1","subject":"","eventType":"t","eventTime":"2026-03-04T05:06:07Z",` +
			`"topic":"/topics/orders","metadataVersion":"1","dataVersion":""}`)},
		{Schema: event.CloudEvents, Body: []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","deliveryresult":5,` +
			`"data":1.0}`)}, // with an extension attribute that is a property in the other form
		{Schema: event.Custom, ID: "1", Type: "t", Time: at, Body: []byte(`{ "a":1.0 }`)},
	} {
		for _, form := range []event.DeadLetterForm{event.DeadLetterFlat, event.DeadLetterNested} {
			written := event.DeadLetter{
				Event: e, Topic: "orders", Delivery: e.Schema, Reason: "R", Attempts: 2, Outcome: "Busy", PublishedAt: at,
				LastAttemptAt: at,
			}
			if form == event.DeadLetterFlat {
				written.Status = 503
			}
			text, err := event.AppendDeadLetter(nil, &written, form)
			require.NoError(t, err)
			d, err := deadLetterInput(e.Schema).ReadDeadLetter(text)
			require.NoError(t, err, string(text))
			if form == event.DeadLetterFlat || e.Schema != event.EventGrid { // else it was converted
				require.Equal(t, string(e.Body), string(d.Event.Body))
				require.Equal(t, e.Schema, d.Event.Schema)
			}
			if e.Schema == event.Custom {
				require.Empty(t, d.Event.Source, "that of this topic")
			}
			d.Event, d.Topic, d.Delivery = e, "orders", e.Schema
			require.Equal(t, &written, d)
		}
	}
}
