package endpointconf

import (
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"postrider/internal/jsonscan"
)

const (
	redacted = "***"
	// minQuerySecret: short values of an endpoint's query, such as v=1, are not secrets and occur in many texts.
	minQuerySecret = 8
	// minCutSecret is the least part of a secret at the end of a text that counts as a cut secret.
	minCutSecret = 4
)

// Secrets are texts that requests carry and that must not be stored if the response repeats them: the values of secret
// headers, and those of 8 bytes and more in the query of the endpoint's URL. It is safe for concurrent use.
type Secrets struct {
	texts    []string // in all spellings, the longest first
	replacer *strings.Replacer
}

// NewSecrets returns nil if there are none.
func NewSecrets(list []DeliveryAttribute, endpointURL string) *Secrets {
	var texts []string
	for _, a := range list {
		if a.IsSecret && a.Value != nil {
			texts = append(texts, *a.Value)
			// Of "Bearer abc…" a response may repeat only the token.
			if _, token, found := strings.Cut(*a.Value, " "); found && len(token) >= minQuerySecret {
				texts = append(texts, token)
			}
		}
	}
	return (*Secrets)(nil).With(append(texts, querySecrets(endpointURL)...)...)
}

// querySecrets are the values of a URL's query, as sent and decoded. A member without "=" is a value.
func querySecrets(endpointURL string) (texts []string) {
	_, query, _ := strings.Cut(endpointURL, "?")
	for member := range strings.SplitSeq(query, "&") {
		value := member
		if _, after, found := strings.Cut(member, "="); found {
			value = after
		}
		if len(value) < minQuerySecret {
			continue
		}
		texts = append(texts, value)
		if decoded, err := url.QueryUnescape(value); err == nil {
			texts = append(texts, decoded)
		}
	}
	return texts
}

// With returns s with more secrets, such as the token of one request. s may be nil, and texts "".
func (s *Secrets) With(texts ...string) *Secrets {
	var list []string
	for _, text := range texts {
		if text != "" {
			list = append(list, spellings(text)...)
		}
	}
	if len(list) == 0 {
		return s
	}
	if s != nil {
		list = append(list, s.texts...)
	}
	slices.SortFunc(list, func(x, y string) int { return len(y) - len(x) })
	pairs := make([]string, 0, 2*len(list))
	for _, text := range list {
		pairs = append(pairs, text, redacted)
	}
	return &Secrets{texts: list, replacer: strings.NewReplacer(pairs...)}
}

// spellings are the text itself and how JSON, URLs and HTML write it: responses repeat requests in these forms.
func spellings(text string) []string {
	escaped, _ := json.Marshal(text)
	inside := func(quoted string) string { return strings.TrimSuffix(strings.TrimPrefix(quoted, `"`), `"`) }
	list := []string{
		text, inside(string(jsonscan.MustEncode(text))), inside(string(escaped)), inside(strconv.QuoteToASCII(text)),
		url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text),
	}
	for _, spelling := range list[1:4] {
		list = append(list, strings.ReplaceAll(spelling, "/", `\/`))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Redact replaces every secret in the text by ***, and one that the end of the text cuts off after 4 bytes or more.
func (s *Secrets) Redact(text string) string {
	if s == nil || text == "" {
		return text
	}
	text = s.replacer.Replace(text)
	cut := minCutSecret - 1
	for _, secret := range s.texts {
		for n := min(len(secret)-1, len(text)); n > cut; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				cut = n
			}
		}
	}
	if cut < minCutSecret {
		return text
	}
	return text[:len(text)-cut] + redacted
}
