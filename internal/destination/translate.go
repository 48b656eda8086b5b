package destination

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"postrider/policy"
)

// translator says what a response of a service of Azure means. It is used by several goroutines.
type translator struct {
	service string
	rules   []rule
	stored  bool // the signature is a stored one, which may have expired
	// signed is when the last request was signed, in Unix seconds: the response's date shows a clock that is off.
	signed atomic.Int64
}

// rule is a case of a response. The first that fits decides; without one, the status is the result.
type rule struct {
	statuses []int          // nil = any
	code     *regexp.Regexp // of the code; nil = any
	text     *regexp.Regexp // of the words, without names and addresses; nil = any
	result   policy.Result
}

func (r *rule) fits(status int, code, words string) bool {
	return (r.statuses == nil || slices.Contains(r.statuses, status)) &&
		(r.code == nil || r.code.MatchString(code)) && (r.text == nil || r.text.MatchString(words))
}

func status(n int) policy.Result { return policy.Result{Status: n} }

func failed(kind policy.ErrorKind) policy.Result { return policy.Result{Err: kind} }

// busRules are those of Service Bus, Event Hubs and Relay. One status stands for several causes, which only the text
// distinguishes; its wording is not documented, so it is matched loosely.
// Source: Microsoft, Service Bus and Event Hubs REST APIs, response codes; their exceptions and throttling pages.
var busRules = []rule{
	{code: regexp.MustCompile(`^(50002|50004|50009|ServerBusy)$`), result: status(503)},
	{text: regexp.MustCompile(`(?i)server ?busy|\b50002\b|\b50004\b|\b50009\b`), result: status(503)},
	{
		statuses: []int{400, 403, 409, 500}, result: failed(policy.ErrorSession),
		text: regexp.MustCompile(`(?i)session ?id (was|is) not set|requires? (a )?session|session support enabled|` +
			`sessionful`),
	},
	{statuses: []int{403}, code: regexp.MustCompile(`^(401\d\d|ExpiredToken|InvalidSignature)$`), result: status(401)},
	{ // before the size of a message: a wrong guess must be the one that is retried
		statuses: []int{403, 409, 507}, result: failed(policy.ErrorFull),
		text: regexp.MustCompile(`(?i)quota|entity ?size|\bfull\b|has been reached|maximum size limit`),
	},
	{
		statuses: []int{400, 403}, result: status(413),
		text: regexp.MustCompile(`(?i)too (large|big)|message ?size|size of (the )?(message|batch)|larger than|` +
			`(message|batch|body|payload|request).*(exceeds the limit|size limit)`),
	},
	{
		statuses: []int{403}, result: status(403), // a firewall, not the entity
		text: regexp.MustCompile(`(?i)network access|auth\w* (is|has been) disabled|disabled for (public|this ip)`),
	},
	{statuses: []int{400, 403, 409}, text: regexp.MustCompile(`(?i)disabled`), result: failed(policy.ErrorDisabled)},
	{statuses: []int{404, 410}, result: status(404)},
	{statuses: []int{408, 504}, result: status(408)},
	{statuses: []int{500}, text: regexp.MustCompile(`(?i)operation ?timed ?out`), result: status(408)},
	{statuses: []int{429, 503}, result: status(503)},
}

// queueRules are those of Storage Queue. A wrong key is 403 there: as 401 it is retried, so that a rotated key does not
// end the deliveries. Source: Microsoft, Common REST API error codes; Queue service error codes.
var queueRules = []rule{
	{code: regexp.MustCompile(`^(MessageTooLarge|RequestBodyTooLarge)$`), result: status(413)},
	{code: regexp.MustCompile(`^(QueueNotFound|QueueBeingDeleted)$`), result: status(404)},
	{code: regexp.MustCompile(`^(QueueDisabled|AccountIsDisabled)$`), result: failed(policy.ErrorDisabled)},
	{
		code:   regexp.MustCompile(`^(AuthenticationFailed|NoAuthenticationInformation|InvalidAuthenticationInfo)$`),
		result: status(401),
	},
	{code: regexp.MustCompile(`^ServerBusy$`), result: status(503)},
	{code: regexp.MustCompile(`^OperationTimedOut$`), result: status(408)},
	{statuses: []int{404, 410}, result: status(404)},
	{statuses: []int{408, 504}, result: status(408)},
	{statuses: []int{429, 503}, result: status(503)},
}

var (
	subCode     = regexp.MustCompile(`SubCode=(\d{5})\b`)
	leadingCode = regexp.MustCompile(`^(\d{5}|[A-Z][A-Za-z]+):`)
	tags        = regexp.MustCompile(`<[^>]*>?`)
	signatures  = regexp.MustCompile(`(?i)\bsig=[^&\s"']+|sig(?:%25)*%3d[^&\s"']+`)
	// names are of entities, which may be called quota or disabled.
	names = regexp.MustCompile(`\B'[^']*'|"[^"]*"|\S+://\S+|\b(TrackingId|SystemTracker|Timestamp|Reference|Resource):\S*`)
	waits = regexp.MustCompile(`(?i)\bwait (\d{1,4}) seconds?`)
	clock = regexp.MustCompile(`(?i)expired|date header|time ?frame|clock|correct range`)
)

const (
	maxText       = 300
	clockDistance = 5 * time.Minute
)

// Translate is of Form.
func (t *translator) Translate(n int, h http.Header, body []byte) Result {
	if n >= 200 && n < 300 {
		return Result{Result: status(200)}
	}
	code, words := readError(n, h, strings.ToValidUTF8(string(body), "\uFFFD"))
	result := status(n)
	cause := names.ReplaceAllString(words, " ")
	for i := range t.rules {
		if t.rules[i].fits(n, code, cause) {
			result = t.rules[i].result
			break
		}
	}
	head := fmt.Sprintf("%s responded %d", t.service, n)
	if code != "" {
		head += " (" + code + ")"
	}
	hint := ""
	if result.Status == http.StatusUnauthorized {
		hint = t.clockHint(h, code+" "+words)
	}
	words = strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(words, "SubCode="), code), ":. ")
	if words == "" {
		words = http.StatusText(n)
	}
	head += ": "
	return Result{
		Result: result, Text: head + cut(words, maxText-len(head)-len(hint)) + hint, RetryAfter: retryAfter(h, words),
	}
}

// readError returns the service's own code, "" if it has none, and its words without tags.
func readError(n int, h http.Header, body string) (code, words string) {
	words = body
	for _, name := range []string{"Message", "Detail"} {
		if text := element(body, name); text != "" {
			words = text
			break
		}
	}
	words = html.UnescapeString(tags.ReplaceAllString(words, " "))
	words = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFEFF' {
			return ' '
		}
		return r
	}, words)
	words = signatures.ReplaceAllString(strings.Join(strings.Fields(words), " "), "sig=***")
	if code = h.Get("X-Ms-Error-Code"); code != "" {
		return cut(code, 60), words
	}
	if found := subCode.FindStringSubmatch(words); found != nil {
		return found[1], words
	}
	if code = strings.TrimSpace(element(body, "Code")); code != "" && code != strconv.Itoa(n) {
		return cut(code, 60), words
	}
	if found := leadingCode.FindStringSubmatch(words); found != nil {
		return cut(found[1], 60), words
	}
	return "", words
}

// element is the text of an XML element; "" if there is none. The text may be cut off.
func element(body, name string) string {
	_, after, _ := strings.Cut(body, "<"+name+">")
	text, _, _ := strings.Cut(after, "<")
	return text
}

// clockHint names a clock that is off, which makes every signature invalid.
func (t *translator) clockHint(h http.Header, words string) string {
	if date, err := http.ParseTime(h.Get("Date")); err == nil && t.signed.Load() != 0 {
		if off := time.Unix(t.signed.Load(), 0).Sub(date); off.Abs() > clockDistance {
			direction := "ahead"
			if off < 0 {
				direction = "behind"
			}
			return fmt.Sprintf(" (check the clock of the database server: it is %s %s)", off.Abs(), direction)
		}
	}
	switch {
	case !clock.MatchString(words):
		return ""
	case t.stored:
		return " (check whether sharedAccessSignature has expired, and the clock of the database server)"
	}
	return " (check the clock of the database server)"
}

// retryAfter is the wait that the service requests; 0 = none.
func retryAfter(h http.Header, words string) time.Duration {
	if n, err := strconv.ParseUint(h.Get("X-Ms-Retry-After-Ms"), 10, 31); err == nil {
		return time.Duration(n) * time.Millisecond
	}
	wait := h.Get("Retry-After")
	if found := waits.FindStringSubmatch(words); wait == "" && found != nil {
		wait = found[1]
	}
	if n, err := strconv.ParseUint(wait, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	until, err := http.ParseTime(wait)
	date, dated := http.ParseTime(h.Get("Date"))
	if err != nil || dated != nil {
		return 0
	}
	return max(0, until.Sub(date))
}

// cut returns at most n bytes of a text.
func cut(text string, n int) string {
	const more = "…"
	if len(text) <= n {
		return text
	}
	n = max(0, n-len(more))
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + more
}
