package azurefake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keys are a shared access policy of the namespace. Either key signs; "" signs nothing.
type Keys struct{ Name, Primary, Secondary string }

// refusal is why a request is rejected.
type refusal struct {
	Response
	violation string // what no correct client does; "" = a response of normal operation
}

// denied is the response to a token that a wrong or old key explains.
func denied(text string) *refusal {
	return &refusal{Response: respondWith("", http.StatusUnauthorized, "", "SubCode=40103. "+text)}
}

// wrongToken is the response to a token that no correct client creates.
func wrongToken(format string, args ...any) *refusal {
	refused := denied(fmt.Sprintf(format, args...))
	refused.violation = fmt.Sprintf(format, args...)
	return refused
}

// authorize checks the token of a request and removes it from what a listener of Relay receives.
func (s *Server) authorize(r *http.Request, e *entity) *refusal {
	place, token, name := "Authorization", r.Header.Get("Authorization"), strings.Trim(r.URL.Path, "/")
	if other := r.Header.Get("ServiceBusAuthorization"); other != "" {
		if e != nil && e.service != Relay {
			return wrongToken("MalformedToken: only Relay takes ServiceBusAuthorization")
		}
		place, token = "ServiceBusAuthorization", other
	}
	if e != nil {
		name = e.name
	}
	r.Header.Del(place)
	s.mu.Lock()
	defer s.mu.Unlock()
	bearer, isBearer := strings.CutPrefix(token, "Bearer ")
	signed, isSigned := strings.CutPrefix(token, "SharedAccessSignature ")
	switch {
	case isSigned:
		return s.checkSignature(signed, r.Host, name)
	case !isBearer:
		return wrongToken(`MissingToken: %s must begin with "SharedAccessSignature " or "Bearer "`, place)
	case !slices.Contains(s.bearers, bearer):
		return denied("InvalidToken: The token is not valid.")
	}
	return nil
}

// checkSignature checks the part of a token after its scheme.
func (s *Server) checkSignature(token, host, entity string) *refusal {
	encoded, plain := map[string]string{}, map[string]string{}
	for pair := range strings.SplitSeq(token, "&") {
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(value)
		if err != nil || value == "" || strings.ContainsAny(value, "+/=: ") {
			return wrongToken("MalformedToken: %s must be URL-encoded text, not %q", name, value)
		}
		if encoded[name] != "" || !slices.Contains([]string{"sr", "sig", "se", "skn"}, name) {
			return wrongToken("MalformedToken: field %s is unknown or there twice", name)
		}
		encoded[name], plain[name] = value, text
	}
	seconds, err := strconv.ParseInt(plain["se"], 10, 64)
	if err != nil || len(plain) != 4 {
		return wrongToken("MalformedToken: the token must have sr, sig, skn, and se in Unix seconds")
	}
	if !covers(plain["sr"], host, entity) {
		return wrongToken("InvalidAudience: The authorization header contains a token with a wrong audience. %s is neither "+
			"host %s nor %s on it.", plain["sr"], host, entity)
	}
	ahead := time.Unix(seconds, 0).Sub(s.options.Now())
	if ahead > s.options.MaxLifetime {
		return wrongToken("InvalidToken: the token is valid for %s, longer than %s", ahead, s.options.MaxLifetime)
	}
	if ahead <= 0 {
		return denied("ExpiredToken: The token is expired.")
	}
	return s.matchKey(encoded["sr"]+"\n"+plain["se"], plain["sr"]+"\n"+plain["se"], plain["sig"], plain["skn"])
}

// matchKey finds the key of a signature over a text. A signature by a frequent mistake is a violation.
func (s *Server) matchKey(text, unencoded, signature, policy string) *refusal {
	refused := denied("InvalidSignature: The token has an invalid signature.")
	for _, k := range s.keys {
		for _, key := range []string{k.Primary, k.Secondary} {
			if k.Name != policy || key == "" {
				continue
			}
			if signature == sign([]byte(key), text) {
				return nil
			}
			if decoded, _ := base64.StdEncoding.DecodeString(key); signature == sign(decoded, text) {
				refused = wrongToken("InvalidSignature: signed with the base64-decoded key, not with its text")
			}
			if signature == sign([]byte(key), unencoded) {
				refused = wrongToken("InvalidSignature: signed the resource without URL encoding")
			}
		}
	}
	return refused
}

// sign returns the signature of a text in base64.
func sign(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// covers reports whether a resource is the host, the entity on it or a path above it. The port may be left out.
func covers(resource, host, entity string) bool {
	u, err := url.Parse(resource)
	if err != nil || !slices.Contains([]string{"http", "https", "sb"}, u.Scheme) || u.RawQuery != "" {
		return false
	}
	bare, _, _ := net.SplitHostPort(host)
	path := strings.ToLower(strings.Trim(u.Path, "/"))
	return (strings.EqualFold(u.Host, host) || strings.EqualFold(u.Host, bare)) &&
		(path == "" || strings.HasPrefix(strings.ToLower(entity)+"/", path+"/"))
}
