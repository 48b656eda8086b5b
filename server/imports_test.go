package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// internal/operator has what an import stores, and internal/event what it reads.
func TestImportDeadLetters(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	const path = "/v1/topics/orders/importDeadLetters"
	const dead = `{ "id":"1","subject":"s","eventType":"t","eventTime":"2026-03-04T05:06:07Z","deadLetterReason":"R" }`
	letter := func(file string, index int, subscription, dead string) string {
		return fmt.Sprintf(`{"importedFrom":%q,"index":%d,"subscription":%q,"deadLetter":%s}`, file, index, subscription,
			dead)
	}
	send := func(letters ...string) response {
		return s.post(path, `{"deadLetters":[`+strings.Join(letters, ",")+`]}`)
	}
	first := letter("a.json", 0, "billing", dead)
	done := send(first).json(200)
	require.EqualValues(t, 1, done["imported"])
	result := done["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"a.json", 0.0, "imported"}, []any{result["importedFrom"], result["index"], result["result"]})
	shown := s.get("/v1/deadLetters/" + result["deadLetterId"].(string)).json(200)
	require.Equal(t, []any{"a.json", 0.0, nil, "R"},
		[]any{shown["importedFrom"], shown["importedIndex"], shown["deliveryId"], shown["reason"]})
	require.Contains(t, s.get("/v1/deadLetters/"+result["deadLetterId"].(string)).body,
		`"event":{ "id":"1","subject":"s","eventType":"t","eventTime":"2026-03-04T05:06:07Z" }`)
	done = send(first, letter("a.json", 1, "billing", strings.Replace(dead, `"1"`, `"2"`, 1))).json(200)
	require.Equal(t, []any{1.0, 1.0}, []any{done["imported"], done["alreadyImported"]})

	for _, row := range []struct{ body, target, says string }{
		{`{}`, "deadLetters", "must have between 1 and 500 dead letters, not 0"},
		{`{"deadLetters":[` + strings.Repeat(`{},`, 500) + `{}]}`, "deadLetters", "not 501"},
		{`{"letters":[]}`, "letters", "is not a member"},
		{`{"deadLetters":[{"deadLetter":` + dead + `,"topic":"x"}]}`, "deadLetters[0].topic", "is not a member"},
		{
			`{"deadLetters":[` + letter(strings.Repeat("x", 1025), 0, "billing", dead) + `]}`, "deadLetters[0].importedFrom",
			"must be 1 to 1024 bytes long",
		},
		{`{"deadLetters":[` + letter("b", -1, "billing", dead) + `]}`, "deadLetters[0].index", "must be between 0 and"},
		{
			`{"deadLetters":[` + letter("b", 0, "billing", dead) + "," + letter("b", 0, "billing", dead) + `]}`,
			"deadLetters[1].index", "is the place of deadLetters[0], in the same file",
		},
		{
			`{"deadLetters":[` + letter("b", 0, "billing", `{"id":"1"}`) + `]}`, "deadLetters[0].deadLetter",
			"no dead letter: it has none of the members",
		},
		{
			`{"deadLetters":[` + letter("b", 0, "billing", strings.Replace(dead, "2026-03", "2026-13", 1)) + `]}`,
			"deadLetters[0].deadLetter.eventTime", "not an RFC 3339 time",
		},
		{`{"deadLetters":[{"importedFrom":"b","subscription":"billing"}]}`, "deadLetters[0].deadLetter", "not an object"},
		{
			`{"deadLetters":[` + letter("b", 0, "none", dead) + `]}`, "deadLetters[0].subscription",
			`must be an event subscription of topic "orders", not "none"`,
		},
		{
			`{"deadLetters":[` + letter("c", 0, "billing", strings.Replace(dead, `"1"`, `"3"`, 1)) + "," +
				letter("a.json", 0, "billing", strings.Replace(dead, `"1"`, `"4"`, 1)) + `]}`, "deadLetters[1].index",
			"is a place of the file from which another event was imported",
		},
	} {
		rejected := s.post(path, row.body)
		require.Contains(t, rejected.rejected(400, "InvalidRequest").Message, row.says)
		require.Equal(t, []string{row.target}, targets(rejected.rejected(400, "InvalidRequest")))
	}
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.dead_letters"), "nothing of a rejected request is stored")
	s.post("/v1/topics/none/importDeadLetters", `{"deadLetters":[`+first+`]}`).rejected(404, "NotFound")
	s.post(path, `{"deadLetters":[`+letter("d", 0, "billing", `"`+strings.Repeat("x", 4<<20)+`"`)+`]}`).
		rejected(413, "PayloadTooLarge")
}
