package endpointconf_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

func TestHandshakeByCode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		response endpointconf.HandshakeResponse
		want     endpointconf.HandshakeOutcome
	}{
		"the code": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":"c0de"}`)},
			endpointconf.HandshakeAccepted,
		},
		"among other things": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte(` {"a":[1],"VALIDATIONRESPONSE":"c0de"}`)},
			endpointconf.HandshakeAccepted,
		},
		"after a byte order mark": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte("\xef\xbb\xbf{\"validationResponse\":\"c0de\"}")},
			endpointconf.HandshakeAccepted,
		},
		"in capitals": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":"C0DE"}`)},
			endpointconf.HandshakeAwaits,
		},
		"a list": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte(`[{"validationResponse":"c0de"}]`)},
			endpointconf.HandshakeAwaits,
		},
		"empty": {
			endpointconf.HandshakeResponse{Status: 200, Body: []byte(`{"validationResponse":""}`)}, endpointconf.HandshakeAwaits,
		},
		"nothing": {endpointconf.HandshakeResponse{Status: 200}, endpointconf.HandshakeAwaits},
		"accepted": {
			endpointconf.HandshakeResponse{Status: 202, Body: []byte(`{"validationResponse":"c0de"}`)},
			endpointconf.HandshakeRejected,
		},
		"not found": {endpointconf.HandshakeResponse{Status: 404}, endpointconf.HandshakeRejected},
		"a status and a body cut off": {
			endpointconf.HandshakeResponse{Status: 200, Err: "unexpected EOF", Body: []byte(`{"validationResponse":"c0de"}`)},
			endpointconf.HandshakeRejected,
		},
	} {
		outcome, why := endpointconf.HandshakeByCode(tt.response, "c0de")
		require.Equal(t, tt.want, outcome, name)
		require.NotEmpty(t, why, name)
	}
	outcome, _ := endpointconf.HandshakeByCode(endpointconf.HandshakeResponse{Status: 200, Body: []byte(`{}`)}, "")
	require.Equal(t, endpointconf.HandshakeAwaits, outcome, "an empty response has no code")
}

func TestHandshakeByOrigin(t *testing.T) {
	t.Parallel()
	const origin = "eventgrid.azure.net"
	for name, tt := range map[string]struct {
		response           endpointconf.HandshakeResponse
		classic, namespace endpointconf.HandshakeOutcome
	}{
		"the origin": {
			endpointconf.HandshakeResponse{Status: 200, AllowedOrigin: []string{origin}},
			endpointconf.HandshakeAccepted,
			endpointconf.HandshakeAccepted,
		},
		"everybody": {
			endpointconf.HandshakeResponse{Status: 204, AllowedOrigin: []string{" * "}},
			endpointconf.HandshakeAccepted,
			endpointconf.HandshakeAccepted,
		},
		"the second of two": {
			endpointconf.HandshakeResponse{Status: 200, AllowedOrigin: []string{"a.example", origin}},
			endpointconf.HandshakeAccepted,
			endpointconf.HandshakeAccepted,
		},
		"whatever the status": {
			endpointconf.HandshakeResponse{Status: 405, AllowedOrigin: []string{origin}},
			endpointconf.HandshakeAccepted,
			endpointconf.HandshakeAccepted,
		},
		"another one": {
			endpointconf.HandshakeResponse{Status: 200, AllowedOrigin: []string{"a.example"}},
			endpointconf.HandshakeRejected,
			endpointconf.HandshakeRejected,
		},
		"a part of the origin": {
			endpointconf.HandshakeResponse{Status: 200, AllowedOrigin: []string{"azure.net"}},
			endpointconf.HandshakeRejected,
			endpointconf.HandshakeRejected,
		},
		"empty body": {
			endpointconf.HandshakeResponse{Status: 200},
			endpointconf.HandshakeAwaits,
			endpointconf.HandshakeRejected,
		},
		"no content": {
			endpointconf.HandshakeResponse{Status: 204},
			endpointconf.HandshakeRejected,
			endpointconf.HandshakeRejected,
		},
		"no such method": {
			endpointconf.HandshakeResponse{Status: 405},
			endpointconf.HandshakeRejected,
			endpointconf.HandshakeRejected,
		},
		"no response": {
			endpointconf.HandshakeResponse{Err: "timed out", Status: 200, AllowedOrigin: []string{origin}},
			endpointconf.HandshakeRejected,
			endpointconf.HandshakeRejected,
		},
	} {
		classic, why := endpointconf.HandshakeByOrigin(tt.response, origin, true)
		require.Equal(t, tt.classic, classic, name)
		require.NotEmpty(t, why, name)
		namespace, _ := endpointconf.HandshakeByOrigin(tt.response, origin, false)
		require.Equal(t, tt.namespace, namespace, name)
	}
	_, why := endpointconf.HandshakeByOrigin(
		endpointconf.HandshakeResponse{Status: 200, AllowedOrigin: []string{strings.Repeat("é\x00", 1000)}}, origin, true)
	require.Less(t, len(why), 400)
	require.NotContains(t, why, "\x00")
}

func TestHandshakeAcknowledged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]endpointconf.HandshakeOutcome{
		200: endpointconf.HandshakeAccepted, 204: endpointconf.HandshakeAccepted, 302: endpointconf.HandshakeRejected,
		500: endpointconf.HandshakeRejected,
	} {
		outcome, _ := endpointconf.HandshakeAcknowledged(endpointconf.HandshakeResponse{Status: status})
		require.Equal(t, want, outcome, status)
	}
	outcome, _ := endpointconf.HandshakeAcknowledged(endpointconf.HandshakeResponse{Err: "timed out"})
	require.Equal(t, endpointconf.HandshakeRejected, outcome)
}
