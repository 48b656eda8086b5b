package message

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The types of notices. docs/operate/monitor.md describes their data.
const (
	deadLetterCreated   = "postrider.deadLetter.created"
	exportAbandoned     = "postrider.deadLetter.exportAbandoned"
	deliveryDropped     = "postrider.delivery.dropped"
	probationStarted    = "postrider.probation.started"
	probationEnded      = "postrider.probation.ended"
	subscriptionExpired = "postrider.subscription.expired"
	problemStarted      = "postrider.problem.started"
	problemEnded        = "postrider.problem.ended"
)

// scopeSubscription is the scope of a probation that holds one event subscription. The other one is endpoint.
const scopeSubscription = "event_subscription"

// notice is an event of postrider.system.
type notice struct {
	ID      word            `json:"id"`
	Type    word            `json:"type"`
	Source  word            `json:"source"`
	Subject word            `json:"subject"`
	Time    word            `json:"time"`
	Raw     json.RawMessage `json:"data"`
	data    data
}

// data has the members of all types.
type data struct {
	Topic, Subscription, Description     word
	Count                                int64
	Summed                               bool
	Reason                               word
	Reasons                              map[string]int64
	EndpointBaseURL                      word
	DeadLetterID, DeliveryID             word
	EventID, EventType                   word
	Attempts                             int64
	LastOutcome, LastStatus              word
	FirstAt                              word
	FirstAttemptAt, DeadLetteredAt       word
	DroppedAt, ExpirationTimeUTC         word
	Since, Until, RecoveredAt            word
	Scope, ProbationID                   word
	Subscriptions                        []word
	SubscriptionCount                    int64
	ProblemID, Outcome, Status, Response word
	Failures, Pending, OpenDeadLetters   int64
	Command                              word
}

// word is a string or a number of JSON, as one line of at most maxWord characters. Anything else is "".
type word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *word) UnmarshalJSON(raw []byte) error {
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		*w = word(cut(oneLine(text), maxWord))
	case bytes.ContainsAny(raw[:1], "-0123456789"):
		*w = word(cut(string(raw), maxWord))
	}
	return nil
}

func (w word) String() string { return string(w) }

func readNotice(cloudEvent []byte) (*notice, error) {
	var n notice
	if err := json.Unmarshal(cloudEvent, &n); err != nil {
		return nil, fmt.Errorf("write a message: read the event: %w", err)
	}
	if n.Type == "" {
		return nil, errors.New("write a message: the event has no type")
	}
	_ = json.Unmarshal(n.Raw, &n.data) // members of another type are left out
	return &n, nil
}

// about names what the notice is about: an event subscription, a topic, or "".
func (n *notice) about() string {
	switch d := &n.data; {
	case d.Topic != "" && d.Subscription != "":
		return d.Topic.String() + "/" + d.Subscription.String()
	case d.Topic != "":
		return "topic " + d.Topic.String()
	}
	return ""
}

// titled appends what the notice is about.
func (n *notice) titled(what string) string {
	if about := n.about(); about != "" {
		return what + ": " + about
	}
	return what
}

// counted is one thing, or their number: "dead letter" becomes "25 dead letters".
func (n *notice) counted(one, many string) string {
	if n.data.Count > 1 {
		return grouped(n.data.Count) + " " + many
	}
	return one
}

// grouped writes a number with a comma after thousands.
func grouped(number int64) string {
	digits := strconv.FormatInt(number, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// text is what the notice says in all formats.
func (n *notice) text(base string) text {
	t, path := n.words()
	if n.data.Command != "" {
		t.Command = n.data.Command.String()
	}
	t.Facts = n.facts()
	if base != "" && len(base+path) <= maxLink {
		t.Link = base + path
	}
	return t
}

// words are the title, the meaning and the command by the type, and the path of the page in the dashboard.
func (n *notice) words() (t text, path string) {
	d := &n.data
	path = n.page()
	switch n.Type {
	case deadLetterCreated:
		t.Title = n.titled(n.counted("Dead letter", "dead letters"))
		t.Meaning = n.either("postrider cannot deliver the event and keeps it as a dead letter.",
			"postrider cannot deliver the events and keeps them as dead letters.") +
			" Fix the cause, then redeliver with this command."
		t.Command = "postrider deadletter redeliver" + n.selected(d.DeadLetterID)
	case exportAbandoned:
		t.Title = n.titled(n.counted("Dead letter not exported", "dead letters not exported"))
		t.Meaning = n.either("The dead letter is not written to its outside location; its row stays.",
			"The dead letters are not written to their outside location; their rows stay.") +
			" Fix the location, then export by hand."
		t.Command = "postrider deadletter export" + n.selected("")
	case deliveryDropped:
		t.Title = n.titled(n.counted("Event dropped", "events dropped"))
		t.Meaning = "Delivery failed for good, and the event subscription keeps no dead letters (deadLetterDestination None)."
		t.Command = "postrider delivery list --state dropped" + n.selected("")
	case probationStarted:
		t.Title = n.atEndpoint("Circuit breaker open (probation)")
		t.Meaning = "The endpoint keeps failing. Until it recovers, postrider only probes it with single deliveries."
		if d.Scope == scopeSubscription {
			t.Meaning = "A delivery of the event subscription failed. Until a probe succeeds, postrider attempts only single " +
				"deliveries of it."
		}
		t.Command = "postrider problem list"
		if d.Topic != "" && d.Subscription != "" {
			t.Command = "postrider subscription probe " + d.Topic.String() + " " + d.Subscription.String()
		}
	case probationEnded:
		t.Title = n.atEndpoint("Circuit breaker closed (probation ended)")
		t.Meaning = "Deliveries to the endpoint continue, except of event subscriptions in probation themselves."
		if d.Scope == scopeSubscription {
			t.Meaning = "Deliveries of the event subscription continue, unless its endpoint is in probation, too."
		}
		t.Command = "postrider delivery list --state pending" + n.selected("")
	case subscriptionExpired:
		t.Title = n.titled("Event subscription expired")
		t.Meaning = "It reached its expirationTimeUtc and was deleted. It receives no more events."
		if d.Topic != "" {
			t.Command = "postrider subscription list " + d.Topic.String()
			path = "/ui/topics/" + url.PathEscape(d.Topic.String())
		}
	case problemStarted:
		t.Title = n.titled(cmp.Or(n.response(), "Deliveries fail"))
		t.Meaning = "Deliveries fail. postrider retries them as the retry policy says."
		t.Command = n.problems()
	case problemEnded:
		t.Title, t.Meaning = n.titled("Problem ended"), "The problem is over."
		if d.RecoveredAt != "" {
			t.Title, t.Meaning = n.titled("Recovered"), "Deliveries succeed again, or none is left that failed so."
		}
		t.Command = n.problems()
	default:
		t.Title = n.Type.String()
		t.Meaning = cmp.Or(n.Subject, n.Source).String()
	}
	return t, path
}

// either is the text of one fact, or of several.
func (n *notice) either(one, many string) string {
	if n.data.Count > 1 {
		return many
	}
	return one
}

// atEndpoint appends the endpoint, or the event subscription that is in probation itself.
func (n *notice) atEndpoint(what string) string {
	if n.data.Scope == scopeSubscription && n.data.Subscription != "" {
		return n.titled(what)
	}
	if endpoint := n.data.EndpointBaseURL; endpoint != "" {
		return what + ": " + endpoint.String()
	}
	return n.titled(what)
}

func (n *notice) problems() string {
	command := "postrider problem list"
	if n.data.Topic != "" {
		command += " --topic " + n.data.Topic.String()
	}
	return command
}

// selected are the arguments of a command for one object, or for those of the event subscription.
func (n *notice) selected(id word) string {
	d := &n.data
	if id != "" && !d.Summed {
		return " " + id.String()
	}
	selected := ""
	if d.Topic != "" {
		selected += " --topic " + d.Topic.String()
	}
	if d.Subscription != "" {
		selected += " --subscription " + d.Subscription.String()
	}
	return selected
}

// page is the path of the dashboard's page about the notice.
func (n *notice) page() string {
	d := &n.data
	deadLetters := n.Type == deadLetterCreated || n.Type == exportAbandoned
	switch {
	case d.ProblemID != "":
		return "/ui/problems/" + url.PathEscape(d.ProblemID.String())
	case deadLetters && d.DeadLetterID != "":
		return "/ui/dead-letters/" + url.PathEscape(d.DeadLetterID.String())
	case deadLetters:
		query := url.Values{}
		if d.Topic != "" {
			query.Set("topic", d.Topic.String())
		}
		if d.Subscription != "" {
			query.Set("subscription", d.Subscription.String())
		}
		return strings.TrimSuffix("/ui/dead-letters?"+query.Encode(), "?")
	case n.Type == deliveryDropped && d.DeliveryID != "":
		return "/ui/deliveries/" + url.PathEscape(d.DeliveryID.String())
	case d.Topic != "" && d.Subscription != "":
		return "/ui/subscriptions/" + url.PathEscape(d.Topic.String()) + "/" + url.PathEscape(d.Subscription.String())
	case d.Topic != "":
		return "/ui/topics/" + url.PathEscape(d.Topic.String())
	}
	return "/ui/problems"
}

// response is the endpoint's last response: its status first, then Event Grid's word.
func (n *notice) response() string {
	d := &n.data
	status, outcome := cmp.Or(d.Status, d.LastStatus).String(), cmp.Or(d.Outcome, d.LastOutcome).String()
	if status == "0" {
		status = ""
	}
	text := d.Response.String()
	if number, err := strconv.Atoi(status); text == "" && err == nil {
		text = http.StatusText(number)
	}
	if status != "" && !strings.HasPrefix(text, status) {
		text = strings.TrimSpace(status + " " + text)
	}
	switch {
	case text == "":
		return outcome
	case outcome != "" && outcome != strings.ReplaceAll(strings.TrimPrefix(text, status), " ", ""):
		return text + " (" + outcome + ")"
	}
	return text
}

// facts are the members of the data, in the order of their use to an engineer on call. Those without a value are left
// out.
func (n *notice) facts() (facts []fact) {
	d := &n.data
	add := func(label, value string) {
		if value != "" {
			facts = append(facts, fact{label, cut(value, maxValue)})
		}
	}
	number := func(label string, value int64) {
		if value > 0 {
			add(label, grouped(value))
		}
	}
	add("Topic", d.Topic.String())
	add("Event subscription", d.Subscription.String())
	add("Description", d.Description.String())
	if d.Subscription == "" {
		add("Event subscriptions", n.subscriptions())
	}
	add("Response", n.response())
	add("Scope", strings.ReplaceAll(d.Scope.String(), "_", " "))
	add("Reason", cmp.Or(d.Reason.String(), reasonList(d.Reasons)))
	add("Since", n.since())
	add("Until", moment(d.Until))
	add("Recovered", moment(d.RecoveredAt))
	if d.Count > 1 {
		number("Count", d.Count)
	}
	number("Failures", d.Failures)
	number("Attempts", d.Attempts)
	number("Pending deliveries", d.Pending)
	number("Open dead letters", d.OpenDeadLetters)
	add("Endpoint", d.EndpointBaseURL.String())
	if d.EventID != "" {
		add("Event", strings.TrimSpace(d.EventType.String()+" "+d.EventID.String()))
	}
	add("Expired", moment(d.ExpirationTimeUTC))
	if !n.known() {
		add("Time", moment(n.Time))
		if text := n.compactData(); text != "" {
			facts = append(facts, fact{"Data", cut(text, maxData)})
		}
	}
	return facts
}

func (n *notice) known() bool {
	return slices.Contains([]word{
		deadLetterCreated, exportAbandoned, deliveryDropped, probationStarted, probationEnded, subscriptionExpired,
		problemStarted, problemEnded,
	}, n.Type)
}

// since is when what the notice reports began.
func (n *notice) since() string {
	d := &n.data
	if n.Type == subscriptionExpired || !n.known() {
		return ""
	}
	return moment(cmp.Or(d.Since, d.FirstAt, d.FirstAttemptAt, d.DeadLetteredAt, d.DroppedAt, n.Time))
}

// moment is a time in UTC, in seconds. Another text stays as it is.
func moment(w word) string {
	at, err := time.Parse(time.RFC3339Nano, w.String())
	if err != nil {
		return w.String()
	}
	return at.UTC().Format(time.RFC3339)
}

// subscriptions lists the first event subscriptions of an endpoint by their paths.
func (n *notice) subscriptions() string {
	const shown = 5
	list := n.data.Subscriptions
	var names []string
	for _, path := range list[:min(len(list), shown)] {
		name := strings.TrimPrefix(path.String(), "/topics/")
		names = append(names, strings.Replace(name, "/subscriptions/", "/", 1))
	}
	text := strings.Join(names, ", ")
	if more := max(n.data.SubscriptionCount, int64(len(list))) - int64(len(names)); more > 0 && text != "" {
		text += " and " + grouped(more) + " more"
	}
	return text
}

// reasonList lists the reasons of a sum, the most frequent first.
func reasonList(reasons map[string]int64) string {
	names := make([]string, 0, len(reasons))
	for name := range reasons {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = oneLine(name) + " (" + grouped(reasons[name]) + ")"
	}
	return strings.Join(names, ", ")
}

// compactData is the data as JSON in one line.
func (n *notice) compactData() string {
	var b bytes.Buffer
	if json.Compact(&b, n.Raw) != nil {
		return ""
	}
	return oneLine(b.String())
}
