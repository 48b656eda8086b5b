package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/postgres"
)

// The columns of a retry policy, as the API calls them, by how they are typed.
var (
	policyTexts   = []string{"source", "basis", "expiry", "deadLetterDefault", "probation.scope", "probation.action"}
	policyChecks  = []string{"honorRetryAfter", "retryTransportErrors", "batching"}
	policyJSON    = []string{"statusTable", "probation.byOutcome"}
	policyNumbers = []string{
		"ackTimeoutInSeconds", "lateAnswerWindowInSeconds", "tailInSeconds", "retryWindowInSeconds", "retryAfterCapInSeconds",
		"jitterFraction", "jitterCapInSeconds", "maxDeliveryAttempts.default", "maxDeliveryAttempts.least",
		"maxDeliveryAttempts.most", "eventTimeToLiveInMinutes.default", "eventTimeToLiveInMinutes.least",
		"eventTimeToLiveInMinutes.most", "deadLetterDelayInSeconds", "deadLetterGiveUpInSeconds",
		"probation.trigger", "probation.firstInSeconds", "probation.maxInSeconds",
	}
)

// policyForm is the form of a retry policy as the API reads it out.
func policyForm(policy []byte) *form {
	f := newForm()
	columns := flat(string(policy))
	for name, raw := range columns {
		var text string
		if json.Unmarshal([]byte(raw), &text) == nil && raw != "null" {
			raw = text
		}
		if raw != "null" && raw != "false" {
			f.set(name, raw)
		}
	}
	var lists struct {
		StepsInSeconds []json.Number
		StatusTable    []json.RawMessage
		Probation      struct{ ByOutcome json.RawMessage }
	}
	_ = json.Unmarshal(policy, &lists) // the API's own words
	steps := make([]string, len(lists.StepsInSeconds))
	for i, step := range lists.StepsInSeconds {
		steps[i] = step.String()
	}
	f.set("stepsInSeconds", strings.Join(steps, ", "))
	cells := make([]string, len(lists.StatusTable))
	for i, cell := range lists.StatusTable {
		cells[i] = "  " + string(cell)
	}
	f.set("statusTable", "[\n"+strings.Join(cells, ",\n")+"\n]")
	if by := string(lists.Probation.ByOutcome); by != "{}" && by != "null" {
		f.set("probation.byOutcome", by)
	}
	return f
}

// policySettings is what the form says, as the API takes it. mistakes are those of fields that hold no JSON.
func policySettings(f *form) (settings map[string]any, mistakes []apiProblem) {
	settings = map[string]any{}
	put := func(name string, value any) {
		group, member, nested := strings.Cut(name, ".")
		if !nested {
			settings[name] = value
			return
		}
		members, ok := settings[group].(map[string]any)
		if !ok {
			members = map[string]any{}
			settings[group] = members
		}
		members[member] = value
	}
	for _, name := range policyTexts {
		put(name, f.orNull(name))
	}
	for _, name := range policyChecks {
		put(name, f.has(name))
	}
	for _, name := range policyNumbers {
		put(name, f.number(name))
	}
	for _, name := range policyJSON {
		text := f.get(name)
		switch {
		case text == "":
			put(name, nil)
		case json.Valid([]byte(text)):
			put(name, json.RawMessage(text))
		default:
			mistakes = append(mistakes, apiProblem{Target: name, Message: name + " must be JSON"})
		}
	}
	steps := []json.RawMessage{}
	for step := range strings.FieldsFuncSeq(f.get("stepsInSeconds"), func(r rune) bool {
		return r == ',' || r == ' ' ||
			r == '\n'
	}) {
		steps = append(steps, numberOf(step))
	}
	settings["stepsInSeconds"] = steps
	return settings, mistakes
}

func policySections(f *form, fresh bool) []formSection {
	seconds := func(name, label, hint string) formField {
		return formField{Name: name, Label: label + " (s)", Kind: kindText, Hint: hint}
	}
	whole := func(name, label string) formField {
		return formField{Name: name, Label: label, Kind: kindNumber, Min: "0"}
	}
	var first []formField
	if fresh {
		first = append(first, formField{Name: "name", Label: "Name", Kind: kindText, Required: true, Placeholder: "patient"})
	}
	first = append(first, formField{Name: "source", Label: "Where its values come from", Kind: kindText, Wide: !fresh})
	return []formSection{
		{ID: "policy", Title: "Policy", Fields: f.fields(first...)},
		{ID: "schedule", Title: "Schedule", Fields: f.fields(
			seconds("ackTimeoutInSeconds", "An endpoint answers within", "1 to 230."),
			seconds("lateAnswerWindowInSeconds", "A late success counts for", "0: not at all."),
			formField{Name: "basis", Label: "Steps are", Kind: kindSelect, Options: options("gap",
				"gap: the wait after an attempt", "offset", "offset: marks after the first attempt")},
			formField{Name: "stepsInSeconds", Label: "Steps (s)", Kind: kindText, Wide: true, Placeholder: "10, 30, 60, 300"},
			seconds("tailInSeconds", "Once they are used up, every", ""),
			seconds("retryWindowInSeconds", "No attempt later than", "Empty: no such bound."),
			formField{Name: "jitterFraction", Label: "Jitter, share of the step", Kind: kindText, Hint: "0 to 0.5."},
			seconds("jitterCapInSeconds", "Jitter, at most", ""),
		)},
		{ID: "limits", Title: "Limits", Fields: f.fields(
			whole("maxDeliveryAttempts.default", "Attempts where nothing is said"),
			whole("maxDeliveryAttempts.least", "Attempts, least"), whole("maxDeliveryAttempts.most", "Attempts, most"),
			whole("eventTimeToLiveInMinutes.default", "Time to live where nothing is said (min)"),
			whole("eventTimeToLiveInMinutes.least", "Time to live, least (min)"), whole("eventTimeToLiveInMinutes.most",
				"Time to live, most (min)"),
			formField{Name: "expiry", Label: "Past its time to live", Kind: kindSelect, Options: options("at_ttl",
				"ended at that moment", "next_attempt", "ended when its next attempt is due")},
			formField{Name: "batching", Label: "Batches may be asked for", Kind: kindCheck},
		)},
		{ID: "ends", Title: "What is given up, and answers", Fields: f.fields(
			formField{Name: "deadLetterDefault", Label: "Under documented, what is given up", Kind: kindSelect, Options: options(
				"rows", "becomes a dead letter", "none", "is dropped")},
			seconds("deadLetterDelayInSeconds", "Dead letters are written outside after", ""),
			seconds("deadLetterGiveUpInSeconds", "A location that is away is tried for", ""),
			formField{Name: "honorRetryAfter", Label: "Under documented, Retry-After is honoured", Kind: kindCheck},
			seconds("retryAfterCapInSeconds", "Longest Retry-After", "1 to 604800."),
			formField{Name: "retryTransportErrors", Label: "Under documented, retry without a response", Kind: kindCheck},
			formField{
				Name: "statusTable", Label: "Status table", Kind: kindJSON, Rows: 12, Wide: true, Hint: "JSON: for each kind of " +
					"endpoint a row for every status or error that has a rule of its own, and one of condition “other”.",
			},
		)},
		{ID: "probation", Title: "Probation", Fields: f.fields(
			formField{Name: "probation.scope", Label: "Rests", Kind: kindSelect, Options: options("none", "nothing", "endpoint",
				"the endpoint", "event_subscription", "the event subscription")},
			whole("probation.trigger", "After failures in a row"), seconds("probation.firstInSeconds", "First rest", ""),
			seconds("probation.maxInSeconds", "Longest rest", ""),
			formField{Name: "probation.action", Label: "Meanwhile, under documented", Kind: kindSelect, Options: options("hold",
				"hold: events wait", "documented", "documented: may be given up")},
			formField{
				Name: "probation.byOutcome", Label: "Rests by outcome", Kind: kindJSON, Wide: true, Placeholder: `{"Busy": 60}`,
				Hint: "JSON: seconds by outcome, instead of the first and the longest rest. Empty: the outcome does not matter.",
			},
		)},
	}
}

func (p *pages) newPolicy(c echo.Context) error { return p.editPolicy(c, c.QueryParam("from"), true) }

func (p *pages) changePolicy(c echo.Context) error { return p.editPolicy(c, c.Param("name"), false) }

// editPolicy shows the form of a retry policy, filled with the one that is copied or changed, or saves it.
func (p *pages) editPolicy(c echo.Context, from string, fresh bool) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	stored, err := p.readPolicy(ctx, c, from)
	if err != nil {
		return err
	}
	f := policyForm(stored)
	if fresh {
		f.set("name", "")
		f.set("etag", "")
		f.set("source", "Copied from "+from+".")
	}
	if c.Request().Method == http.MethodPost {
		if f, err = postedForm(c); err != nil {
			return err
		}
		if href, err := p.savePolicy(ctx, c, f, from, fresh); err != nil || href != "" {
			return leave(c, href, err)
		}
	}
	view := formView{
		Action: "/ui/policies/" + from + "/edit", Back: "/ui/policies", Save: "Save", Etag: f.get("etag"), Others: f.others,
		Sections: openWhere(policySections(f, fresh)),
	}
	title := "Edit " + from
	if fresh {
		view.Action, view.Save, title = "/ui/policies/new?from="+from, "Create", "A copy of "+from
	}
	return p.show(c, "policy-form", title, false, view, link{"/ui/policies", "Retry policies"})
}

func (p *pages) readPolicy(ctx context.Context, c echo.Context, name string) ([]byte, error) {
	answer, err := p.ask(ctx, c, http.MethodGet, apiPolicy(name), nil)
	var refused *apiError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound || name == "" {
		return nil, postgres.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return answer.body.Bytes(), nil
}

func (p *pages) savePolicy(
	ctx context.Context, c echo.Context, f *form, name string, fresh bool,
) (href string, err error) {
	condition := []string{"If-Match", f.get("etag")}
	if fresh {
		name, condition = f.get("name"), []string{"If-None-Match", "*"}
	}
	settings, mistakes := policySettings(f)
	if name == "" {
		mistakes = append(mistakes, apiProblem{Target: "name", Message: "A name is required."})
	}
	if len(mistakes) > 0 {
		err = &apiError{status: http.StatusBadRequest, Details: mistakes}
	} else {
		body, failed := plainJSON(settings)
		if failed != nil {
			return "", fmt.Errorf("write the policy: %w", failed)
		}
		_, err = p.ask(ctx, c, http.MethodPut, apiPolicy(name), body, condition...)
	}
	if err == nil {
		return "/ui/policies?done=policy-saved&policy=" + name, nil
	}
	return "", p.refusePolicy(ctx, c, f, name, fresh, err)
}

// refusePolicy says at each field what is wrong with it. Who comes too late keeps what was typed: the form is then one
// for the version that others have left.
func (p *pages) refusePolicy(ctx context.Context, c echo.Context, f *form, name string, fresh bool, err error) error {
	var refused *apiError
	switch late := errors.As(err, &refused) && refused.status == http.StatusPreconditionFailed; {
	case late && fresh:
		refused.Details = []apiProblem{{Target: "name", Message: "There is a retry policy of this name already."}}
	case late:
		stored, err := p.readPolicy(ctx, c, name)
		if err != nil {
			return err
		}
		f.set("etag", policyForm(stored).get("etag"))
		c.Set(refusalKey,
			&refusedError{status: refused.status, text: "Nothing was saved: somebody else has changed this retry policy since " +
				"you opened the form. Save again to replace what they have set."})
		return nil
	}
	if !f.blame(err, namesOf(policySections(f, fresh))) {
		return err
	}
	c.Set(refusalKey, f.refusal(err, "Nothing was saved"))
	return nil
}

func (p *pages) deletePolicy(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	catalogue := p.parts.Cache.Snapshot()
	found, known := catalogue.Policy(c.Param("name"))
	if !known {
		return postgres.ErrNotFound
	}
	d := &deletion{
		page: "policy-delete", api: apiPolicy(found.Name), section: "/ui/policies", done: "policy-deleted",
		title: "Delete " + found.Name + "?", trail: []link{{"/ui/policies", "Retry policies"}},
		view: deletionView{
			Action: "/ui/policies/" + found.Name + "/delete", Back: "/ui/policies",
			Etag: etagOf(catalogue.PolicyVersion(found.Name)), What: "retry policy", Name: found.Name,
			Consequences: []string{"It is refused as long as an event subscription goes by it.", "What was decided by it " +
				"stays written down in the attempts."},
		},
	}
	if found.BuiltIn {
		d.view.Forbidden = "It is built in, and never changes."
	}
	return p.confirmDeletion(ctx, c, d)
}
