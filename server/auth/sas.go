package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"postrider/internal/event"
)

// sasToken is a shared access signature, r=<resource>&e=<expiry>&s=<signature>.
//
// Source: Microsoft, Authenticate Azure Event Grid clients using access keys or shared access signatures, 2024-05-08;
// where its text and its samples differ, the samples.
type sasToken struct {
	// signed is the signed text: all bytes before &s= as they were sent. Clients encode r and e differently (%2f or %2F, a
	// space as + or %20), so it is never decoded and encoded again.
	signed string
	// resource is the path that r names.
	resource  string
	expires   time.Time
	signature []byte
}

// parseSAS reads a token. Its error names the wrong part, without text of the token.
func parseSAS(text string) (sasToken, error) {
	end := strings.LastIndex(text, "&s=")
	middle := strings.LastIndex(text[:max(end, 0)], "&e=")
	if !strings.HasPrefix(text, "r=") || middle < 0 {
		return sasToken{}, errors.New("the form is r=<resource>&e=<expiry>&s=<signature>, in this order")
	}
	t := sasToken{signed: text[:end]}
	var err error
	if t.resource, err = sasResource(text[len("r="):middle]); err != nil {
		return sasToken{}, err
	}
	if t.expires, err = sasExpiry(text[middle+len("&e=") : end]); err != nil {
		return sasToken{}, err
	}
	if t.signature, err = sasSignature(text[end+len("&s="):]); err != nil {
		return sasToken{}, err
	}
	return t, nil
}

// sasResource is the path of the URL in r. Scheme, host and port are ignored because proxies change them, the query
// because only some clients sign it (?apiVersion=…).
func sasResource(encoded string) (string, error) {
	err := errors.New("r must be the URL-encoded http or https URL of the request, such as " +
		"https%3A%2F%2Fhost%2Ftopics%2Forders%2Fapi%2Fevents")
	text, failed := url.QueryUnescape(encoded)
	if failed != nil {
		return "", err
	}
	u, failed := url.Parse(text)
	if failed != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", err
	}
	return u.Path, nil
}

// sasExpiryForms are what .NET prints in en-US and in the invariant culture, beside ISO 8601. Each accepts fractions of
// a second, and fields of one or two digits.
var sasExpiryForms = []string{
	"1/2/2006 3:4:5 PM",                         // DateTime in en-US, as JavaScript's and Java's clients imitate it
	"1/2/2006 3:4:5 PM -07:00",                  // DateTimeOffset in en-US, which .NET's client sends
	"1/2/2006, 3:4:5 PM",                        // JavaScript's toLocaleString
	"1/2/2006 15:4:5", "1/2/2006 15:4:5 -07:00", // the same in the invariant culture
	"1/2/2006 3:4 PM", "1/2/2006 15:4", "1/2/2006", // the short forms g and d
	http.TimeFormat,                                                // r
	"Monday, 2 January 2006 15:4:5", "Monday, 2 January 2006 15:4", // the long forms F, U and f
	"Monday, January 2, 2006 3:4:5 PM", "Monday, January 2, 2006 3:4 PM", // in en-US
}

// sasExpiry reads a time; it is UTC if it has no zone.
func sasExpiry(encoded string) (time.Time, error) {
	if text, err := url.QueryUnescape(encoded); err == nil {
		if t, ok := event.ParseTime(text); ok { // ISO 8601, as Python prints it
			return t, nil
		}
		// Newer en-US formats have a narrow no-break space before AM and PM.
		text = strings.ToUpper(strings.ReplaceAll(text, "\u202f", " "))
		for _, form := range sasExpiryForms {
			if t, err := time.Parse(form, text); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{},
		errors.New("e must be a URL-encoded time in UTC, such as 6%2F15%2F2030+6%3A20%3A15+PM or 2030-06-15T18%3A20%3A15Z")
}

// sasSignature reads base64, URL-encoded or not: a + is never a space.
func sasSignature(encoded string) ([]byte, error) {
	if text, err := url.PathUnescape(encoded); err == nil {
		if signature, err := base64.StdEncoding.DecodeString(text); err == nil && len(signature) == sha256.Size {
			return signature, nil
		}
	}
	return nil, errors.New("s must be the URL-encoded base64 of an HMAC-SHA256, which has 32 bytes")
}

// covers reports whether r is the path or a prefix of it ("A SAS token is valid for all resources prefixed with the
// resource URI", Microsoft, same page). The prefix ends at the end of a name: /topics/ord is none of /topics/orders.
func (t *sasToken) covers(path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimRight(t.resource, "/"))
	return ok && (rest == "" || rest[0] == '/' || rest[0] == ':')
}
