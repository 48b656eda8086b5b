package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog/spec"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/web/display"
	"postrider/web/form"
)

// policiesView has retry policies side by side.
type policiesView struct {
	Choices  []display.Share
	Policies []*policy.Policy
	Groups   []spec.Group
}

// shownPolicies is the number of policies that fit side by side: as many are shown until others are chosen.
const shownPolicies = 6

// policies compares retry policies with the default policy, which is in the first column. A user's own policies
// precede the built-in ones.
func (p *pages) policies(_ context.Context, c echo.Context) error {
	chosen := c.QueryParams()["policy"]
	rank := func(p *policy.Policy) int {
		switch {
		case p.Name == policy.DefaultName:
			return 0
		case !p.BuiltIn:
			return 1
		}
		return 2
	}
	all := slices.SortedStableFunc(slices.Values(p.Parts.Cache.Snapshot().Policies()),
		func(a, b *policy.Policy) int { return rank(a) - rank(b) })
	view := policiesView{}
	for i, candidate := range all {
		shown := i == 0 || slices.Contains(chosen, candidate.Name) || len(chosen) == 0 && i < shownPolicies
		view.Choices = append(view.Choices, display.Share{Name: candidate.Name, Here: shown})
		if shown {
			view.Policies = append(view.Policies, candidate)
		}
	}
	view.Groups = spec.Compare(view.Policies, display.Span)
	for _, kind := range []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource} {
		view.Groups = append(view.Groups, spec.Group{
			Name: "Status codes, " + string(kind), Rows: spec.CompareStatuses(view.Policies, kind, display.Span),
		})
	}
	return p.Show(c, "policies", "Retry policies", false, view)
}

// openPolicy is the form of a retry policy, or of a new one that copies another.
func (p *pages) openPolicy(ctx context.Context, c echo.Context) (*editor, error) {
	const list = "/ui/policies"
	name, from := c.Param("name"), c.QueryParam("from")
	if name != "" {
		from = name
	}
	if from == "" {
		return nil, postgres.ErrNotFound
	}
	e := &editor{
		table: spec.Policy, noun: "retry policy", name: name, address: apiPolicy, method: http.MethodPut,
		trail: []display.Link{{Href: list, Text: "Retry policies"}}, removed: list + "?done=policy-deleted",
		saved: func(name string, _ *apiResponse) (string, error) {
			return list + "?done=policy-saved&policy=" + name, nil
		},
		removal: func(context.Context) (forbidden, canceled string, err error) {
			if _, builtIn := policy.Builtin(name); builtIn {
				forbidden = "Built-in policies cannot be deleted."
			}
			return forbidden, "", nil
		},
	}
	if err := p.readStored(ctx, c, e, from); err != nil {
		return nil, err
	}
	if name == "" {
		e.stored["source"] = form.TextJSON("Copied from " + from + ".")
	}
	return e, nil
}
