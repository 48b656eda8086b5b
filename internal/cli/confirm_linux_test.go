package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal runs a verb at a terminal and types the confirmation.
func onTerminal(t *testing.T, reply string, args ...string) (code int, shown string) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	defer func() { _ = screen.Close() }()
	require.NoError(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	keyboard, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = keyboard.Close() }()
	_, err = screen.WriteString(reply + "\n")
	require.NoError(t, err)
	r := typed(t, keyboard, args...)
	return r.code, r.stdout + r.stderr
}

// Verbs that cannot be undone say what will be lost, and do it only after yes; without a terminal they require --yes.
func TestIrreversibleVerbsRequireConfirmation(t *testing.T) {
	t.Parallel()
	h, key := billing(t)
	h.topic("empty")
	h.publish("orders", key, cloudEvent("1"))
	ids := h.deadLetters(3)
	event := one[string](h, "SELECT system_id::text FROM postrider.events")
	key = h.topic("parcels")
	h.subscribe("parcels", "depot", "")
	h.publish("parcels", key, cloudEvent("1"), cloudEvent("2"), cloudEvent("3"))
	delivery := one[string](h, "SELECT min(delivery_id)::text FROM postrider.deliveries WHERE topic = 'parcels'")
	h.manage(http.StatusCreated, http.MethodPut, "/v1/policies/mine", `{"stepsInSeconds":[1]}`)
	for _, row := range []struct{ args, prompt, count, gone string }{
		{"deadletter purge " +
			ids[0], "Purge 1 dead letter? They and their events are lost for good. [y/N]", "postrider.dead_letters", "2"},
		{"deadletter purge --topic orders --no-wait", "Purge 2 dead letters? ", "postrider.operations", "1"},
		{"event erase " + event, "Erase event 1 of topic orders (type shop.order.placed)? Its body and subject are lost " +
			"for good, and 1 pending delivery is canceled.", "postrider.events WHERE erased_at IS NULL", "3"},
		{"delivery cancel " + delivery, "Cancel delivery " + delivery + "? You cannot undo it. An attempt in progress may " +
			"still reach the endpoint. [y/N]", "postrider.deliveries WHERE topic = 'parcels' AND state = 'pending'", "2"},
		{"delivery cancel --topic parcels --no-wait", "Cancel 2 pending deliveries? ", "postrider.operations", "2"},
		{"subscription delete orders billing", "Delete event subscription billing of topic orders? Its settings are lost, " +
			"and 0 pending deliveries will be canceled.", "postrider.event_subscriptions WHERE subscription = 'billing'", "0"},
		{"topic delete empty", "Delete topic empty? Its settings and access keys are lost for good.", "postrider.topics " +
			"WHERE topic = 'empty'", "0"},
		{"policy delete mine", "Delete retry policy mine? ", "postrider.retry_policies WHERE name = 'mine'", "0"},
	} {
		args := h.reached(strings.Fields(row.args))
		count := func() string { return one[string](h, "SELECT count(*)::text FROM "+row.count) }
		before := count()
		require.Contains(t, h.line(2, row.args), "add --yes", row.args)
		for _, reply := range []string{"", "n", "never"} {
			code, shown := onTerminal(t, reply, args...)
			require.Equal(t, 1, code, "%s: %s", row.args, shown)
			require.Contains(t, shown, row.prompt, row.args)
			require.Contains(t, shown, "nothing was changed")
		}
		require.Equal(t, before, count(), row.args)
		code, shown := onTerminal(t, "y", args...)
		require.Zero(t, code, "%s: %s", row.args, shown)
		require.Equal(t, row.gone, count(), row.args)
	}
	require.Equal(t, "1", one[string](h, "SELECT count(*)::text FROM postrider_internal.operations "+
		"WHERE kind = 'cancel' AND (filter ->> 'created_until')::timestamptz <= created_at"), "later ones are not canceled")
	code, shown := onTerminal(t, "y", h.reached([]string{"topic", "delete", "empty"})...)
	require.Equal(t, 1, code)
	require.NotContains(t, shown, "[y/N]", "no prompt for what does not exist")
}

// A confirmed purge is one of what was counted, unless counting stopped early: not of what becomes a dead letter while
// the prompt is open.
func TestPurgeIsLimitedToWhatWasCounted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args, counted string
		until         time.Time // the zero time: when it counted
		expected      any
	}{
		{"--all", `{"matched":2,"atLeast":false}`, time.Time{}, 2.0},
		{"--all", `{"matched":2,"atLeast":true}`, time.Time{}, nil},
		{"--topic orders --until 2100-01-01", `{"matched":2,"atLeast":false}`, time.Time{}, 2.0},
		{"--until 2026-01-01 --expected-count 3", `{"matched":2}`, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 3.0},
	} {
		var requests []map[string]any
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if r.Method == http.MethodPost && assert.NoError(t, json.NewDecoder(r.Body).Decode(&body)) {
				requests = append(requests, body)
			}
			if body["dryRun"] == true {
				_, _ = fmt.Fprint(w, row.counted)
			} else {
				_, _ = fmt.Fprint(w, `{"operationId":"0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"}`)
			}
		}))
		began := time.Now()
		args := append(strings.Fields("deadletter purge --no-wait"), strings.Fields(row.args)...)
		code, shown := onTerminal(t, "y", append(args, "--url", server.URL, "--api-key", "key")...)
		server.Close()
		require.Zero(t, code, shown)
		require.Len(t, requests, 2)
		require.Equal(t, true, requests[0]["dryRun"])
		require.Equal(t, requests[0]["filter"], requests[1]["filter"])
		require.Equal(t, row.expected, requests[1]["expectedCount"])
		until, err := time.Parse(time.RFC3339, requests[1]["filter"].(map[string]any)["deadLetteredUntil"].(string))
		require.NoError(t, err)
		if row.until.IsZero() {
			require.WithinRange(t, until, began, time.Now())
		} else {
			require.Equal(t, row.until, until)
		}
	}
}
