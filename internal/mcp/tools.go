package mcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"postrider/internal/cli/config"
	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/policy"
	"postrider/server/openapi"
)

// tools are the tools of one process.
type tools struct{ *rest.Client }

// problemsFilter has the parameters of GET /v1/problems.
type problemsFilter struct {
	Topic  string `query:"topic" json:"topic,omitzero"`
	State  string `query:"state" json:"state,omitzero" jsonschema:"unresolved (default: all but resolved ones), failing, acknowledged, recovered, resolved or all"`
	Within int    `query:"withinInMinutes" json:"withinInMinutes,omitzero" jsonschema:"length of the time span before now, 1 to 10080; default 60"`
}

// lister returns a tool that reads a list of the REST API, or a page of it. The API checks the parameters.
func (t *tools) lister(name string, defaults rest.Object) func(context.Context, rest.Object) (*answer, error) {
	return func(ctx context.Context, in rest.Object) (*answer, error) {
		var page struct {
			Value    []any
			NextLink string
			Scanned  int64
		}
		parameters := maps.Clone(defaults)
		maps.Copy(parameters, in)
		if err := t.Call(ctx, http.MethodGet, rest.QueryURL("/v1/"+name, parameters), nil, &page); err != nil {
			return nil, err
		}
		a := &answer{facts: rest.Object{"rows": len(page.Value)}, lists: map[string][]any{name: page.Value}}
		if page.NextLink != "" {
			link, err := url.Parse(page.NextLink)
			if err != nil {
				return nil, fmt.Errorf("read the link to the next page: %w", err)
			}
			a.facts[nextCursor] = link.Query().Get("cursor")
		}
		if page.Scanned > 0 { // the search has not reached the end of the list
			a.facts["scanned"] = page.Scanned
		}
		return a, nil
	}
}

type deadLetterInput struct {
	DeadLetterID string `json:"deadLetterId" jsonschema:"id of the dead letter, a UUID"`
}

func (t *tools) showDeadLetter(ctx context.Context, in deadLetterInput) (*answer, error) {
	var o rest.Object
	err := t.Call(ctx, http.MethodGet, rest.ItemURL("/v1/deadLetters", in.DeadLetterID), nil, &o)
	return &answer{lists: map[string][]any{"deadLetter": {o}}}, err
}

type deliveryInput struct {
	DeliveryID int64 `json:"deliveryId" jsonschema:"id of the delivery"`
}

func (t *tools) explainDelivery(ctx context.Context, in deliveryInput) (*answer, error) {
	at := rest.ItemURL("/v1/deliveries", in.DeliveryID)
	var delivery rest.Object
	if err := t.Call(ctx, http.MethodGet, at, nil, &delivery); err != nil {
		return nil, err
	}
	attempts, err := t.All(ctx, at+"/attempts")
	slices.Reverse(attempts)
	return &answer{
		facts: rest.Object{"order": "the newest attempt first"},
		lists: map[string][]any{"delivery": {delivery}, "attempts": listed(attempts)},
	}, err
}

type policyInput struct {
	Policy              string `json:"policy" jsonschema:"name of the policy: preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023, ga-2026 or one of your own"`
	Status              int    `json:"status,omitempty" jsonschema:"HTTP status of every response, 200 to 599; default 500"`
	Error               string `json:"error,omitempty" jsonschema:"error of every attempt instead of a status: timeout, canceled, socket, dns, unauthorized or argument, or a broker's response: full, disabled or session"`
	EndpointKind        string `json:"endpointKind,omitempty" jsonschema:"webhook (default), or azure-resource, which all other types of destinations have"`
	MaxDeliveryAttempts *int   `json:"maxDeliveryAttempts,omitempty" jsonschema:"limit of attempts instead of the policy's default"`
	TTLInMinutes        *int   `json:"eventTimeToLiveInMinutes,omitempty" jsonschema:"time to live instead of the policy's default"`
	RetryAfterInSeconds int    `json:"retryAfterInSeconds,omitempty" jsonschema:"Retry-After of every response"`
	Behavior            string `json:"behavior,omitempty" jsonschema:"safe (default) or documented: how literally an event subscription takes the policy"`
	DropDeadLetters     bool   `json:"dropDeadLetters,omitempty" jsonschema:"the event subscription keeps no dead letters"`
}

func (t *tools) previewPolicy(ctx context.Context, in policyInput) (*answer, error) {
	p, _, err := config.FindPolicy(ctx, t.Client, in.Policy)
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
	times := "seconds from publishing, without jitter, probation and rate limits"
	return &answer{
		facts: rest.Object{"end": explained.End, "times": times}, trusted: true,
		lists: map[string][]any{"attempts": listed(explained.Attempts)},
	}, nil
}

type queryInput struct {
	SQL   string   `json:"sql" jsonschema:"one SELECT, VALUES, WITH or TABLE"`
	Args  []string `json:"args,omitempty" jsonschema:"values of $1, $2, … as texts"`
	Limit int      `json:"limit,omitempty" jsonschema:"most rows, 1 to 200; default 50"`
}

// runQuery returns PostgreSQL's error as a row: it can quote a value.
func (t *tools) runQuery(ctx context.Context, in queryInput) (*answer, error) {
	if in.Limit < 0 || in.Limit > maxRows {
		return nil, fmt.Errorf("limit %d: must be between 1 and %d", in.Limit, maxRows)
	}
	body := rest.Object{"sql": in.SQL, "limit": cmp.Or(in.Limit, defaultRows)}
	if len(in.Args) > 0 {
		body["args"] = in.Args
	}
	var result struct {
		Columns []any
		Rows    []any
		More    bool
	}
	err := t.Call(ctx, http.MethodPost, "/v1/queries/run", body, &result)
	if rest.IsStatus(err, http.StatusBadRequest) {
		return &answer{
			failed: true, facts: rest.Object{"error": "The query was rejected. The block below has the message."},
			lists: map[string][]any{"errors": {err.Error()}},
		}, nil
	}
	return &answer{
		facts: rest.Object{"rows": len(result.Rows), "more": result.More},
		lists: map[string][]any{"columns": result.Columns, "rows": result.Rows},
	}, err
}

// listed is a list as the rows of a table.
func listed[T any](list []T) []any {
	rows := make([]any, len(list))
	for i, o := range list {
		rows[i] = o
	}
	return rows
}

// filterSchema is the input of a tool with the query parameters in a struct. Their texts are those of a component of
// the OpenAPI document, if the struct has none.
func filterSchema[Filter any](component string) (*jsonschema.Schema, error) {
	s, err := jsonschema.For[Filter](nil)
	if err != nil {
		return nil, fmt.Errorf("infer the parameters of a tool: %w", err)
	}
	inferred := s.Properties
	s.Properties, s.PropertyOrder = map[string]*jsonschema.Schema{}, nil
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Filter]()) {
		name, isParameter := field.Tag.Lookup("query")
		if !isParameter {
			continue
		}
		p := inferred[name]
		if field.Type.Kind() == reflect.Pointer { // null would be sent as a text
			p.Type, p.Types = p.Types[len(p.Types)-1], nil
		}
		if p.Description == "" {
			p.Description = openapi.Description(component, name)
		}
		for _, value := range query.ChoicesOf(field.Tag) {
			p.Enum = append(p.Enum, value)
		}
		s.Properties[name] = p
	}
	return s, nil
}

// listSchema is filterSchema for a list with pages.
func listSchema[Filter any](component string) (*jsonschema.Schema, error) {
	s, err := filterSchema[Filter](component)
	if err != nil {
		return nil, err
	}
	least, most := 1.0, float64(maxRows)
	maps.Copy(s.Properties, map[string]*jsonschema.Schema{
		"limit": {
			Type: "integer", Minimum: &least, Maximum: &most, Description: fmt.Sprintf("Most rows; default %d.", defaultRows),
		},
		"cursor": {Type: "string", Description: "nextCursor of the previous result, with the same other parameters."},
	})
	return s, nil
}
