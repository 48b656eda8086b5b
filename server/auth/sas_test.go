package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// vectorKey is the bytes 0 to 31. The tokens below were created with it by Python's hmac and urllib, node's crypto and
// openssl, as the page's samples and the clients make them.
const vectorKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

var vectors = map[string]string{
	".NET, the page's sample": "r=https%3a%2f%2flocalhost%3a7480%2ftopics%2forders%2fapi%2fevents&" +
		"e=6%2f15%2f2030+6%3a20%3a15+PM&s=%2bwp6xAZkhZ6tYZV2BzKP2%2bfPb9FGM3FwK3D%2fqJTMHJ0%3d",
	"JavaScript, the " +
		"client": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&" +
		"e=6%2F15%2F2030%206%3A20%3A15%20PM&s=XnIGMip5unkD5Ha6V8mxZyOjJFxx3L30GjLUYtAvDZ8%3D",
	"Python, the page's": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents&" +
		"e=2030-06-15T18%3A20%3A15.123456&s=XCEajCaMD3hg4KYlO9RcDXg0Hsd13jB1xU7kVbL32Gc%3D",
	"Python, time with a zone": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents&" +
		"e=2030-06-15%2018%3A20%3A15%2B00%3A00&s=uOTJTicnitr7Zca%2BMnxQ449CHq%2BgN1v2vUd%2F6tqIbUg%3D",
}

func TestTokensOfClients(t *testing.T) {
	t.Parallel()
	for name, text := range vectors {
		token, err := parseSAS(text)
		require.NoError(t, err, name)
		require.Equal(t, "/topics/orders/api/events", token.resource, name)
		require.Equal(t, "2030-06-15T18:20:15Z", token.expires.UTC().Truncate(time.Second).Format(time.RFC3339), name)
		key := catalog.SigningKey(vectorKey)
		require.Equal(t, 1, catalog.SignedWith(key, token.signed, token.signature), name)
		require.Equal(t, 0, catalog.SignedWith(key[1:], token.signed, token.signature), "%s: with another key", name)
		require.Equal(t, 0, catalog.SignedWith(nil, token.signed, token.signature), "%s: without a key", name)
		require.Equal(t, 0, catalog.SignedWith(key, token.signed+" ", token.signature), "%s: of another text", name)
	}
}

func TestExpiryForms(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		"6/15/2017 6:20:15 PM":                 "2017-06-15T18:20:15Z", // as it is
		"6%2f15%2f2017+6%3a20%3a15+PM":         "2017-06-15T18:20:15Z",
		"06%2F05%2F2017%2006%3A20%3A15%20AM":   "2017-06-05T06:20:15Z",
		"12/31/2017 12:00:00 AM":               "2017-12-31T00:00:00Z",
		"12/31/2017 12:00:00 PM":               "2017-12-31T12:00:00Z",
		"6%2F15%2F2017+6%3A20%3A15%E2%80%AFPM": "2017-06-15T18:20:15Z", // the narrow space
		"2017-06-15T18%3A20%3A15":              "2017-06-15T18:20:15Z",
		"2017-06-15T18:20:15Z":                 "2017-06-15T18:20:15Z",
		"2017-06-15T18:20:15.1234567Z":         "2017-06-15T18:20:15Z",
		"2017-06-15t20:20:15%2B02:00":          "2017-06-15T18:20:15Z",
		"2017-06-15+18:20:15":                  "2017-06-15T18:20:15Z",
	} {
		at, err := sasExpiry(encoded)
		require.NoError(t, err, encoded)
		require.Equal(t, want, at.UTC().Format(time.RFC3339), encoded)
	}
	for _, encoded := range []string{
		"", "never", "1497550815", "15/6/2017 6:20:15 PM", "6/15/2017 18:20:15 PM", "6/15/2017",
		"2017-06-15T18:20:15+02:00", "%zz",
	} {
		_, err := sasExpiry(encoded)
		require.ErrorContains(t, err, "e must be", encoded)
	}
}

func TestMalformedTokens(t *testing.T) {
	t.Parallel()
	const r, e, s = "r=https%3A%2F%2Fh%2Ftopics%2Forders", "&e=2030-06-15T18%3A20%3A15",
		"&s=XCEajCaMD3hg4KYlO9RcDXg0Hsd13jB1xU7kVbL32Gc%3D"
	_, err := parseSAS(r + e + s)
	require.NoError(t, err)
	for text, says := range map[string]string{
		"":                                   "the form is",
		"&s=":                                "the form is",
		"r=&s=":                              "the form is",
		r + e:                                "the form is",
		r + s:                                "the form is",
		s + r + e:                            "the form is",
		"SharedAccessSignature " + r + e + s: "the form is",
		"r=" + e + s:                         "r must be",
		"r=%zz" + e + s:                      "r must be",
		"r=h%2Ftopics" + e + s:               "r must be",
		"r=ftp%3A%2F%2Fh%2Ftopics" + e + s:   "r must be",
		"r=https%3A%2F%2F" + e + s:           "r must be",
		r + "&e=tomorrow" + s:                "e must be",
		r + e + "&s=":                        "s must be",
		r + e + "&s=%zz":                     "s must be",
		r + e + "&s=wrong":                   "s must be",
		r + e + "&s=d3Jvbmc%3D":              "s must be",
		r + e + s + "A":                      "s must be",
	} {
		_, err := parseSAS(text)
		require.ErrorContains(t, err, says, text)
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	const path = "/topics/orders/api/events"
	for resource, want := range map[string]bool{
		"": true, "/": true, "/topics": true, "/topics/": true, "/topics/orders": true, "/topics/orders/": true, path: true,
		path + "/":    true,
		"/topics/ord": false, "/topics/parcels": false, "/topics/Orders": false, path + "/more": false, "/api/events": false,
		"topics": false,
	} {
		token := sasToken{resource: resource}
		require.Equal(t, want, token.covers(path), resource)
	}
	namespace := sasToken{resource: "/topics/orders"}
	require.True(t, namespace.covers("/topics/orders:publish"))
}

// No input panics, and an accepted token has all its parts.
func FuzzParseSAS(f *testing.F) {
	for _, text := range vectors {
		f.Add(text)
	}
	f.Add("r=&e=&s=")
	f.Add("r=http%3A%2F%2F0&e=1%2F1%2F0000%200%3A00%3A00%20AM&s=")
	f.Add("r=http://h&e=1/2/2006 3:04:05 PM&e=&s=&s=")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := parseSAS(text)
		if err != nil {
			require.Zero(t, token)
			return
		}
		require.True(t, strings.HasPrefix(text, token.signed+"&s="))
		require.True(t, strings.HasPrefix(token.signed, "r="))
		require.Len(t, token.signature, 32)
		require.Equal(t, 0, catalog.SignedWith(catalog.SigningKey(vectorKey), token.signed+"x", token.signature))
	})
}
