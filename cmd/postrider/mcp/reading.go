package mcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"postrider/cmd/postrider/cli/management"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/policy"
)

type problemsInput struct {
	Topic           string `json:"topic,omitempty" jsonschema:"only of this topic"`
	WithinInMinutes int    `json:"withinInMinutes,omitempty" jsonschema:"length of the time span before now, 1 to 10080; default 60"`
}

func (t *tools) listProblems(ctx context.Context, in *problemsInput) (*answer, error) {
	var page struct{ Value []rest.Object }
	err := t.Call(ctx, http.MethodGet, rest.QueryURL("/v1/problems", given(in)), nil, &page)
	return &answer{tables: []table{{name: "problems", rows: listed(page.Value)}}}, err
}

type pageInput struct {
	Limit  int    `json:"limit,omitempty" jsonschema:"most rows, 1 to 200; default 50"`
	Cursor string `json:"cursor,omitempty" jsonschema:"nextCursor of the previous result, with the same other parameters"`
}

// rows checks the limit.
func (p *pageInput) rows() (int, error) {
	if p.Limit < 0 || p.Limit > maxRows {
		return 0, fmt.Errorf("limit %d: must be between 1 and %d", p.Limit, maxRows)
	}
	return cmp.Or(p.Limit, 50), nil
}

// deadLetterFilter has the names of the REST API.
type deadLetterFilter struct {
	Search            string `json:"search,omitempty" jsonschema:"by content: data.order.id = 42 error ~ \"currency\" refund. Conditions are FIELD OPERATOR VALUE, joined by AND; fields: data.PATH, subject, type, error, response, id, source; operators: = != < <= > >= ~ !~ (regular expression) : (contains). A word alone is part of the last error or response"`
	Topic             string `json:"topic,omitempty" jsonschema:"of this topic"`
	Subscription      string `json:"subscription,omitempty" jsonschema:"of this event subscription"`
	Reason            string `json:"reason,omitempty" jsonschema:"dead-lettered for this reason, such as MaxDeliveryAttemptsExceeded"`
	LastOutcome       string `json:"lastOutcome,omitempty" jsonschema:"with this outcome of the last attempt, such as Busy"`
	LastStatus        *int   `json:"lastStatus,omitempty" jsonschema:"with this HTTP status of the last attempt; 0: without a response"`
	EventID           string `json:"eventId,omitempty" jsonschema:"with this id of the event, the publisher's"`
	EventType         string `json:"eventType,omitempty" jsonschema:"of this event type"`
	Subject           string `json:"subject,omitempty" jsonschema:"with this subject"`
	SubjectPrefix     string `json:"subjectPrefix,omitempty" jsonschema:"with a subject that begins with this"`
	Source            string `json:"source,omitempty" jsonschema:"with this CloudEvents source"`
	DeadLetteredFrom  string `json:"deadLetteredFrom,omitempty" jsonschema:"dead-lettered at this time or later, RFC 3339"`
	DeadLetteredUntil string `json:"deadLetteredUntil,omitempty" jsonschema:"dead-lettered before this time, RFC 3339"`
	Redelivered       *bool  `json:"redelivered,omitempty" jsonschema:"true: only those redelivered before; false: only the others"`
}

type deadLettersInput struct {
	deadLetterFilter
	pageInput
}

func (t *tools) listDeadLetters(ctx context.Context, in *deadLettersInput) (*answer, error) {
	return t.list(ctx, "deadLetters", given(in), &in.pageInput)
}

type deadLetterInput struct {
	DeadLetterID string `json:"deadLetterId" jsonschema:"id of the dead letter, a UUID"`
}

func (t *tools) showDeadLetter(ctx context.Context, in *deadLetterInput) (*answer, error) {
	var o rest.Object
	err := t.Call(ctx, http.MethodGet, rest.ItemURL("/v1/deadLetters", in.DeadLetterID), nil, &o)
	return &answer{tables: []table{{name: "deadLetter", rows: []any{o}, one: true}}}, err
}

type deliveriesInput struct {
	Topic          string `json:"topic,omitempty" jsonschema:"of this topic"`
	Subscription   string `json:"subscription,omitempty" jsonschema:"to this event subscription"`
	State          string `json:"state,omitempty" jsonschema:"pending, delivered, dead_lettered, dropped or canceled"`
	Hold           string `json:"hold,omitempty" jsonschema:"paused, not_validated, probation, admission or rate_limited"`
	LastOutcome    string `json:"lastOutcome,omitempty" jsonschema:"with this outcome of the last attempt, such as Busy"`
	EventID        string `json:"eventId,omitempty" jsonschema:"of the event with this id, the publisher's or postrider's own"`
	OperationID    string `json:"operationId,omitempty" jsonschema:"that this operation redelivered"`
	PublishedFrom  string `json:"publishedFrom,omitempty" jsonschema:"of events published at this time or later, RFC 3339"`
	PublishedUntil string `json:"publishedUntil,omitempty" jsonschema:"of events published before this time, RFC 3339"`
	pageInput
}

func (t *tools) listDeliveries(ctx context.Context, in *deliveriesInput) (*answer, error) {
	return t.list(ctx, "deliveries", given(in), &in.pageInput)
}

// listTime bounds the search for the first rows of a list: a page of the REST API can be empty although more follow.
const listTime = 20 * time.Second

// list reads a page of a list of the REST API.
func (t *tools) list(ctx context.Context, name string, parameters rest.Object, page *pageInput) (*answer, error) {
	most, err := page.rows()
	if err != nil {
		return nil, err
	}
	parameters["limit"] = most
	var list struct {
		Value    []rest.Object
		NextLink string
		Scanned  int64
	}
	var scanned int64
	next := rest.QueryURL("/v1/"+name, parameters)
	for began := time.Now(); next != "" && len(list.Value) == 0 && time.Since(began) < listTime; next = list.NextLink {
		list.NextLink, list.Scanned = "", 0
		if err := t.Call(ctx, http.MethodGet, next, nil, &list); err != nil {
			return nil, err
		}
		scanned += list.Scanned
	}
	a := &answer{tables: []table{{name: name, rows: listed(list.Value)}}, facts: rest.Object{}}
	if next != "" {
		link, err := url.Parse(next)
		if err != nil {
			return nil, fmt.Errorf("read the link to the next page: %w", err)
		}
		a.facts[nextCursor] = link.Query().Get("cursor")
	}
	if scanned > 0 {
		a.facts["scanned"] = scanned
	}
	return a, nil
}

type deliveryInput struct {
	DeliveryID int64 `json:"deliveryId" jsonschema:"id of the delivery"`
}

func (t *tools) explainDelivery(ctx context.Context, in *deliveryInput) (*answer, error) {
	at := rest.ItemURL("/v1/deliveries", in.DeliveryID)
	var delivery rest.Object
	if err := t.Call(ctx, http.MethodGet, at, nil, &delivery); err != nil {
		return nil, err
	}
	attempts, err := t.All(ctx, at+"/attempts")
	slices.Reverse(attempts)
	return &answer{
		tables: []table{
			{name: "delivery", rows: []any{delivery}, one: true},
			{name: "attempts", rows: listed(attempts)},
		},
		facts: rest.Object{"order": "the newest attempt first"},
	}, err
}

type policyInput struct {
	Policy              string `json:"policy" jsonschema:"name of the policy: preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023 or one of your own"`
	Status              int    `json:"status,omitempty" jsonschema:"HTTP status of every response, 200 to 599; default 500"`
	Error               string `json:"error,omitempty" jsonschema:"error of every attempt instead of a status: timeout, canceled, socket, dns, unauthorized or argument"`
	EndpointKind        string `json:"endpointKind,omitempty" jsonschema:"webhook (default) or azure-resource"`
	MaxDeliveryAttempts *int   `json:"maxDeliveryAttempts,omitempty" jsonschema:"limit of attempts instead of the policy's default"`
	TTLInMinutes        *int   `json:"eventTimeToLiveInMinutes,omitempty" jsonschema:"time to live instead of the policy's default"`
	RetryAfterInSeconds int    `json:"retryAfterInSeconds,omitempty" jsonschema:"Retry-After of every response"`
	Behavior            string `json:"behavior,omitempty" jsonschema:"safe (default) or documented: how literally an event subscription takes the policy"`
	DropDeadLetters     bool   `json:"dropDeadLetters,omitempty" jsonschema:"the event subscription keeps no dead letters"`
}

func (t *tools) previewPolicy(ctx context.Context, in *policyInput) (*answer, error) {
	p, _, err := management.FindPolicy(ctx, t.Client, in.Policy)
	if err != nil {
		return nil, err
	}
	o := policy.ExplainOptions{
		Kind: policy.EndpointKind(in.EndpointKind), Behavior: policy.Behavior(in.Behavior),
		Result:      policy.Result{Status: in.Status, Err: policy.ErrorKind(in.Error)},
		MaxAttempts: in.MaxDeliveryAttempts, TTLMinutes: in.TTLInMinutes,
		RetryAfter: time.Duration(in.RetryAfterInSeconds) * time.Second,
	}
	if in.DropDeadLetters {
		o.DeadLetter = new(false)
	}
	explained, err := policy.Explain(p, o)
	if err != nil {
		return nil, err
	}
	attempts := make([]any, len(explained.Attempts))
	for i := range attempts {
		attempts[i] = explained.Attempts[i]
	}
	return &answer{
		tables: []table{{name: "attempts", rows: attempts, own: true}},
		facts: rest.Object{
			"end": explained.End, "times": "seconds from publishing, without jitter, probation and rate limits",
		},
	}, nil
}

// given returns the members of the input that are set, by their names.
func given(in any) (o rest.Object) {
	text, err := terminal.EncodePlainly(in)
	if err == nil {
		err = terminal.DecodeExactly(text, &o)
	}
	if err != nil {
		panic(err) // inputs are structs of texts and numbers
	}
	return o
}

// listed is a list as the rows of a table.
func listed(list []rest.Object) []any {
	rows := make([]any, len(list))
	for i, o := range list {
		rows[i] = o
	}
	return rows
}
