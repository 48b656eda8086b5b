package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Commands in messages are ones that the program has: with --help each ends well, whatever it would do.
func TestCommandsInMessagesExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../message/testdata/*.golden")
	require.NoError(t, err)
	commands := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, pager, found := strings.Cut(string(text), "# PagerDuty\n")
		require.True(t, found, file)
		var event struct {
			Payload struct {
				CustomDetails struct{ Command string } `json:"custom_details"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(pager), &event))
		commands[event.Payload.CustomDetails.Command] = true
	}
	delete(commands, "")                          // of an unknown type
	delete(commands, "postrider problem show 81") // made by the notice
	require.Greater(t, len(commands), 5)
	for command := range commands {
		words := strings.Fields(command)
		require.Equal(t, "postrider", words[0])
		require.Zero(t, postrider(t, slices.Concat(words[1:], []string{"--help"})...).code, command)
		unknown := postrider(t, slices.Concat(words[1:], []string{"--no-such-flag"})...)
		require.Contains(t, unknown.stderr, "no-such-flag", "all before it are known: %s", command)
	}
}

func TestMessageFlags(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	require.NoError(t, h.System.Topics.EnsureSystem(t.Context()))
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("planted\n"), 0o600))
	for _, args := range [][]string{
		{"chat", "--endpoint", "https://hooks.slack.com/services/planted", "--message-format", "slack"},
		{
			"pager", "--endpoint", "https://events.pagerduty.com/v2/enqueue", "--message-format", "PagerDuty",
			"--pagerduty-routing-key-file", key,
		},
	} {
		r := h.run(0, append([]string{"subscription", "create", catalog.SystemTopic}, args...)...)
		require.Contains(t, r.stdout, "message format")
		require.NotContains(t, r.stdout, "planted")
	}
	sub, err := h.System.Subscriptions.Get(t.Context(), catalog.SystemTopic, "pager")
	require.NoError(t, err)
	require.Equal(t, "planted", sub.PagerDutyRoutingKey)
}
