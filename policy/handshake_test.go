package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestHandshakeByCode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer policy.HandshakeAnswer
		want   policy.HandshakeOutcome
	}{
		"the code": {
			policy.HandshakeAnswer{Status: 200, Body: []byte(`{"validationResponse":"c0de"}`)}, policy.HandshakeAccepted,
		},
		"among other things": {
			policy.HandshakeAnswer{Status: 200, Body: []byte(` {"a":[1],"VALIDATIONRESPONSE":"c0de"}`)},
			policy.HandshakeAccepted,
		},
		"after a byte order mark": {
			policy.HandshakeAnswer{Status: 200, Body: []byte("\xef\xbb\xbf{\"validationResponse\":\"c0de\"}")},
			policy.HandshakeAccepted,
		},
		"in capitals": {
			policy.HandshakeAnswer{Status: 200, Body: []byte(`{"validationResponse":"C0DE"}`)}, policy.HandshakeAwaits,
		},
		"a list": {
			policy.HandshakeAnswer{Status: 200, Body: []byte(`[{"validationResponse":"c0de"}]`)}, policy.HandshakeAwaits,
		},
		"empty": {
			policy.HandshakeAnswer{Status: 200, Body: []byte(`{"validationResponse":""}`)}, policy.HandshakeAwaits,
		},
		"nothing": {policy.HandshakeAnswer{Status: 200}, policy.HandshakeAwaits},
		"accepted": {
			policy.HandshakeAnswer{Status: 202, Body: []byte(`{"validationResponse":"c0de"}`)}, policy.HandshakeRefused,
		},
		"not found": {policy.HandshakeAnswer{Status: 404}, policy.HandshakeRefused},
		"a status and a body cut off": {
			policy.HandshakeAnswer{Status: 200, Err: "unexpected EOF", Body: []byte(`{"validationResponse":"c0de"}`)},
			policy.HandshakeRefused,
		},
	} {
		outcome, why := policy.HandshakeByCode(tt.answer, "c0de")
		require.Equal(t, tt.want, outcome, name)
		require.NotEmpty(t, why, name)
	}
	outcome, _ := policy.HandshakeByCode(policy.HandshakeAnswer{Status: 200, Body: []byte(`{}`)}, "")
	require.Equal(t, policy.HandshakeAwaits, outcome, "no code is sent back by nobody")
}

func TestHandshakeByOrigin(t *testing.T) {
	t.Parallel()
	const origin = "eventgrid.azure.net"
	for name, tt := range map[string]struct {
		answer             policy.HandshakeAnswer
		classic, namespace policy.HandshakeOutcome
	}{
		"the origin": {
			policy.HandshakeAnswer{Status: 200, AllowedOrigin: []string{origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"everybody": {
			policy.HandshakeAnswer{Status: 204, AllowedOrigin: []string{" * "}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"the second of two": {
			policy.HandshakeAnswer{Status: 200, AllowedOrigin: []string{"a.example", origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"whatever the status": {
			policy.HandshakeAnswer{Status: 405, AllowedOrigin: []string{origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"another one": {
			policy.HandshakeAnswer{Status: 200, AllowedOrigin: []string{"a.example"}},
			policy.HandshakeRefused,
			policy.HandshakeRefused,
		},
		"a part of the origin": {
			policy.HandshakeAnswer{Status: 200, AllowedOrigin: []string{"azure.net"}},
			policy.HandshakeRefused,
			policy.HandshakeRefused,
		},
		"nobody":         {policy.HandshakeAnswer{Status: 200}, policy.HandshakeAwaits, policy.HandshakeRefused},
		"no content":     {policy.HandshakeAnswer{Status: 204}, policy.HandshakeRefused, policy.HandshakeRefused},
		"no such method": {policy.HandshakeAnswer{Status: 405}, policy.HandshakeRefused, policy.HandshakeRefused},
		"no answer": {
			policy.HandshakeAnswer{Err: "timed out", Status: 200, AllowedOrigin: []string{origin}},
			policy.HandshakeRefused,
			policy.HandshakeRefused,
		},
	} {
		classic, why := policy.HandshakeByOrigin(tt.answer, origin, true)
		require.Equal(t, tt.classic, classic, name)
		require.NotEmpty(t, why, name)
		namespace, _ := policy.HandshakeByOrigin(tt.answer, origin, false)
		require.Equal(t, tt.namespace, namespace, name)
	}
	_, why := policy.HandshakeByOrigin(
		policy.HandshakeAnswer{Status: 200, AllowedOrigin: []string{strings.Repeat("é\x00", 1000)}}, origin, true)
	require.Less(t, len(why), 400)
	require.NotContains(t, why, "\x00")
}

func TestHandshakeAcknowledged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]policy.HandshakeOutcome{
		200: policy.HandshakeAccepted, 204: policy.HandshakeAccepted, 302: policy.HandshakeRefused,
		500: policy.HandshakeRefused,
	} {
		outcome, _ := policy.HandshakeAcknowledged(policy.HandshakeAnswer{Status: status})
		require.Equal(t, want, outcome, status)
	}
	outcome, _ := policy.HandshakeAcknowledged(policy.HandshakeAnswer{Err: "timed out"})
	require.Equal(t, policy.HandshakeRefused, outcome)
}
