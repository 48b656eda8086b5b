package endpointconf_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

type response = endpointconf.HandshakeResponse

const accepted, awaits, rejected = endpointconf.HandshakeAccepted, endpointconf.HandshakeAwaits,
	endpointconf.HandshakeRejected

func TestHandshakeByCode(t *testing.T) {
	t.Parallel()
	ok := func(body string) response { return response{Status: 200, Body: []byte(body)} }
	for name, tt := range map[string]struct {
		response response
		want     endpointconf.HandshakeOutcome
	}{
		"the code":                {ok(`{"validationResponse":"c0de"}`), accepted},
		"among other things":      {ok(` {"a":[1],"VALIDATIONRESPONSE":"c0de"}`), accepted},
		"after a byte order mark": {ok("\xef\xbb\xbf{\"validationResponse\":\"c0de\"}"), accepted},
		"in capitals":             {ok(`{"validationResponse":"C0DE"}`), awaits},
		"a list":                  {ok(`[{"validationResponse":"c0de"}]`), awaits},
		"empty":                   {ok(`{"validationResponse":""}`), awaits},
		"nothing":                 {response{Status: 200}, awaits},
		"accepted":                {response{Status: 202, Body: []byte(`{"validationResponse":"c0de"}`)}, rejected},
		"not found":               {response{Status: 404}, rejected},
		"a status and a body cut off": {
			response{Status: 200, Err: "unexpected EOF", Body: []byte(`{"validationResponse":"c0de"}`)}, rejected,
		},
	} {
		outcome, why := endpointconf.HandshakeByCode(tt.response, "c0de")
		require.Equal(t, tt.want, outcome, name)
		require.NotEmpty(t, why, name)
	}
	outcome, _ := endpointconf.HandshakeByCode(ok(`{}`), "")
	require.Equal(t, awaits, outcome, "an empty response has no code")
}

func TestHandshakeByOrigin(t *testing.T) {
	t.Parallel()
	const origin = "eventgrid.azure.net"
	allows := func(status int, origins ...string) response { return response{Status: status, AllowedOrigin: origins} }
	for name, tt := range map[string]struct {
		response           response
		classic, namespace endpointconf.HandshakeOutcome
	}{
		"the origin":           {allows(200, origin), accepted, accepted},
		"every origin":         {allows(204, " * "), accepted, accepted},
		"the second of two":    {allows(200, "a.example", origin), accepted, accepted},
		"whatever the status":  {allows(405, origin), accepted, accepted},
		"another one":          {allows(200, "a.example"), rejected, rejected},
		"a part of the origin": {allows(200, "azure.net"), rejected, rejected},
		"empty body":           {allows(200), awaits, rejected},
		"no content":           {allows(204), rejected, rejected},
		"no such method":       {allows(405), rejected, rejected},
		"no response":          {response{Status: 200, Err: "cut", AllowedOrigin: []string{origin}}, rejected, rejected},
	} {
		classic, why := endpointconf.HandshakeByOrigin(tt.response, origin, true)
		require.Equal(t, tt.classic, classic, name)
		require.NotEmpty(t, why, name)
		namespace, _ := endpointconf.HandshakeByOrigin(tt.response, origin, false)
		require.Equal(t, tt.namespace, namespace, name)
	}
	_, why := endpointconf.HandshakeByOrigin(allows(200, strings.Repeat("é\x00", 1000)), origin, true)
	require.Less(t, len(why), 400)
	require.NotContains(t, why, "\x00")
}

func TestHandshakeAcknowledged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]endpointconf.HandshakeOutcome{
		200: accepted, 204: accepted, 302: rejected, 500: rejected,
	} {
		outcome, _ := endpointconf.HandshakeAcknowledged(response{Status: status})
		require.Equal(t, want, outcome, status)
	}
	outcome, _ := endpointconf.HandshakeAcknowledged(response{Err: "timed out"})
	require.Equal(t, rejected, outcome)
}
