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
		response policy.HandshakeResponse
		want     policy.HandshakeOutcome
	}{
		"the code": {
			policy.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":"c0de"}`)}, policy.HandshakeAccepted,
		},
		"among other things": {
			policy.HandshakeResponse{Status: 200, Body: []byte(` {"a":[1],"VALIDATIONRESPONSE":"c0de"}`)},
			policy.HandshakeAccepted,
		},
		"after a byte order mark": {
			policy.HandshakeResponse{Status: 200, Body: []byte("\xef\xbb\xbf{\"validationResponse\":\"c0de\"}")},
			policy.HandshakeAccepted,
		},
		"in capitals": {
			policy.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":"C0DE"}`)}, policy.HandshakeAwaits,
		},
		"a list": {
			policy.HandshakeResponse{Status: 200, Body: []byte(`[{"validationResponse":"c0de"}]`)}, policy.HandshakeAwaits,
		},
		"empty": {
			policy.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":""}`)}, policy.HandshakeAwaits,
		},
		"nothing": {policy.HandshakeResponse{Status: 200}, policy.HandshakeAwaits},
		"accepted": {
			policy.HandshakeResponse{Status: 202, Body: []byte(`{"validationResponse":"c0de"}`)}, policy.HandshakeRejected,
		},
		"not found": {policy.HandshakeResponse{Status: 404}, policy.HandshakeRejected},
		"a status and a body cut off": {
			policy.HandshakeResponse{Status: 200, Err: "unexpected EOF", Body: []byte(`{"validationResponse":"c0de"}`)},
			policy.HandshakeRejected,
		},
	} {
		outcome, why := policy.HandshakeByCode(tt.response, "c0de")
		require.Equal(t, tt.want, outcome, name)
		require.NotEmpty(t, why, name)
	}
	outcome, _ := policy.HandshakeByCode(policy.HandshakeResponse{Status: 200, Body: []byte(`{}`)}, "")
	require.Equal(t, policy.HandshakeAwaits, outcome, "an empty response has no code")
}

func TestHandshakeByOrigin(t *testing.T) {
	t.Parallel()
	const origin = "eventgrid.azure.net"
	for name, tt := range map[string]struct {
		response           policy.HandshakeResponse
		classic, namespace policy.HandshakeOutcome
	}{
		"the origin": {
			policy.HandshakeResponse{Status: 200, AllowedOrigin: []string{origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"everybody": {
			policy.HandshakeResponse{Status: 204, AllowedOrigin: []string{" * "}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"the second of two": {
			policy.HandshakeResponse{Status: 200, AllowedOrigin: []string{"a.example", origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"whatever the status": {
			policy.HandshakeResponse{Status: 405, AllowedOrigin: []string{origin}},
			policy.HandshakeAccepted,
			policy.HandshakeAccepted,
		},
		"another one": {
			policy.HandshakeResponse{Status: 200, AllowedOrigin: []string{"a.example"}},
			policy.HandshakeRejected,
			policy.HandshakeRejected,
		},
		"a part of the origin": {
			policy.HandshakeResponse{Status: 200, AllowedOrigin: []string{"azure.net"}},
			policy.HandshakeRejected,
			policy.HandshakeRejected,
		},
		"empty body":     {policy.HandshakeResponse{Status: 200}, policy.HandshakeAwaits, policy.HandshakeRejected},
		"no content":     {policy.HandshakeResponse{Status: 204}, policy.HandshakeRejected, policy.HandshakeRejected},
		"no such method": {policy.HandshakeResponse{Status: 405}, policy.HandshakeRejected, policy.HandshakeRejected},
		"no response": {
			policy.HandshakeResponse{Err: "timed out", Status: 200, AllowedOrigin: []string{origin}},
			policy.HandshakeRejected,
			policy.HandshakeRejected,
		},
	} {
		classic, why := policy.HandshakeByOrigin(tt.response, origin, true)
		require.Equal(t, tt.classic, classic, name)
		require.NotEmpty(t, why, name)
		namespace, _ := policy.HandshakeByOrigin(tt.response, origin, false)
		require.Equal(t, tt.namespace, namespace, name)
	}
	_, why := policy.HandshakeByOrigin(
		policy.HandshakeResponse{Status: 200, AllowedOrigin: []string{strings.Repeat("é\x00", 1000)}}, origin, true)
	require.Less(t, len(why), 400)
	require.NotContains(t, why, "\x00")
}

func TestHandshakeAcknowledged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]policy.HandshakeOutcome{
		200: policy.HandshakeAccepted, 204: policy.HandshakeAccepted, 302: policy.HandshakeRejected,
		500: policy.HandshakeRejected,
	} {
		outcome, _ := policy.HandshakeAcknowledged(policy.HandshakeResponse{Status: status})
		require.Equal(t, want, outcome, status)
	}
	outcome, _ := policy.HandshakeAcknowledged(policy.HandshakeResponse{Err: "timed out"})
	require.Equal(t, policy.HandshakeRejected, outcome)
}
