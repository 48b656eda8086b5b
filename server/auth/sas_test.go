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
		"client": "r=https%3A%2F%2Flocalhost%3A7480" +
		"%2Ftopics%2Forders%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&" +
		"e=6%2F15%2F2030%206%3A20%3A15%20PM&s=XnIGMip5unkD5Ha6V8mxZyOjJFxx3L30GjLUYtAvDZ8%3D",
	"Python, the page's": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents&" +
		"e=2030-06-15T18%3A20%3A15.123456&s=XCEajCaMD3hg4KYlO9RcDXg0Hsd13jB1xU7kVbL32Gc%3D",
	"Python, time with a zone": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents&" +
		"e=2030-06-15%2018%3A20%3A15%2B00%3A00&s=uOTJTicnitr7Zca%2BMnxQ449CHq%2BgN1v2vUd%2F6tqIbUg%3D",
	".NET, EventGridSasBuilder": "r=https%3a%2f%2flocalhost%3a7480" +
		"%2ftopics%2forders%2fapi%2fevents%3fapi-version%3d2018-01-01&" +
		"e=6%2f15%2f2030+6%3a20%3a15+PM+%2b00%3a00&s=PM%2fWtDVNoHyYHmJQQZLaF4p%2bahpfFDtpqTBuWS7tvM8%3d",
	".NET, EventGridSasBuilder with ICU 72": "r=https%3a%2f%2flocalhost%3a7480" +
		"%2ftopics%2forders%2fapi%2fevents%3fapi-version%3d2018-01-01&" +
		"e=6%2f15%2f2030+8%3a20%3a15%e2%80%afPM+%2b02%3a00&s=K9Dv1RCnXi0XhQZ1thL0QX0Rgu2yr7f61t2KSiOq7sE%3d",
	"Java, EventGridSasGenerator": "r=https%3A%2F%2Flocalhost%3A7480" +
		"%2Ftopics%2Forders%2Fapi%2Fevents%3Fapi-version%3D2018-01-01&" +
		"e=6%2F15%2F2030+6%3A20%3A15+PM&s=OPE6ttc5wGLez8s5z717TZGHwAallA7kBjqKrejyZ6s%3D",
	"Python, generate_sas": "r=https%3A%2F%2Flocalhost%3A7480" +
		"%2Ftopics%2Forders%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&" +
		"e=2030-06-15%2018%3A20%3A15.123456&s=pwPcb2jzpMH7wuDd13eTXLR6oMZc9C6VRc58w5LqCRo%3D",
	"Go, net/url and RFC 3339": "r=https%3A%2F%2Flocalhost%3A7480%2Ftopics%2Forders%2Fapi%2Fevents&" +
		"e=2030-06-15T18%3A20%3A15Z&s=zQAnAicmSQ4oUOtN0fxFK1YY6Rxf6K1vd0Gi6ypXONQ%3D",
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
		"2017-06-15T18:20:15.0000000%2B00:00":  "2017-06-15T18:20:15Z", // o
		"2017-06-15T20:20:15%2B0200":           "2017-06-15T18:20:15Z",
		"6/15/2017 6:20:15 PM %2B00:00":        "2017-06-15T18:20:15Z", // DateTimeOffset
		"6/15/2017+8:20:15+PM+%2b02:00":        "2017-06-15T18:20:15Z",
		"6/15/2017 1:20:15 PM -05:00":          "2017-06-15T18:20:15Z",
		"6/5/2017 6:2:5 PM":                    "2017-06-05T18:02:05Z", // Java
		"6/5/2017 6:2:5 pm":                    "2017-06-05T18:02:05Z",
		"1/1/2017 12:0:0 AM":                   "2017-01-01T00:00:00Z",
		"6/15/2017, 6:20:15 PM":                "2017-06-15T18:20:15Z",
		"06/15/2017 18:20:15":                  "2017-06-15T18:20:15Z", // the invariant culture
		"06/15/2017 18:20:15 %2B00:00":         "2017-06-15T18:20:15Z",
		"06/15/2017 18:20":                     "2017-06-15T18:20:00Z",
		"6/15/2017 6:20 PM":                    "2017-06-15T18:20:00Z",
		"06/15/2017":                           "2017-06-15T00:00:00Z",
		"Thu, 15 Jun 2017 18:20:15 GMT":        "2017-06-15T18:20:15Z",
		"2017-06-15 18:20:15Z":                 "2017-06-15T18:20:15Z",
		"Thursday, 15 June 2017 18:20:15":      "2017-06-15T18:20:15Z",
		"Thursday, 15 June 2017 18:20":         "2017-06-15T18:20:00Z",
		"Thursday, June 15, 2017 6:20:15 PM":   "2017-06-15T18:20:15Z",
	} {
		at, err := sasExpiry(encoded)
		require.NoError(t, err, encoded)
		require.Equal(t, want, at.UTC().Format(time.RFC3339), encoded)
	}
	for _, encoded := range []string{
		"", "never", "1497550815", "15/6/2017 6:20:15 PM", "6/15/2017 18:20:15 PM", "6/15/2017 6:20:15 PM+",
		"6/15/2017 6:20:60 PM", "15/6/2017 18:20:15", "6/15/17 6:20:15 PM", "6/15/2017 6:20:15 PM +00:00%",
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
