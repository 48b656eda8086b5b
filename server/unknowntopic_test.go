package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Responses without a valid credential do not show whether a topic exists. A wrong key, an unknown API key and a wrong
// signature get the same response, and limit the address in the same way.
func TestUnknownTopicsRespondLikeWrongKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	wrong := map[string][]string{
		"a key":         {"aeg-sas-key", "cG9zdHJpZGVyLWEta2V5LWZvci1hLXRlc3Qtb2YtdGltZSE="},
		"a bearer":      {"Authorization", "Bearer wrong"},
		"an API key":    {"Authorization", "Bearer prk_" + fmt.Sprintf("%043d", 0)},
		"no credential": nil,
	}
	for name, headers := range wrong {
		for _, path := range []string{"/topics/%s/api/events", "/topics/%s:publish"} {
			there := b.send(http.MethodPost, fmt.Sprintf(path, "orders"), "[]", headers...)
			missing := b.send(http.MethodPost, fmt.Sprintf(path, "parcels"), "[]", headers...)
			there.rejected(http.StatusUnauthorized, "Unauthorized")
			there.header.Del("Date")
			missing.header.Del("Date")
			require.Equal(t, there.status, missing.status, name)
			require.Equal(t, there.header, missing.header, name)
			require.Equal(t, there.body, missing.body, name)
		}
	}

	for _, topic := range []string{"orders", "parcels"} {
		fresh := setup(t)
		fresh.topic("orders", "")
		responses := map[int]int{}
		for range wrongGuesses {
			responses[fresh.publish(topic, "wrong", "[]").status]++
		}
		require.InDelta(t, 30, responses[http.StatusUnauthorized], 10, "%s: %v", topic, responses) // one more each second
		require.Equal(t, wrongGuesses, responses[http.StatusUnauthorized]+responses[http.StatusTooManyRequests], topic)
		last := fresh.publish("orders", "wrong", "[]")
		require.Contains(t, last.rejected(http.StatusTooManyRequests, "TooManyRequests").Message, "your address")
	}
}

const wrongGuesses = 80
