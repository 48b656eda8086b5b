package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

const redeliverDescription = "Redeliver dead letters, in two steps. First call it with a filter, ids or all: a dry " +
	"run that freezes the matching dead letters, shows them and returns a token. It redelivers nothing. Then call it " +
	"with the token alone: a person is asked to confirm. The token works once, for 5 minutes."

// redeliverInput chooses dead letters, or has the token of a dry run.
type redeliverInput struct {
	deadLetterFilter
	DeadLetterIDs  []string `json:"deadLetterIds,omitempty" jsonschema:"these dead letters, instead of a filter"`
	All            bool     `json:"all,omitempty" jsonschema:"all dead letters that were not redelivered before"`
	ToTopic        string   `json:"toTopic,omitempty" jsonschema:"topic of toSubscription; default: the dead letter's"`
	ToSubscription string   `json:"toSubscription,omitempty" jsonschema:"deliver to this event subscription instead of the original one"`
	RatePerSecond  int      `json:"ratePerSecond,omitempty" jsonschema:"limit per second; default: as fast as possible"`
	Token          string   `json:"token,omitempty" jsonschema:"token of the dry run, without other parameters"`
}

// addRedelivery adds the tools that redeliver.
func addRedelivery(s *sdk.Server, t *tools) {
	yes := true
	tool := &sdk.Tool{
		Name: "redeliver_dead_letters", Description: redeliverDescription,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
	}
	sdk.AddTool(s, tool,
		func(ctx context.Context, r *sdk.CallToolRequest, in redeliverInput) (*sdk.CallToolResult, any, error) {
			result, err := t.redeliver(ctx, r, &in)
			if err != nil {
				return nil, nil, plainError(err)
			}
			return result, nil, nil
		})
}

// redeliver executes one step: the dry run, the question, or what a person confirmed.
func (t *tools) redeliver(
	ctx context.Context, r *sdk.CallToolRequest, in *redeliverInput,
) (*sdk.CallToolResult, error) {
	if state := r.Params.RequestState; state != "" {
		return t.confirmed(ctx, state, r.Params.InputResponses)
	}
	if in.Token == "" {
		return t.dryRun(ctx, in)
	}
	if len(given(in)) > 1 {
		return nil, errors.New("token: must be the only parameter; the dry run has set the others")
	}
	return t.ask(ctx, r, in.Token)
}

// dryRun freezes the dead letters on the server, and stores the plan under a token.
func (t *tools) dryRun(ctx context.Context, in *redeliverInput) (*sdk.CallToolResult, error) {
	p, body, err := in.plan()
	if err != nil {
		return nil, err
	}
	if p.actor, err = t.actor(ctx); err != nil {
		return nil, err
	}
	var frozen rest.Object
	if err := t.Call(ctx, http.MethodPost, "/v1/selections", body, &frozen); err != nil {
		return nil, err
	}
	p.selection = fmt.Sprint(frozen["selectionId"])
	preview, err := t.preview(ctx, p)
	if err != nil {
		return nil, err
	}
	p.count = fmt.Sprint(preview["count"])
	a := answer{
		tables: []table{
			{name: "groups", rows: listed(rest.Objects(preview, "groups"))},
			{name: "items", rows: listed(rest.Objects(preview, "items")), more: more(preview)},
		},
		facts: rest.Object{
			"dryRun": true, "count": preview["count"], "grouped": preview["grouped"], "selectionId": p.selection,
			"page": t.page(p),
		},
	}
	if p.count == "0" {
		a.facts["next"] = "No dead letter matches; there is nothing to redeliver."
		return a.result(), nil
	}
	a.facts["token"], a.facts["tokenExpiresAt"] = t.plans.put(p)
	a.facts["next"] = "Nothing was redelivered. To redeliver these dead letters, call the tool with the token alone."
	return a.result(), nil
}

// plan reads the input: what the selection's body is, and the options of the redelivery.
func (in *redeliverInput) plan() (*plan, rest.Object, error) {
	p, filtered := &plan{options: rest.Object{}}, in.deadLetterFilter != deadLetterFilter{}
	switch {
	case len(in.DeadLetterIDs) > 0 && (filtered || in.All):
		return nil, nil, errors.New("deadLetterIds: must not be combined with a filter or all")
	case len(in.DeadLetterIDs) == 0 && !filtered && !in.All:
		return nil, nil, errors.New("choose dead letters with a filter, deadLetterIds or all")
	case in.ToTopic != "" && in.ToSubscription == "":
		return nil, nil, errors.New("toTopic: requires toSubscription")
	}
	rest.SetText(p.options, "topic", in.ToTopic)
	rest.SetText(p.options, "subscription", in.ToSubscription)
	if in.RatePerSecond != 0 {
		p.options["ratePerSecond"] = in.RatePerSecond
	}
	if len(in.DeadLetterIDs) > 0 {
		p.chosen = "chosen by their ids"
		return p, rest.Object{"deadLetterIds": in.DeadLetterIDs}, nil
	}
	filter := in.deadLetterFilter
	if filter.Redelivered == nil {
		filter.Redelivered = new(false)
	}
	p.chosen = fmt.Sprint("chosen by the filter ", (&cutter{most: maxQuestion}).text(encode(given(filter))))
	return p, rest.Object{"filter": given(filter)}, nil
}

// preview reads the selection of a plan.
func (t *tools) preview(ctx context.Context, p *plan) (preview rest.Object, err error) {
	err = t.Call(ctx, http.MethodGet, rest.ItemURL("/v1/selections", p.selection), nil, &preview)
	return preview, err
}

// more reports whether a selection has more items than its preview.
func more(preview rest.Object) bool {
	return fmt.Sprint(preview["count"]) != fmt.Sprint(len(rest.Objects(preview, "items")))
}

// page is the selection's page in the dashboard.
func (t *tools) page(p *plan) string { return t.Base + rest.ItemURL("/ui/selections", p.selection) }

// actor is the owner of the key.
func (t *tools) actor(ctx context.Context) (string, error) {
	var me rest.Object
	err := t.Call(ctx, http.MethodGet, "/v1/me", nil, &me)
	return rest.TextAt(me, "name"), err
}

// ask asks a person to confirm a plan. A client that cannot ask gets the address of the page where a person confirms.
func (t *tools) ask(ctx context.Context, r *sdk.CallToolRequest, token string) (*sdk.CallToolResult, error) {
	p, err := t.plans.take(token, false)
	if err != nil {
		return nil, err
	}
	actor, err := t.actor(ctx)
	if err != nil {
		return nil, err
	}
	preview, err := t.preview(ctx, p)
	if err != nil {
		return nil, err
	}
	if actor != p.actor || fmt.Sprint(preview["count"]) != p.count {
		return nil, errors.New("the key or the selection has changed since the dry run; begin again with a dry run")
	}
	if !canAsk(r) {
		return (&answer{facts: rest.Object{
			"redelivered": false, "page": t.page(p),
			"next": "This client cannot ask a person. A person with the rights of " + p.actor +
				" can redeliver these dead letters on the page.",
		}}).result(), nil
	}
	p.asked = true
	state, _ := t.plans.put(p)
	return &sdk.CallToolResult{
		RequestState: state,
		InputRequests: sdk.InputRequestMap{confirm: &sdk.ElicitParams{
			Mode: "form", Message: t.question(p, preview),
			RequestedSchema: rest.Object{
				"type": "object", "required": []string{confirm},
				"properties": rest.Object{
					confirm: rest.Object{"type": "boolean", "title": "Redeliver", "default": false},
				},
			},
		}},
	}, nil
}

const (
	// confirm names the question and its field.
	confirm = "confirm"
	// maxQuestion bounds the filter in a question, which the model has written.
	maxQuestion = 500
)

// canAsk reports whether the client shows forms to a person.
func canAsk(r *sdk.CallToolRequest) bool {
	client := r.ClientCapabilities()
	if client == nil || client.Elicitation == nil {
		return false
	}
	return client.Elicitation.Form != nil || client.Elicitation.URL == nil // without both, a client has forms
}

// question is what a person confirms. The groups and names in it are the server's, the filter is the model's.
func (t *tools) question(p *plan, preview rest.Object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Redeliver %s dead letters as %s on %s?\n", p.count, p.actor, t.Base)
	groups := rest.Objects(preview, "groups")
	if grouped := fmt.Sprint(preview["grouped"]); len(groups) > 0 && grouped != p.count {
		fmt.Fprintf(&b, "Of the first %s:\n", grouped)
	}
	for i, group := range groups {
		if i == 10 {
			b.WriteString("…\n")
			break
		}
		fmt.Fprintf(&b, "%s of %s/%s: %s\n", rest.TextAt(group, "count"), rest.TextAt(group, "topic"),
			rest.TextAt(group, "subscription"), rest.TextAt(group, "reason"))
	}
	if to := p.options["subscription"]; to != nil {
		fmt.Fprintf(&b, "They go to %s %s.\n", terminal.Cell(to), terminal.Cell(p.options["topic"]))
	}
	fmt.Fprintf(&b, "They were %s.\nAll of them: %s", terminal.Cell(p.chosen), t.page(p))
	return b.String()
}

// confirmed redelivers if a person has confirmed.
func (t *tools) confirmed(
	ctx context.Context, state string, responses sdk.InputResponseMap,
) (*sdk.CallToolResult, error) {
	p, err := t.plans.take(state, true)
	if err != nil {
		return nil, err
	}
	response, _ := responses[confirm].(*sdk.ElicitResult)
	if response == nil || response.Action != "accept" || response.Content[confirm] != true {
		return (&answer{facts: rest.Object{
			"redelivered": false, "next": "The person did not confirm. Nothing was redelivered; do not try again unless asked.",
		}}).result(), nil
	}
	var operation rest.Object
	at := rest.ItemURL("/v1/selections", p.selection) + "/redeliver"
	if err := t.Call(ctx, http.MethodPost, at, p.options, &operation); err != nil {
		return nil, err
	}
	return (&answer{
		tables: []table{{name: "operation", rows: []any{operation}, one: true}},
		facts: rest.Object{
			"redelivered": true, "next": "The service redelivers them now; show_operation has the progress.",
		},
	}).result(), nil
}

type operationInput struct {
	OperationID string `json:"operationId" jsonschema:"id of the operation, a UUID"`
}

func (t *tools) showOperation(ctx context.Context, in *operationInput) (*answer, error) {
	at := rest.ItemURL("/v1/operations", in.OperationID)
	var operation rest.Object
	if err := t.Call(ctx, http.MethodGet, at, nil, &operation); err != nil {
		return nil, err
	}
	results, err := t.First(ctx, at+"/results", rest.Object{}, maxRows+1)
	return &answer{tables: []table{
		{name: "operation", rows: []any{operation}, one: true},
		{name: "notDone", rows: listed(results)},
	}}, err
}
