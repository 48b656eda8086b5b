package endpointconf_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
)

// key is a signing key of n equal bytes.
func key(n int, of byte) []byte { return bytes.Repeat([]byte{of}, n) }

// The example of the specification's libraries.
func TestSignExampleOfTheSpecification(t *testing.T) {
	t.Parallel()
	secret, err := endpointconf.ParseSigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	at := time.Unix(1614265330, 999_999_999)
	got := endpointconf.NewSigning(secret, at).Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}

// verifies uses Standard Webhooks' library.
func verifies(t *testing.T, secret, id string, at time.Time, signature, body string) bool {
	t.Helper()
	receiver, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return receiver.VerifyIgnoringTimestamp([]byte(body), signed(id, at, signature)) == nil
}

// signed are the headers of a delivery.
func signed(id string, at time.Time, signature string) http.Header {
	header := http.Header{}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return header
}

// A recorded delivery cannot be sent later: receivers reject a time more than five minutes from theirs, and the
// signature covers the time.
func TestReplayedSignatureIsRejected(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := endpointconf.NewSigning(key(24, 7), now)
	receiver, err := standardwebhooks.NewWebhook(s.Secrets[0].Text())
	require.NoError(t, err)
	verify := func(at, says time.Time) error {
		return receiver.Verify([]byte("{}"), signed("id", says, s.Sign("id", at, []byte("{}"))))
	}
	old := now.Add(-6 * time.Minute)
	require.NoError(t, verify(now, now))
	require.ErrorIs(t, verify(old, old), standardwebhooks.ErrMessageTooOld)
	require.ErrorIs(t, verify(old, now), standardwebhooks.ErrNoMatchingSignature)
}

func TestSignatureVerifies(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	for _, size := range []int{24, 32, 64} {
		s := endpointconf.NewSigning(key(size, 7), at)
		secret := s.Secrets[0].Text()
		for _, body := range []string{"", "{}", `[{"a":"é.\u0000"}]`, strings.Repeat("x", 1<<20)} {
			got := s.Sign("id", at, []byte(body))
			require.True(t, verifies(t, secret, "id", at, got, body))
			require.False(t, verifies(t, secret, "id", at, got, body+" "), "another body")
			require.False(t, verifies(t, secret, "id2", at, got, body), "another id")
			require.False(t, verifies(t, secret, "id", at.Add(time.Second), got, body), "another time")
			require.False(t, verifies(t, endpointconf.SigningSecret{Key: key(size, 8)}.Text(), "id", at, got, body),
				"another secret")
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := endpointconf.NewSigning(key(32, 1), start)
	second, err := first.Rotate(key(32, 2), start.Add(time.Hour), 24*time.Hour)
	require.NoError(t, err)
	signs := func(s *endpointconf.Signing, at time.Time) (of []byte) {
		signature := s.Sign("id", at, []byte("body"))
		require.Len(t, strings.Fields(signature), len(s.Live(at)))
		for _, secret := range s.Live(at) {
			require.True(t, verifies(t, secret.Text(), "id", at, signature, "body"))
			of = append(of, secret.Key[0])
		}
		return of
	}
	require.Equal(t, []byte{1}, signs(first, start.Add(100*time.Hour)), "what is there is not changed")
	ends := start.Add(25 * time.Hour)
	require.Equal(t, []byte{2, 1}, signs(second, ends.Add(-time.Nanosecond)), "the newest first")
	require.Equal(t, []byte{2}, signs(second, ends))
	require.False(t, verifies(t, first.Secrets[0].Text(), "id", ends, second.Sign("id", ends, []byte("body")), "body"))

	third, err := second.Rotate(key(32, 3), start.Add(2*time.Hour), 168*time.Hour)
	require.NoError(t, err)
	require.Equal(t, []byte{3, 2, 1}, signs(third, ends.Add(-time.Second)))
	require.Equal(t, []byte{3, 2}, signs(third, ends), "the first one's end stays as it was said")
	require.Equal(t, []byte{3}, signs(third, start.Add(170*time.Hour)))

	_, err = third.Rotate(key(32, 4), start.Add(3*time.Hour), time.Hour)
	require.Equal(t, &filter.ValidationError{
		Field:   "previousValidForHours",
		Message: "must be 0, so that only the new secret signs, until 2026-01-02T01:00:00Z: 3 already sign",
	}, err)
	fourth, err := third.Rotate(key(32, 4), ends, time.Hour)
	require.NoError(t, err, "the first has ended")
	require.Equal(t, []byte{4, 3, 2}, signs(fourth, ends))
	require.Len(t, fourth.Secrets, 3, "what has ended is forgotten")
	require.Equal(t, []byte{4}, signs(fourth, ends.Add(time.Hour)), "a shorter time holds for all")

	alone, err := third.Rotate(key(32, 5), start.Add(3*time.Hour), 0)
	require.NoError(t, err)
	require.Len(t, alone.Secrets, 1)
	require.Equal(t, []byte{5}, signs(alone, start.Add(3*time.Hour)))

	for _, n := range []byte{1, 2, 3} {
		_, err = third.Rotate(key(32, n), start.Add(3*time.Hour), 0)
		require.Equal(t,
			&filter.ValidationError{Field: "secret", Message: "must be another one: this one already signs"}, err)
	}
	_, err = third.Rotate(key(32, 1), ends, 0)
	require.NoError(t, err, "one that has ended may come back")
}

func TestParseSigningSecret(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(key(n, 0xff)) }
	for n := range 80 {
		got, err := endpointconf.ParseSigningSecret(text(n))
		if n < 24 || n > 64 {
			require.Error(t, err, n)
			continue
		}
		require.NoError(t, err, n)
		require.Equal(t, key(n, 0xff), got)
		require.Equal(t, text(n), endpointconf.SigningSecret{Key: got}.Text())
	}
	good := text(32)
	for name, given := range map[string]string{
		"nothing": "", "the prefix": "whsec_", "no prefix": strings.TrimPrefix(good, "whsec_"),
		"a public key's prefix": strings.Replace(good, "whsec_", "whpk_", 1),
		"capitals":              strings.Replace(good, "whsec_", "WHSEC_", 1), "no padding": strings.TrimRight(good, "="),
		"the URL alphabet": strings.ReplaceAll(good, "/", "_"),
		"a space":          good + " ", "a line break": good + "\n", "a line break within": good[:20] + "\n" + good[20:],
		"lax last bits":      "whsec_" + strings.Repeat("A", 42) + "B=",
		"hexadecimal digits": "whsec_" + fmt.Sprintf("%x", key(33, 0xff)) + "=",
	} {
		_, err := endpointconf.ParseSigningSecret(given)
		require.Equal(t,
			&filter.ValidationError{Field: "secret", Message: "must be whsec_ and base64, with padding, of 24 to 64 bytes"},
			err, name)
	}
}

func BenchmarkSign(b *testing.B) {
	at := time.Unix(1_800_000_000, 0)
	s := endpointconf.NewSigning(key(32, 7), at)
	body := bytes.Repeat([]byte("x"), 500)
	for b.Loop() {
		s.Sign("0192f0c1-0000-7000-8000-000000000000", at, body)
	}
}
