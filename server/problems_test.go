package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// A problem is listed by its state, shown by its id, acknowledged until a time and resolved.
func TestProblems(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	sub := s.tn.Subscribe(t, "orders", "failing", nil)
	s.tn.Fail(t, sub, 2)
	states := func(query string) []any {
		found, _ := s.listAll("/v1/problems"+query, "state")
		return found
	}
	require.Equal(t, []any{"failing"}, states(""), "before it was observed")
	s.tn.ObserveProblems(t, 0)
	id := s.tn.Text(t, "SELECT problem_id::text FROM postrider.problems")
	at := "/v1/problems/" + id
	p := s.get(at).json(200)
	require.Equal(t, []any{id, "failing", "orders", "failing", 503.0, "Busy", 2.0, 2.0, "busy", "it broke", 0.0, 2.0},
		[]any{
			p["problemId"], p["state"], p["topic"], p["subscription"], p["status"], p["outcome"], p["failures"], p["attempts"],
			p["response"], p["error"], p["openDeadLetters"], p["waiting"],
		})
	require.Len(t, p["recentFailures"], 12)
	require.Equal(t, 2.0, p["recentFailures"].([]any)[11])
	since, err := time.Parse(time.RFC3339Nano, p["since"].(string))
	require.NoError(t, err)
	require.Equal(t, since.UTC(), testnode.Value[time.Time](t, s.tn, "SELECT since FROM postrider.problems").UTC())

	acknowledged := s.post(at+"/acknowledge", `{"forMinutes": 60, "note": "known"}`).json(200)
	require.Equal(t, []any{"acknowledged", "known"}, []any{acknowledged["state"], acknowledged["note"]})
	require.NotEmpty(t, acknowledged["acknowledgedBy"])
	until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	acknowledged = s.post(at+"/acknowledge", fmt.Sprintf(`{"until": %q}`, until.Format(time.RFC3339))).json(200)
	require.Equal(t, []any{until.Format(time.RFC3339), nil},
		[]any{acknowledged["acknowledgedUntil"], acknowledged["note"]})
	for _, body := range []string{
		`{}`, `{"forMinutes": 0}`, `{"forMinutes": 43201}`, `{"until": "2020-01-01T00:00:00Z"}`,
		`{"until": "2120-01-01T00:00:00Z", "forMinutes": 1}`, `{"until": "2120-01-01T00:00:00Z"}`,
	} {
		s.post(at+"/acknowledge", body).rejected(400, "InvalidRequest")
	}
	require.Equal(t, []any{"acknowledged"}, states("?state=acknowledged"))
	require.Empty(t, states("?state=failing"))

	require.Equal(t, "resolved", s.post(at+"/resolve", `{"note": "fixed"}`).json(200)["state"])
	require.Empty(t, states(""))
	require.Equal(t, []any{"resolved"}, states("?state=resolved"))
	require.Equal(t, []any{"resolved"}, states("?state=all"))
	require.Nil(t, s.get(at).json(200)["acknowledgedUntil"])
	const none = "/v1/problems/00000000-0000-0000-0000-000000000000"
	s.get(none).rejected(404, "NotFound")
	s.post(none+"/acknowledge", `{"forMinutes": 1}`).rejected(404, "NotFound")
	s.post(none+"/resolve", "").rejected(404, "NotFound")
}
